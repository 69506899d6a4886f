"""What must keep running whatever is chosen, since disruption budgets let only so many go.

Only what holds for every choice is said: pods of which none may go stay where they are; of the others so many need a
place, be it their own. A gang without surplus leaves whole or not at all.
"""

from collections import Counter
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.residents import Residents
from kai_solver.bounds.rights import has_surplus
from kai_solver.problem.rules import Holding
from kai_solver.rules.disruption_budgets.problem import Budgets

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class BudgetHolding(Holding):
    """Budgets over residents: P pods of G gangs, B budgets."""

    def __init__(self, residents: Residents, budgets: Budgets) -> None:
        self.residents = residents
        self.budgets = budgets
        self._budget: IntArray = budgets.of_pod[residents.pods]

    @cached_property
    def barred(self) -> BoolArray:
        allows: BoolArray = np.append(self.budgets.allowed > 0, True)
        return ~allows[self._budget]

    @cached_property
    def whole(self) -> BoolArray:
        gangs = self.residents.problem.gangs
        under = self._budget >= 0
        asked = np.zeros((len(gangs), len(self.budgets.names)), dtype=np.int64)
        np.add.at(asked, (self.residents.owner[under], self._budget[under]), 1)
        found: BoolArray = np.any(asked > self.budgets.allowed, axis=1)
        found[[g.index for g in gangs if found[g.index] and has_surplus(g)]] = False
        return found

    def staying(self, leaving: BoolArray, barred: BoolArray, /) -> Counter[int]:
        r = self.residents
        mine = leaving[r.owner] & ~barred & r.welcome
        whole = mine & self.whole[r.owner]
        found = Counter(r.shape[whole].tolist())
        rest = mine & ~whole & (self._budget >= 0)
        for budget in np.unique(self._budget[rest]).tolist():
            shapes = r.shape[rest & (self._budget == budget)]
            stay = len(shapes) - int(self.budgets.allowed[budget])
            if stay > 0 and len(np.unique(shapes)) == 1:
                found[int(shapes[0])] += stay
        return found

    def binding(self, leaving: BoolArray) -> list[int]:
        """Budgets that keep some pods of the gangs ``leaving`` (G,) from going."""
        under = self._budget[leaving[self.residents.owner] & (self._budget >= 0)]
        counts = np.bincount(under, minlength=len(self.budgets.names))
        found: list[int] = np.flatnonzero(counts > self.budgets.allowed).tolist()
        return found
