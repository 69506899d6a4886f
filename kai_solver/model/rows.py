"""The columns behind a model: rows of references and coefficients, compact, in the order in which they were added."""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

NO_LOWER = -(2**63)
"""Lower end of a row that has none (CP-SAT's own sign for it)."""
NO_UPPER = 2**63 - 1
"""Upper end of a row that has none."""

LINEAR, AT_MOST_ONE, BOOL_OR, EXACTLY_ONE = range(4)
"""Kinds of rows. All four read ``low <= sum(coefficient * reference) <= high``; the kind says how CP-SAT is told."""

Ints = NDArray[np.int64]


def view(column: "array[int]") -> NDArray[Any]:
    """Look at ``column`` as a numpy array without a copy; it cannot grow while the view lives."""
    return np.asarray(column)


def pack(values: Iterable[int] | NDArray[np.integer], code: str) -> "array[int]":
    """Copy integers into an array of type ``code``."""
    if not isinstance(values, np.ndarray):
        return array(code, values)
    column = array(code)
    column.frombytes(np.ascontiguousarray(values, dtype=np.dtype(code)).tobytes())
    return column


def segment_sums(values: Ints, ends: Ints) -> Ints:
    """Sum ``values`` per segment; segment ``k`` is ``values[ends[k - 1]:ends[k]]`` and may be empty."""
    totals = np.concatenate(([0], np.cumsum(values)))[ends]
    return np.diff(totals, prepend=0)


@dataclass(slots=True)
class Rows:
    """Constraints in compressed rows.

    A reference is a variable's index, or ``-1 - index`` for the negation of a Boolean. Row ``k`` has the terms
    ``[term_end[k - 1], term_end[k])`` and holds only where all its guards (``guard_end`` likewise) are true.
    """

    kind: "array[int]" = field(default_factory=lambda: array("b"))
    family: "array[int]" = field(default_factory=lambda: array("h"))
    low: "array[int]" = field(default_factory=lambda: array("q"))
    high: "array[int]" = field(default_factory=lambda: array("q"))
    term_end: "array[int]" = field(default_factory=lambda: array("q"))
    reference: "array[int]" = field(default_factory=lambda: array("i"))
    coefficient: "array[int]" = field(default_factory=lambda: array("q"))
    guard_end: "array[int]" = field(default_factory=lambda: array("q"))
    guard: "array[int]" = field(default_factory=lambda: array("i"))

    def __len__(self) -> int:
        return len(self.kind)

    def columns(self) -> Iterator[tuple[str, "array[int]"]]:
        """Every column with its name."""
        for column in fields(self):
            yield column.name, getattr(self, column.name)

    def copy(self) -> "Rows":
        """Return rows that grow on their own."""
        return Rows(*(column[:] for _, column in self.columns()))

    def close_row(self, kind: int, family: int, low: int, high: int, guards: Iterable[int]) -> None:
        """End a row whose terms were appended to ``reference`` and ``coefficient``."""
        self.kind.append(kind)
        self.family.append(family)
        self.low.append(low)
        self.high.append(high)
        self.term_end.append(len(self.reference))
        self.guard.extend(guards)
        self.guard_end.append(len(self.guard))

    def kept(self, mask: NDArray[np.bool_]) -> "Rows":
        """Return only the rows where ``mask``, in the same order."""
        terms = np.diff(view(self.term_end), prepend=0)
        guards = np.diff(view(self.guard_end), prepend=0)
        on_terms, on_guards = np.repeat(mask, terms), np.repeat(mask, guards)
        return Rows(
            kind=pack(view(self.kind)[mask], "b"),
            family=pack(view(self.family)[mask], "h"),
            low=pack(view(self.low)[mask], "q"),
            high=pack(view(self.high)[mask], "q"),
            term_end=pack(np.cumsum(terms[mask]), "q"),
            reference=pack(view(self.reference)[on_terms], "i"),
            coefficient=pack(view(self.coefficient)[on_terms], "q"),
            guard_end=pack(np.cumsum(guards[mask]), "q"),
            guard=pack(view(self.guard)[on_guards], "i"),
        )

    def without_negations(self, *, clauses: bool = False) -> "Rows":
        """Return the same rows with ``c * (1 - x)`` written as ``c - c * x`` in linear rows.

        In CP-SAT a negated reference inside a linear row means ``-x``, not ``1 - x``; clauses may keep theirs (unless
        ``clauses``: then all rows are to be read as sums).
        """
        linear = (view(self.kind) == LINEAR) | clauses
        terms = np.diff(view(self.term_end), prepend=0)
        negated = np.repeat(linear, terms) & (view(self.reference) < 0)
        if not negated.any():
            return self
        coefficient, reference = view(self.coefficient), view(self.reference)
        shift = segment_sums(np.where(negated, coefficient, 0), view(self.term_end))
        low, high = view(self.low), view(self.high)
        rows = self.copy()
        rows.low = pack(np.where(low == NO_LOWER, low, low - shift), "q")
        rows.high = pack(np.where(high == NO_UPPER, high, high - shift), "q")
        rows.reference = pack(np.where(negated, -1 - reference, reference), "i")
        rows.coefficient = pack(np.where(negated, -coefficient, coefficient), "q")
        return rows

    def broken(self, values: Ints) -> int | None:
        """Index of the first row that ``values`` (one per variable) does not satisfy; None when all hold."""
        extended = np.concatenate((values, 1 - values[::-1]))  # extended[-1 - i] is 1 - values[i]
        sums = segment_sums(extended[view(self.reference)] * view(self.coefficient), view(self.term_end))
        false_guards = segment_sums(1 - extended[view(self.guard)], view(self.guard_end))
        bad = (false_guards == 0) & ((sums < view(self.low)) | (sums > view(self.high)))
        return int(np.argmax(bad)) if bad.any() else None
