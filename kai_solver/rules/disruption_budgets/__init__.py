"""Disruption budgets: of the pods under each at most so many are evicted or moved (docs/formulation.md, budgets)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.bounds.residents import Residents
from kai_solver.domain import HELD_BY_BUDGETS, Blocker, Snapshot
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.disruption_budgets import rows, words
from kai_solver.rules.disruption_budgets.bound import BudgetHolding
from kai_solver.rules.disruption_budgets.problem import NAME, Budgets, budgets_of
from kai_solver.rules.disruption_budgets.releases import BudgetReleases

BoolArray = NDArray[np.bool_]


class BudgetFacts(RuleFacts):
    """Budgets of this cycle that may bind. Nothing is counted step by step: what has left is read from the state."""

    name, kind = NAME, HELD_BY_BUDGETS
    ties = False
    is_protective = True

    def __init__(self, budgets: Budgets) -> None:
        self.budgets = budgets

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables)

    def may_be_gone(self, gone: BoolArray, /) -> bool:
        return bool((self.budgets.spent(gone) <= self.budgets.allowed).all())

    def releases(self, state: State, units: Sequence[Sequence[int]], /) -> BudgetReleases:
        return BudgetReleases(state, self.budgets, units)

    def holding(self, residents: Residents, /) -> BudgetHolding:
        return BudgetHolding(residents, self.budgets)

    def element(self, words_: ElementWords, /) -> Blocker:
        bounds = words_.bounds
        leaving = bounds.leaving(words_.demand, words_.moment)
        return words.blocker(self.budgets, self.holding(bounds.residents).binding(leaving))


class BudgetRule(Rule):
    """Prepared where a budget counts more pods than it lets go, or an eviction was refused lately."""

    name, kind = NAME, HELD_BY_BUDGETS
    is_protective = True
    cure, sentence = words.CURE, words.SENTENCE

    def prepare(self, problem: Problem, /) -> BudgetFacts | None:
        budgets = budgets_of(problem)
        return BudgetFacts(budgets) if budgets is not None else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return words.without(snapshot)


RULE = BudgetRule()
