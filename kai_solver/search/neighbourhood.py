"""A neighbourhood: some nodes, and the gangs that are wholly on them. All that is elsewhere keeps its place.

A question about it is the joint model of the cycle cut down to these nodes, so its size does not grow with the cluster.
Gangs come whole: one that has a pod outside keeps all its places.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from kai_solver.domain import SolverModel
from kai_solver.model.joint import Mover
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.search.joint_input import BoolArray, IntArray, JointModelInput

SMALLEST = 50
"""Nodes from which neighbourhoods are asked: the whole of a smaller cluster is a small question itself."""


def is_local(problem: Problem, model: SolverModel) -> bool:
    """True where ``model`` asks by neighbourhoods, and the cluster has some."""
    return model.search.neighbourhoods > 0 and len(problem.nodes) >= SMALLEST


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """``nodes`` (N,) that belong to it; ``admissions`` (numbers) and ``units`` that are wholly on them."""

    nodes: BoolArray
    admissions: tuple[int, ...]
    units: frozenset[int]


class Census:
    """Places of all pods at one moment of a cycle, to tell what is wholly on some nodes."""

    def __init__(self, outcome: Outcome, may_go: BoolArray) -> None:
        """``may_go``: (U,) units of the pool that may be disturbed; the others stay where they are."""
        self.outcome = outcome
        self.pool: VictimPool | None = outcome.pool
        self.may_go = may_go
        problem, places = outcome.state.problem, outcome.state.places
        units = self.pool.units if self.pool is not None else []
        origin = problem.pod_node
        pairs = [(u.gang, origin[pod]) for u in units if may_go[u.index] for pod in u.pods]
        pairs += [(problem.pod_gang[pod], place.node) for pod, place in places.items()]
        table: IntArray = np.array(pairs, dtype=np.int64).reshape(-1, 2)
        self._gang, self._node = table[:, 0], table[:, 1]

    def on(self, nodes: BoolArray) -> Neighbourhood:
        """The neighbourhood of ``nodes``."""
        outside = np.unique(self._gang[~nodes[self._node]])
        inside = set(np.setdiff1d(self._gang, outside).tolist())
        admissions = tuple(n for n, a in enumerate(self.outcome.admissions) if a.allocation_unit.gang in inside)
        of_gang: Mapping[int, Sequence[int]] = self.pool.of_gang if self.pool is not None else {}
        units = frozenset(u for gang in inside for u in of_gang.get(gang, ()) if self.may_go[u])
        return Neighbourhood(nodes, admissions, units)


class LocalModelInput(JointModelInput):
    """Builds joint problems on a neighbourhood: what is placed and not of it counts as fixed."""

    def __init__(self, outcome: Outcome, hood: Neighbourhood) -> None:
        super().__init__(outcome)
        self.hood = hood
        self.chosen: list[Admission] = [outcome.admissions[number] for number in hood.admissions]

    def lifted(self, units: frozenset[int]) -> tuple[IntArray, IntArray]:
        """As of the whole: nothing is free beyond the neighbourhood."""
        found = self._lifts.get(units)
        if found is None:
            mark = self.state.mark()
            self._lift_all(units)
            nodes = self.hood.nodes
            free = np.where(nodes, self.state.future, 0)
            device_free = np.where(nodes[:, None], self.state.device_future, 0)
            self.state.rollback(mark)
            found = self._lifts[units] = (free, device_free)
        return found

    def _lift_all(self, units: Iterable[int]) -> None:
        pool, state = self.outcome.pool, self.state
        for pod in (p for a in self.chosen for p in a.allocation_unit.pods):
            if pod in state.places:
                state.lift(pod)
        for pod in (p for u in units for p in pool.units[u].pods) if pool is not None else ():
            if pod in state.places:
                state.lift(pod)
            if pod not in state.gone:
                state.evict(pod)

    def _lifted_grants(self, movers: Iterable[Mover]) -> dict[str, Any]:
        if not self.state.granting:
            return {}
        mark = self.state.mark()
        self._lift_all(mover.unit for mover in movers)
        free = {name: rule.free() for name, rule in self.state.granting.items()}
        self.state.rollback(mark)
        return free
