"""Which units an action may take for a preemptor, and whether those that were chosen are allowed.

Source: docs/kai-behaviour.md#reclaim, #preempt, #consolidation.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Action, Blocker
from kai_solver.fairness import (
    NEVER_STARTED_S,
    ReclaimLedger,
    RunningWork,
    eligible,
    min_runtimes_s,
)
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits
from kai_solver.planstate.eviction_units import Unit, charge_of
from kai_solver.planstate.gang_states import GangState
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import GangShape, Problem
from kai_solver.problem.charges import Charge
from kai_solver.units.shares import floor_milli

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A gang that asks for room, and what its next part costs its queue.

    ``device_milli``: thousandths of devices that the part takes at the least, rounded down (by memory: on the largest
    devices). MIG slices and replicas of time-sliced GPUs cost their queue GPUs, but take no device.
    """

    gang: GangShape
    charge: Charge
    device_milli: int

    @classmethod
    def of(cls, problem: Problem, part: AllocationUnit) -> "Preemptor":
        """The gang of ``part``, asking for it."""
        gang = problem.gangs[part.gang]
        return cls(gang, charge_of(problem, part.pods), sum(least_milli(problem, pod) for pod in part.pods))

    @property
    def queue(self) -> int:
        """Its leaf queue."""
        return self.gang.queue


def least_milli(problem: Problem, pod: int) -> int:
    """Thousandths of devices that a pod takes on any node at the least, rounded down."""
    gpu = problem.pods[pod].gpu
    if not gpu.memory_mib:
        return gpu.devices * gpu.milli
    parts = problem.shapes.parts(problem.pod_shape[pod])
    return gpu.devices * floor_milli(int(parts.min())) if len(parts) else 0


def delay_remaining_s(problem: Problem, gang: GangShape) -> float:
    """Seconds until the gang may cause victims or moves (PodGroup ``preemptionDelay``)."""
    g = gang.gang
    since = max(g.created_s, g.last_eviction_s if g.last_eviction_s is not None else g.created_s)
    return since + g.preemption_delay_s - problem.snapshot.now_s if g.preemption_delay_s > 0 else 0.0


def refuses_reclaim(state: State, preemptor: Preemptor) -> Blocker | None:
    """What denies the right to reclaim whatever the victims are; None where nothing does."""
    right = state.problem.reclaim_right(state.allocated, preemptor.queue, preemptor.charge)
    return right.refusal(state.allocated_fixed, preemptible=preemptor.gang.gang.preemptible)


class Eligibility:
    """Units that an action may take for a preemptor (`fairness.eligibility`), as masks (U,); equal masks are one array.

    Units that an optional rule never lets go are left out everywhere.
    """

    def __init__(self, state: State, pool: VictimPool) -> None:
        self.state = state
        self.pool = pool
        problem = state.problem
        gangs = problem.gang_columns
        self._queue = pool.queue_of
        started_s = gangs.started_s[pool.gang_of]
        self._work = RunningWork(
            gang=pool.gang_of,
            queue=pool.queue_of,
            priority=gangs.priority[pool.gang_of],
            preemptible=np.ones(len(pool.gang_of), dtype=np.bool_),
            may_move=pool.may_move,
            started_s=np.where(np.isnan(started_s), NEVER_STARTED_S, started_s),
            surplus=cache(partial(_are_surplus, problem, pool)),
        )
        self._masks: dict[tuple[object, ...], BoolArray] = {}
        self._same: dict[bytes, BoolArray] = {}
        self._open: dict[int, BoolArray] = {}
        self._sets: dict[int, frozenset[int]] = {}
        self._order = {queue: i for i, queue in enumerate(dict.fromkeys(self._queue.tolist()))}
        self._below: dict[int, list[int]] = {}
        for queue in self._order:
            for ancestor in problem.queues.path[queue]:
                self._below.setdefault(ancestor, []).append(queue)

    def units(self, action: Action, preemptor: Preemptor) -> frozenset[int]:
        """Units that ``action`` may take for ``preemptor``, before any test of the set as a whole."""
        mask = self.mask(action, preemptor)
        found = self._sets.get(id(mask))  # Masks are kept: nothing else gets its identity.
        if found is None:
            found = self._sets[id(mask)] = frozenset(np.flatnonzero(mask).tolist())
        return found

    def mask(self, action: Action, preemptor: Preemptor) -> BoolArray:
        """The same as a mask."""
        return self._not_held(self._by_rights(action, preemptor))

    def divisible(self, action: Action, preemptor: Preemptor) -> frozenset[int]:
        """Units of which optional rules count pods, and that ``action`` could disturb in part, if not whole."""
        divisible = self.pool.releases.divisible
        if divisible is None or not divisible.any():
            return frozenset()
        return frozenset(np.flatnonzero(self._by_rights(action, preemptor) & divisible).tolist())

    def held(self, action: Action, preemptor: Preemptor) -> tuple[Blocker, ...]:
        """What optional rules hold of the units that ``action`` could take for ``preemptor`` otherwise."""
        releases = self.pool.releases
        return releases.binding(self._by_rights(action, preemptor)) if releases.held is not None else ()

    def _by_rights(self, action: Action, preemptor: Preemptor) -> BoolArray:
        """(U,) units that the action may take as far as optional rules are not asked."""
        if action is Action.CONSOLIDATION:
            return self._consolidation(preemptor)
        if action is Action.PREEMPT:
            return self._preempt(preemptor)
        return self._reclaim(preemptor, self.reclaim_queues(preemptor))

    def _not_held(self, mask: BoolArray) -> BoolArray:
        held = self.pool.releases.held
        if held is None:
            return mask
        if id(mask) not in self._open:  # Kept by `_same`: nothing else gets its identity.
            found = mask & ~held
            self._open[id(mask)] = self._same.setdefault(found.tobytes(), found)
        return self._open[id(mask)]

    def _kept(self, key: tuple[object, ...], make: Callable[[], BoolArray]) -> BoolArray:
        found = self._masks.get(key)
        if found is None:
            made = make()
            found = self._masks[key] = self._same.setdefault(made.tobytes(), made)
        return found

    def _consolidation(self, preemptor: Preemptor) -> BoolArray:
        own = preemptor.gang.index if preemptor.gang.index in self.pool.of_gang else -1
        return self._kept(("move", own), lambda: self._eligible(Action.CONSOLIDATION, preemptor, ()))

    def _preempt(self, preemptor: Preemptor) -> BoolArray:
        gang = preemptor.gang.gang
        key = ("preempt", preemptor.queue, gang.priority, gang.never_preempts)
        return self._kept(key, lambda: self._eligible(Action.PREEMPT, preemptor, (preemptor.queue,)))

    def _eligible(self, action: Action, preemptor: Preemptor, queues: tuple[int, ...]) -> BoolArray:
        """(U,) units of the leaf ``queues`` that the action may take; consolidation takes from all."""
        problem = self.state.problem
        chosen, least_s = np.zeros(problem.queues.size, dtype=np.bool_), np.zeros(problem.queues.size)
        seconds = min_runtimes_s(problem.queues, problem.policy, action, preemptor.queue, queues)
        chosen[list(seconds)] = True
        least_s[list(seconds)] = list(seconds.values())
        found = eligible(
            action,
            preemptor.gang.index,
            preemptor.gang.gang,
            preemptor.queue,
            self._work,
            reclaimable=chosen[self._queue],
            min_runtime_s=least_s[self._queue],
            now_s=problem.snapshot.now_s,
        )
        return np.asarray(found)

    def reclaim_queues(self, preemptor: Preemptor) -> tuple[int, ...]:
        """Leaf queues from which ``preemptor`` may reclaim now: below a sibling of it or of its ancestors, or none."""
        tree = self.state.problem.queues
        right = self.state.problem.reclaim_right(self.state.allocated, preemptor.queue, preemptor.charge)
        found: list[int] = []
        for queue in tree.path[preemptor.queue]:
            parent = int(tree.parent[queue])
            for sibling in tree.children[parent] if parent >= 0 else tree.roots:
                leaves = self._below.get(sibling, ()) if sibling != queue else ()
                if leaves and right.may_look_at(leaves[0]):
                    found += leaves
        return tuple(sorted(found, key=self._order.__getitem__))

    def reclaim(self, preemptor: Preemptor, queues: tuple[int, ...]) -> BoolArray:
        """Units of ``queues`` that reclaim may take for ``preemptor``."""
        return self._not_held(self._reclaim(preemptor, queues))

    def _reclaim(self, preemptor: Preemptor, queues: tuple[int, ...]) -> BoolArray:
        return self._kept(
            ("reclaim", preemptor.queue, queues), lambda: self._eligible(Action.RECLAIM, preemptor, queues)
        )


def _are_surplus(problem: Problem, pool: VictimPool) -> BoolArray:
    """(U,) surplus of gangs that have their minimum: a gang below it has no surplus, whatever its parts have."""
    whole = {gang: _had_minimum(problem.gangs[gang]) for gang in pool.of_gang}
    return np.array([not unit.is_core and whole[unit.gang] for unit in pool.units], dtype=np.bool_)


def _had_minimum(gang: GangShape) -> bool:
    """True where the gang ran with its minimum when the cycle began."""
    running = GangState([list(leaf.active) for leaf in gang.leaves], [[] for _ in gang.leaves])
    return AllocationUnits(gang, running).is_satisfied(gang.root)


def reclaim_allowed(
    state: State,
    pool: VictimPool,
    ledger: ReclaimLedger,
    units: list[int],
    beside: Sequence[tuple[int, Charge]] = (),
) -> bool:
    """True where reclaim may take ``units`` in some order, and ``beside`` them what the leaf queues named there lose.

    ``ledger`` holds what the queues held before. Units that found another place are not charged. Which gang comes last
    is free: here the one whose last part is the largest.
    """
    problem = state.problem
    taken = [pool.units[u] for u in units if pool.has_left(u) or not problem.policy.consolidating_reclaim]
    by_gang: dict[int, list[Unit]] = {}
    for unit in taken:
        by_gang.setdefault(unit.gang, []).append(unit)
    parts_by_queue = [(problem.gangs[gang].queue, victim_parts(state, own)) for gang, own in by_gang.items()]
    parts_by_queue += [(queue, [cost]) for queue, cost in beside]
    parts_by_queue.sort(key=lambda entry: tuple(reversed(entry[1][-1])))
    queues = {problem.gangs[pool.units[u].gang].queue for u in units} | {queue for queue, _ in beside}
    return ledger.take_all(queues, ((queue, part) for queue, parts in parts_by_queue for part in parts))


def was_counted(outcome: Outcome, leaf: int) -> bool:
    """True where an earlier reclaim took victims from a levelled queue at or above ``leaf``."""
    return not outcome.losing.isdisjoint(outcome.state.problem.queues.path[leaf])


def victim_parts(state: State, units: Sequence[Unit]) -> list[Charge]:
    """What is tested together when ``units`` of one gang go: surplus pod by pod, then the core in one piece.

    KAI (``splitVictimTasks``) calls core the first ``min_member`` victims of each podset in the order of eviction,
    whatever is left of the gang: three surplus pods of a gang of four are one part.
    """
    if len(units) == 1 and len(units[0].pods) == 1:
        return [units[0].charge]
    problem = state.problem
    leaves = problem.gangs[units[0].gang].leaves
    room = [leaf.min_member for leaf in leaves]
    singles: list[Charge] = []
    core: list[int] = []
    for unit in sorted(units, key=lambda u: u.step):
        for pod in reversed(unit.pods):
            leaf = state.leaf_of[pod]
            if room[leaf] > 0:
                room[leaf] -= 1
                core.append(pod)
            else:
                singles.append(problem.charges[pod])
    return [*singles, charge_of(problem, tuple(core))] if core else singles
