"""A linear programme in integers, and what dual prices of it prove.

    minimise  cost x   subject to   low <= A x <= high,   0 <= x <= most

beside columns that are not written down: patterns of shares on a device. A row of devices reads

    sum_p pattern[p] + (what takes whole devices) <= devices,

a row of shares ``sum_p copies[p, size] pattern[p] - (pods of that size) >= 0``, and the patterns are all that fit.

Prices are doubles of a solver that is not trusted. `Programme.bound` rounds them to fractions and bounds the cost of
every solution by weak duality, in integers: any prices give a bound, good ones a good one.
"""

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.prices import glop

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

SCALE = 1 << 80
"""Prices are rounded to this part of one: those of bytes of memory are small."""


@dataclass(frozen=True, slots=True)
class Devices:
    """Devices of one kind of node that are free to one level.

    Attributes
    ----------
    row
        Says how many there are.
    level
        How much of each is free, in steps.
    sizes, most, rows
        Of every size of share: its steps, the most copies on one device, and the row of these shares.
    """

    row: int
    level: int
    sizes: tuple[int, ...]
    most: tuple[int, ...]
    rows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cost:
    """What a stage minimises: its name, and the cost of columns."""

    name: str
    columns: Ints
    amounts: Ints


@dataclass(frozen=True, slots=True)
class Solved:
    """One stage's solution.

    Attributes
    ----------
    number, name, cost
        Of the stage, and what the solver says that it comes to; only `Programme.bound` proves anything.
    held
        The same as a whole number.
    duals
        Price of each row, and of the stages before this one (``holds``): how much the cost changes when the end of the
        row that binds grows by one.
    out
        How much of each unit leaves, in the order of the stage's columns.
    """

    number: int
    name: str
    cost: float
    held: int
    duals: Floats
    holds: Floats
    out: Floats


@dataclass(slots=True)
class Programme:
    """Rows and columns, in the order in which they were added; a row or a column is a number."""

    most: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    column: list[int] = field(default_factory=list)
    coefficient: list[int] = field(default_factory=list)
    row_low: list[int | None] = field(default_factory=list)
    row_high: list[int | None] = field(default_factory=list)
    devices: list[Devices] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)

    def add_columns(self, most: Sequence[int]) -> range:
        """Columns between 0 and ``most``; their numbers."""
        first = len(self.most)
        self.most += most
        return range(first, len(self.most))

    def add_row(
        self, columns: Sequence[int], coefficients: Sequence[int], low: int | None = None, high: int | None = None
    ) -> int:
        """A row with at least one end; its number."""
        self.column += columns
        self.coefficient += coefficients
        self.end.append(len(self.column))
        self.row_low.append(low)
        self.row_high.append(high)
        return len(self.end) - 1

    def with_rows(self, rows: Iterable[glop.MoreRow]) -> "Programme":
        """A copy with more rows, over numbers of columns."""
        more = replace(
            self,
            end=list(self.end),
            column=list(self.column),
            coefficient=list(self.coefficient),
            row_low=list(self.row_low),
            row_high=list(self.row_high),
        )
        for columns, coefficients, most in rows:
            more.add_row(columns, coefficients, high=most)
        return more

    def wire(self, at: Mapping[str, int]) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The same for another process: fields, and columns of machine integers and doubles."""
        asked = self.question(at)
        codes = {"most": "q", "end": "q", "column": "i", "coefficient": "q", "row_low": "d", "row_high": "d"}
        blobs = {name: array(code, asked[name]).tobytes() for name, code in codes.items()}
        for number, (columns, amounts) in enumerate(asked["stages"]):
            blobs[f"stage_columns_{number}"] = array("i", columns).tobytes()
            blobs[f"stage_amounts_{number}"] = array("q", amounts).tobytes()
        return {"devices": asked["devices"], "at": asked["at"]}, blobs

    def question(self, at: Mapping[str, int]) -> dict[str, Any]:
        """What `glop.solve` is asked; ``at``: by stage, what the plan so far costs, 0 where it is not named."""
        return {
            "most": self.most,
            "end": self.end,
            "column": self.column,
            "coefficient": self.coefficient,
            "row_low": [-inf if low is None else low for low in self.row_low],
            "row_high": [inf if high is None else high for high in self.row_high],
            "devices": [(d.row, d.level, d.sizes, d.most, d.rows) for d in self.devices],
            "stages": [(cost.columns.tolist(), cost.amounts.tolist()) for cost in self.costs],
            "at": [at.get(cost.name, 0) for cost in self.costs],
        }

    def wired(self, fields: Mapping[str, Any], blobs: Mapping[str, bytes]) -> list[Solved]:
        """What another process answered to `wire`.

        Raises
        ------
        KeyError, TypeError, ValueError
            It is no answer to this programme.
        """
        names = ("duals", "holds", "out")
        answers = [
            {"number": number, "cost": cost, "held": held}
            | {name: np.frombuffer(blobs[f"{name}_{at}"]) for name in names}
            for at, (number, cost, held) in enumerate(fields["solutions"])
        ]
        return [self._solved(answer) for answer in answers]

    def solve(self, seconds: float, at: Mapping[str, int] | None = None) -> list[Solved]:
        """Solve it in this process."""
        return [self._solved(answer) for answer in glop.solve(self.question(at or {}), seconds)]

    def _solved(self, answer: Mapping[str, Any]) -> Solved:
        number = int(answer["number"])
        duals, holds, out = (np.asarray(answer[name], dtype=np.float64) for name in ("duals", "holds", "out"))
        is_finite = all(np.isfinite(found).all() for found in (duals, holds, out))
        if not is_finite or (len(duals), len(holds)) != (len(self.end), number):
            raise ValueError(f"{len(duals)} prices of rows and {len(holds)} of stages, of stage {number}")
        cost = self.costs[number]
        if len(out) != len(cost.columns):
            raise ValueError(f"{len(out)} values of {len(cost.columns)} columns of stage {number}")
        return Solved(number, cost.name, float(answer["cost"]), int(answer["held"]), duals, holds, out)

    def bound(self, solved: Solved, at: Sequence[int]) -> int:
        """A cost of the stage that no solution is below whose earlier stages cost no more than ``at``.

        Weak duality: with prices y of the rows (not negative where the row has only a low end, not positive where it
        has only a high one),

            bound = sum of y x (the end that y leans on) + sum over columns of min(0, reduced cost) x most

        The price of a device is raised to what the best pattern on it brings, so no pattern is worth more than it.
        """
        prices = [self._rounded(row, dual) for row, dual in enumerate(solved.duals.tolist())]
        for devices in self.devices:
            shares = [max(0, prices[row]) for row in devices.rows]
            best, _ = glop.best_pattern(devices.level, list(zip(devices.sizes, devices.most, strict=True)), shares)
            prices[devices.row] = min(prices[devices.row], -int(best))
        reduced = [0] * len(self.most)
        self._add_cost(reduced, solved.number, SCALE)
        total = 0
        for earlier, (dual, most) in enumerate(zip(solved.holds.tolist(), at, strict=True)):
            price = min(0, round(dual * SCALE))
            total += price * most
            self._add_cost(reduced, earlier, -price)
        first = 0
        for end, price, low, high in zip(self.end, prices, self.row_low, self.row_high, strict=True):
            if price:
                leans_on = low if price > 0 else high
                total += price * (leans_on or 0)
                for term in range(first, end):
                    reduced[self.column[term]] -= price * self.coefficient[term]
            first = end
        total += sum(left * most for left, most in zip(reduced, self.most, strict=True) if left < 0)
        return -(-total // SCALE)

    def _rounded(self, row: int, dual: float) -> int:
        price = round(dual * SCALE)
        if (price > 0 and self.row_low[row] is None) or (price < 0 and self.row_high[row] is None):
            return 0
        return price

    def _add_cost(self, reduced: list[int], number: int, factor: int) -> None:
        cost = self.costs[number]
        for column, amount in zip(cost.columns.tolist(), cost.amounts.tolist(), strict=True):
            reduced[column] += amount * factor
