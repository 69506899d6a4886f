"""Room for those whose answer is unknown, by neighbourhoods: a few nodes where it could be made, asked with CP-SAT.

The whole question may be too large, or too hard for the time that is left. About a few nodes it is small; a "yes" is as
good as any, a "no" says nothing. Gangs come in policy order, and no admitted gang loses its right to run.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.caps import over_capacity
from kai_solver.actions.disrupt import search_of
from kai_solver.actions.gang_order import GangOrder
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.model.joint import IntArray
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits, Part
from kai_solver.planstate.eligibility import Preemptor
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.reasons.refusals import within_delay
from kai_solver.search.joint_input import BoolArray
from kai_solver.search.neighbourhood import Census, LocalModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.question import Question
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import CPU, GPU

FloatArray = NDArray[np.float64]

ROOM = 3.0
"""GPUs (cores, for work without GPUs) that could get free in a neighbourhood, as a multiple of those asked for."""
FEWEST, MOST = 6, 80
"""Nodes of a neighbourhood."""
PLACED, MOVABLE = 0.3, 0.3
"""What a GPU counts whose pod must have another place then: one placed in this cycle, one that may only be moved."""
SPREAD = 0.3
"""Standard deviation of the logarithm of the noise on a node's room, so that each round asks about others."""
ROUNDS = 3


class LocalAdmission:
    """Asks for the gangs that stayed pending without a proof."""

    def __init__(self, solver_client: SolverClient, outcome: Outcome, actions: Iterable[Action]) -> None:
        self.solver_client = solver_client
        self.oracle = SolverActions(solver_client)
        self.outcome = outcome
        self.state = outcome.state
        self.problem = outcome.state.problem
        self.actions = tuple(action for action in actions if action is not Action.STALE)
        self.asked = self.admitted = 0
        self._rng = np.random.default_rng(solver_client.seed)
        self._gang_units = [
            AllocationUnits(gang, state, self.problem.pod_shape)
            for gang, state in zip(self.problem.gangs, self.state.gangs, strict=True)
        ]
        self._fits = FitTable(self.state)

    def run(self, on_better: Callable[[int, int], None] | None = None) -> bool:
        """Ask for every gang, some rounds or until the time ends; True if any was admitted."""
        for _ in range(ROUNDS):
            waiting = self._waiting()
            gang_order = GangOrder(self.state, self._gang_units, waiting)
            searches: dict[Action, VictimSearch] = {
                action: self._search_of(action, waiting) for action in self.actions if action is not Action.ALLOCATE
            }
            while not self.solver_client.is_out_of_time and (next_gang := gang_order.pop()) is not None:
                if self._admit(next_gang.allocation_unit, searches):
                    self.admitted += 1
                    gang_order.refresh()
                    if on_better is not None:
                        on_better(self.asked, self.admitted)
        return self.admitted > 0

    def _search_of(self, action: Action, waiting: Sequence[int]) -> VictimSearch:
        return search_of(action, self.outcome, self._fits, self._gang_units, waiting)

    def _waiting(self) -> list[int]:
        """Gangs that wait, and that some action refused without a proof."""
        admitted, refusals = self.outcome.has_admitted(), self.outcome.refusals
        return [
            gang
            for gang, by_action in refusals.items()
            if gang not in admitted
            and self._gang_units[gang].waits()
            and any(refusal.proof.state != "proven" for refusal in by_action.values())
        ]

    def _admit(self, allocation_unit: AllocationUnit, searches: Mapping[Action, VictimSearch]) -> bool:
        """Ask action by action, where that action's answer was no proof."""
        for action in self.actions:
            refusal = self.outcome.refusals[allocation_unit.gang].get(action)
            if refusal is None or refusal.proof.state == "proven" or self.solver_client.is_out_of_time:
                continue
            if self._is_allowed(allocation_unit, searches.get(action)) and self._ask(
                allocation_unit, action, searches.get(action)
            ):
                return True
        return False

    def _is_allowed(self, allocation_unit: AllocationUnit, victim_search: VictimSearch | None) -> bool:
        """What needs no search, by the numbers of this moment: limits, the delay, the rules of the action."""
        preemptor = Preemptor.of(self.problem, allocation_unit)
        if victim_search is None:
            return over_capacity(self.state, allocation_unit) is None
        if victim_search.over_capacity(allocation_unit) is not None:
            return False
        return within_delay(self.problem, preemptor.gang) is None and victim_search.refusal(preemptor) is None

    def _ask(self, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch | None) -> bool:
        eligible = self._eligible(allocation_unit, action, victim_search)
        nodes = self._nodes(allocation_unit, action, eligible)
        if not nodes.any():
            return False
        hood = Census(self.outcome, eligible | self._disturbed()).on(nodes)
        question = Question(
            LocalModelInput(self.outcome, hood), self.outcome, allocation_unit, action, victim_search, hood
        )
        self.asked += 1
        answer = self.oracle.seat(question)
        if answer is None:
            return False
        self.outcome.admit(Admission(allocation_unit, action, answer.units, by_solver=True))
        return True

    def _eligible(
        self, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch | None
    ) -> BoolArray:
        """(U,) True for units that may be disturbed for ``allocation_unit``."""
        if victim_search is not None:
            return victim_search.eligibility.mask(action, Preemptor.of(self.problem, allocation_unit))
        return np.zeros(len(self.outcome.pool.units) if self.outcome.pool is not None else 0, dtype=np.bool_)

    def _disturbed(self) -> BoolArray:
        pool = self.outcome.pool
        units = range(len(pool.units)) if pool is not None else range(0)
        return np.array([pool is not None and pool.is_disturbed(unit) for unit in units], dtype=np.bool_)

    # -- nodes -----------------------------------------------------------------------------------------------------

    def _nodes(self, allocation_unit: AllocationUnit, action: Action, eligible: BoolArray) -> BoolArray:
        """(N,) nodes on which most room could be made."""
        resource = GPU if any(self.problem.charges[pod][GPU] for pod in allocation_unit.pods) else CPU
        room = self._room(action, eligible, resource) * np.exp(self._rng.normal(0.0, SPREAD, len(self.problem.nodes)))
        able = np.zeros(len(room), dtype=np.bool_)
        for shape in {self.problem.pod_shape[pod] for pod in allocation_unit.pods}:
            able |= self.problem.shapes.mask(shape)
        room[~able] = 0.0
        need = ROOM * sum(self.problem.charges[pod][resource] for pod in allocation_unit.pods)
        chosen = np.zeros(len(room), dtype=np.bool_)
        domain_of = self._domain_of(allocation_unit.root)
        if domain_of is not None and (domain_of >= 0).any():
            inside = domain_of >= 0
            chosen = domain_of == int(np.argmax(np.bincount(domain_of[inside], weights=room[inside])))
        for node in np.argsort(-room, kind="stable").tolist():
            count = int(chosen.sum())
            if room[node] <= 0 or count >= MOST or (count >= FEWEST and float(room[chosen].sum()) >= need):
                break
            chosen[node] = True
        return chosen

    def _room(self, action: Action, eligible: BoolArray, resource: int) -> FloatArray:
        """(N,) thousandths of GPUs or cores that are free, or could be at some cost."""
        problem, pool = self.problem, self.outcome.pool
        free = self.state.gpu_free if resource == GPU else np.maximum(self.state.future[CPU], 0)
        room: FloatArray = free.astype(np.float64)
        pods = [pod for unit in np.flatnonzero(eligible).tolist() for pod in pool.units[unit].pods] if pool else []
        amounts = np.array([problem.charges[pod][resource] for pod in pods], dtype=np.float64)
        share = MOVABLE if action is Action.CONSOLIDATION else 1.0
        np.add.at(room, np.array([problem.pod_node[pod] for pod in pods], dtype=np.int64), share * amounts)
        for place in self.state.places.values():
            room[place.node] += PLACED * place.charge[resource]
        return room

    def _domain_of(self, part: Part) -> IntArray | None:
        """(N,) domain of each node at the outermost level that ``part`` asks for; None where it asks for none."""
        topology = part.topology
        if topology is None or not topology.required:
            return self._domain_of(part.parts[0]) if part.parts else None
        tree = self.problem.domains.get(topology.topology)
        level = tree.level_index(topology.required) if tree is not None else None
        return None if tree is None or level is None else tree.domain_of[level].astype(np.int64)
