"""Disruption budgets in a cycle: what units take of them, and what is left once some have left.

A moved pod counts like one that left: it is evicted, and made again elsewhere. All of it is read from the state, so
that a rollback of the state is a rollback of this.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Blocker
from kai_solver.planstate.eviction_units import Unit
from kai_solver.planstate.state import State
from kai_solver.problem.budgets import Budgets, BudgetUse

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


def keeps_budgets(state: State) -> bool:
    """True where no budget has lost more than it allows."""
    budgets = state.problem.budgets
    return budgets is None or bool((budgets.spent(state.is_gone) <= budgets.allowed).all())


class BudgetUses:
    """What the units of a pool take of the budgets.

    Attributes
    ----------
    of_unit
        By unit, how many pods of which budgets.
    held
        (U,) units that are more than a budget allows: they never leave.
    divisible
        (U,) units of several pods of which some could move without the others: what is impossible for the whole may be
        possible for a part, and a unit that moves in part takes less than its use.
    free
        (U,) units that no budget counts.
    """

    def __init__(self, state: State, budgets: Budgets, units: Sequence[Unit]) -> None:
        self._state = state
        self.budgets = budgets
        self.of_unit: list[BudgetUse] = [budgets.use(unit.pods) for unit in units]
        rows = [(number, *part) for number, use in enumerate(self.of_unit) for part in use]
        unit, budget, pods = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        self._unit, self._budget, self._pods = unit, budget, pods
        self.held = self._units(unit[pods > budgets.allowed[budget]])
        self.free = ~self._units(unit)
        barred = np.zeros(len(units), dtype=np.int64)
        np.add.at(barred, unit, np.where(budgets.allowed[budget] > 0, 0, pods))
        size = np.array([len(u.pods) for u in units], dtype=np.int64)
        self.divisible = ~self.free & (size > 1) & (barred < size)

    def _units(self, chosen: IntArray) -> BoolArray:
        mask = np.zeros(len(self.of_unit), dtype=np.bool_)
        mask[chosen] = True
        return mask

    def binding(self, units: BoolArray) -> Blocker | None:
        """Budgets that keep some of ``units`` (U,) from leaving, as an element of what blocks; None where none does."""
        counted = units[self._unit]
        asked = np.bincount(self._budget[counted], self._pods[counted], minlength=len(self.budgets.names))
        found = np.flatnonzero(asked > self.budgets.allowed).tolist()
        return self.budgets.in_words(found) if found else None

    def left(self) -> IntArray:
        """(B,) how many more may leave."""
        left: IntArray = self.budgets.allowed - self.budgets.spent(self._state.is_gone)
        return left

    def exhausted(self) -> frozenset[int]:
        """Budgets of which no more pods may leave, though at first some could."""
        found: list[int] = np.flatnonzero((self.left() <= 0) & (self.budgets.allowed > 0)).tolist()
        return frozenset(found)

    def open_units(self, exhausted: frozenset[int]) -> BoolArray:
        """(U,) units that take nothing of the ``exhausted`` budgets."""
        return ~self._units(self._unit[np.isin(self._budget, sorted(exhausted))])

    def fits(self, units: Iterable[int]) -> bool:
        """May all of ``units``, which have not left, go too?"""
        left = self.left()
        for unit in units:
            for budget, pods in self.of_unit[unit]:
                left[budget] -= pods
        return bool((left >= 0).all())
