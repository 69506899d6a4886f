"""Spare nodes: where a topology says so, every domain keeps some of its nodes free (docs/domains.md)."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.spares import rows, words
from kai_solver.rules.spares.bound import FreeNodes, free_nodes
from kai_solver.rules.spares.ledger import SpareLedger
from kai_solver.rules.spares.problem import NAME, Spares, spares_of

IntArray = NDArray[np.int64]


class SpareNodesFacts(RuleFacts):
    """What topologies keep free in this cycle."""

    name = kind = NAME

    def __init__(self, spares: Spares) -> None:
        self.spares = spares

    def ledger(self, state: State, /) -> SpareLedger:
        return SpareLedger(state.problem, self.spares)

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables, self.spares)

    def bound(self, problem: Problem, gone: IntArray, /) -> FreeNodes:
        return free_nodes(problem, self.spares, gone)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return not all(problem.shapes.shapes[shape].constraints.may_use_spares for shape in needed)

    def element(self, words_: ElementWords, /) -> Blocker:
        return words.element(self.spares)


class SpareNodesRule(Rule):
    """Prepared where any topology has ``spares``."""

    name = kind = NAME
    cure = words.CURE

    def prepare(self, problem: Problem, /) -> SpareNodesFacts | None:
        spares = spares_of(problem)
        return None if spares is None else SpareNodesFacts(spares)

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return words.without(snapshot)


RULE = SpareNodesRule()
