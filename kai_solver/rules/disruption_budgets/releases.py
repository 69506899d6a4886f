"""Disruption budgets in a cycle: what units take of them, and what is left once some have left.

A moved pod counts like one that left: it is evicted, and made again elsewhere. All of it is read from the state, so
that a rollback of the state is a rollback of this.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Blocker
from kai_solver.planstate.state import State
from kai_solver.problem.rules import Releases, ReleaseUse
from kai_solver.rules.disruption_budgets.problem import Budgets
from kai_solver.rules.disruption_budgets.words import blocker

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class BudgetReleases(Releases):
    """What the units of a pool take of the budgets."""

    def __init__(self, state: State, budgets: Budgets, units: Sequence[Sequence[int]]) -> None:
        self._state = state
        self._budgets = budgets
        self._of_unit: list[ReleaseUse] = [budgets.use(pods) for pods in units]
        rows = [(number, *part) for number, use in enumerate(self._of_unit) for part in use]
        unit, budget, pods = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        self._unit, self._budget, self._pods = unit, budget, pods
        self.held = self._units(unit[pods > budgets.allowed[budget]])
        self.free = ~self._units(unit)
        barred = np.zeros(len(units), dtype=np.int64)
        np.add.at(barred, unit, np.where(budgets.allowed[budget] > 0, 0, pods))
        size = np.array([len(unit_pods) for unit_pods in units], dtype=np.int64)
        self.divisible = ~self.free & (size > 1) & (barred < size)

    def _units(self, chosen: IntArray) -> BoolArray:
        mask = np.zeros(len(self._of_unit), dtype=np.bool_)
        mask[chosen] = True
        return mask

    def use(self, unit: int, /) -> ReleaseUse:
        return self._of_unit[unit]

    def binding(self, units: BoolArray, /) -> Blocker | None:
        counted = units[self._unit]
        asked = np.bincount(self._budget[counted], self._pods[counted], minlength=len(self._budgets.names))
        found = np.flatnonzero(asked > self._budgets.allowed).tolist()
        return blocker(self._budgets, found) if found else None

    def left(self) -> IntArray:
        left: IntArray = self._budgets.allowed - self._budgets.spent(self._state.is_gone)
        return left

    def exhausted(self) -> frozenset[int]:
        found: list[int] = np.flatnonzero((self.left() <= 0) & (self._budgets.allowed > 0)).tolist()
        return frozenset(found)

    def open_units(self, exhausted: frozenset[int], /) -> BoolArray:
        return ~self._units(self._unit[np.isin(self._budget, sorted(exhausted))])

    def fits(self, units: Iterable[int], /) -> bool:
        left = self.left()
        for unit in units:
            for budget, pods in self._of_unit[unit]:
                left[budget] -= pods
        return bool((left >= 0).all())
