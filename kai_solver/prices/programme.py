"""A linear programme in integers, and what dual prices of it prove.

    minimise  cost x   subject to   low <= A x <= high,   0 <= x <= most

beside columns that are not written down: patterns of shares on a device. A row of devices reads

    sum_p pattern[p] + (what takes whole devices) <= devices,

a row of shares ``sum_p copies[p, size] pattern[p] - (pods of that size) >= 0``, and the patterns are all that fit.

Prices are doubles of a solver that is not trusted. `Programme.bound` rounds them to fractions and bounds the cost of
every solution by weak duality, in integers: any prices give a bound, good ones a good one.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    name, cost
        Of the stage, and what the solver says that it comes to; only `Programme.bound` proves anything.
    held
        The most that the stage may cost the later ones.
    duals
        Price of each row, and of the stages before this one (``holds``): how much the cost changes when the end of the
        row that binds grows by one.
    values
        Of every column.
    """

    name: str
    cost: float
    held: float
    duals: Floats
    holds: Floats
    values: Floats


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

    def question(self, held: Mapping[str, int]) -> dict[str, Any]:
        """What `glop.solve` is asked; ``held``: by stage the most that it may cost later ones."""
        return {
            "most": self.most,
            "end": self.end,
            "column": self.column,
            "coefficient": self.coefficient,
            "row_low": [-inf if low is None else low for low in self.row_low],
            "row_high": [inf if high is None else high for high in self.row_high],
            "devices": [(d.row, d.level, d.sizes, d.most, d.rows) for d in self.devices],
            "stages": [(cost.columns.tolist(), cost.amounts.tolist(), held.get(cost.name)) for cost in self.costs],
        }

    def answers(self, found: Sequence[Mapping[str, Any]]) -> list[Solved]:
        """What `glop.solve` answered, stage by stage."""
        return [
            Solved(cost.name, one["cost"], one["held"], *(np.array(one[name]) for name in ("duals", "holds", "values")))
            for cost, one in zip(self.costs, found, strict=False)
        ]

    def solve(self, seconds: float, held: Mapping[str, int] | None = None) -> list[Solved]:
        """Solve it in this process."""
        return self.answers(glop.solve(self.question(held or {}), seconds))

    def bound(self, number: int, duals: Floats, holds: Floats, held: Sequence[int]) -> int:
        """A cost of the stage ``number`` that no solution is below whose earlier stages cost no more than ``held``.

        Weak duality: with prices y of the rows (not negative where the row has only a low end, not positive where it
        has only a high one),

            bound = sum of y x (the end that y leans on) + sum over columns of min(0, reduced cost) x most

        The price of a device is raised to what the best pattern on it brings, so no pattern is worth more than it.
        """
        prices = [self._rounded(row, dual) for row, dual in enumerate(duals.tolist())]
        for devices in self.devices:
            shares = [max(0, prices[row]) for row in devices.rows]
            best, _ = glop.best_pattern(devices.level, list(zip(devices.sizes, devices.most, strict=True)), shares)
            prices[devices.row] = min(prices[devices.row], -int(best))
        reduced = [0] * len(self.most)
        self._add_cost(reduced, number, SCALE)
        total = 0
        for earlier, (dual, most) in enumerate(zip(holds.tolist(), held, strict=True)):
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
