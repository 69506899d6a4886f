"""Nodes in maintenance: nothing starts on a node that would run until it is drained, and what may move leaves it."""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Leaver, Rule, RuleBound, RuleFacts
from kai_solver.rules.maintenance import words
from kai_solver.rules.maintenance.ledger import DrainLedger
from kai_solver.rules.maintenance.problem import NAME, DrainTimes, drain_times_of, must_leave

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class DrainBound(RuleBound):
    """Nodes are closed whatever leaves."""

    kind = NAME

    def __init__(self, times: DrainTimes) -> None:
        self._times = times

    def closed(self, shape: int, /) -> BoolArray | None:
        return self._times.closed(shape)


class MaintenanceFacts(RuleFacts):
    """The drain times of this cycle."""

    name = kind = NAME
    ties = False
    is_monotone = False

    def __init__(self, times: DrainTimes) -> None:
        self.times = times

    def ledger(self, state: State, /) -> DrainLedger:
        return DrainLedger(self.times)

    def tolerated(self, problem: Problem, /) -> BoolArray:
        """Pods that run on a node to be drained may stay."""
        return np.isfinite(self.times.at_s)

    def leavers(self, problem: Problem, /) -> list[Leaver]:
        return [
            Leaver(pod, float(self.times.at_s[node]), allowed, words.leaving_text(problem, self.times, node))
            for pod, allowed in must_leave(problem, self.times)
            for node in (problem.pod_node[pod],)
        ]

    def add_rows(self, variables: Variables, /) -> None:
        """``place[s, n] <= 0`` for every node n that is closed to pods of shape s."""
        places = [*variables.place.items(), *((one.piece.shape, one.place) for one in variables.scoped)]
        for shape, place in places:
            closed = self.times.closed(shape)
            if closed is not None:
                for var in (var for node, var in place.items() if closed[node]):
                    variables.spec.add_le([(1, var)], 0, family=NAME)

    def bound(self, problem: Problem, gone: IntArray, /) -> DrainBound:
        return DrainBound(self.times)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return any(map(self.times.closes, needed))

    def element(self, words_: ElementWords, /) -> Blocker:
        return words.element(self.times, words_)

    def refusals(self, after: Problem, pod: int, /) -> Mapping[int, str]:
        closed = self.times.closed(after.pod_shape[pod])
        nodes = [] if closed is None else np.flatnonzero(closed).tolist()
        return {node: words.node_text(self.times, node) for node in nodes}


class MaintenanceRule(Rule):
    """Prepared where any node is to be drained."""

    name = kind = NAME
    cure = words.CURE

    def prepare(self, problem: Problem, /) -> MaintenanceFacts | None:
        times = drain_times_of(problem)
        return None if times is None else MaintenanceFacts(times)

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return words.without(snapshot)


RULE = MaintenanceRule()
