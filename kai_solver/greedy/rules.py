"""Who may be disturbed for whom, and whether what was chosen is allowed (reference 3.5 to 3.7)."""

from dataclasses import dataclass

from kai_solver.domain import Blocker, Rung
from kai_solver.fairness import (
    ReclaimLedger,
    levelled,
    may_reclaim,
    preempt_min_runtime_s,
    protected_until_s,
    reclaim_min_runtime_s,
    victim_queue_eligible,
)
from kai_solver.greedy.chunks import Chunk, Chunker
from kai_solver.greedy.outcome import Outcome
from kai_solver.greedy.state import GangState, State
from kai_solver.greedy.units import Unit, charge_of, least_charge_of
from kai_solver.greedy.victims import VictimPool
from kai_solver.reduction import GangShape, Problem
from kai_solver.reduction.charges import Charge
from kai_solver.units import GPU


@dataclass(frozen=True, slots=True)
class Aggressor:
    """A gang that asks for room, and what its next chunk costs its queue.

    ``device_milli``: thousandths of devices that the chunk takes at the least (by memory: on the largest devices). MIG
    slices and replicas of time-sliced GPUs cost their queue GPUs, but take no device.
    """

    gang: GangShape
    charge: Charge
    device_milli: int

    @classmethod
    def of(cls, problem: Problem, chunk: Chunk) -> "Aggressor":
        """The gang of ``chunk``, asking for it."""
        gang = problem.gangs[chunk.gang]
        beside = sum(problem.pods[pod].quota_gpu_milli for pod in chunk.pods)
        return cls(gang, charge_of(problem, chunk.pods), least_charge_of(problem, chunk.pods)[GPU] - beside)

    @property
    def queue(self) -> int:
        """Its leaf queue."""
        return self.gang.queue


def delay_remaining_s(problem: Problem, gang: GangShape) -> float:
    """Seconds until the gang may cause victims or moves (PodGroup ``preemptionDelay``)."""
    g = gang.gang
    since = max(g.created_s, g.last_eviction_s if g.last_eviction_s is not None else g.created_s)
    return since + g.preemption_delay_s - problem.snapshot.now_s if g.preemption_delay_s > 0 else 0.0


def refuses_reclaim(state: State, who: Aggressor) -> Blocker | None:
    """What forbids the queue to reclaim at all, None where nothing does."""
    problem = state.problem
    return may_reclaim(
        problem.queues,
        problem.share,
        state.allocated,
        state.allocated_fixed,
        who.queue,
        who.charge,
        preemptible=who.gang.gang.preemptible,
    )


class Eligibility:
    """Sets of units that a rung may take for an aggressor; equal questions get the same set object."""

    def __init__(self, state: State, pool: VictimPool) -> None:
        self.state = state
        self.pool = pool
        self._sets: dict[tuple[object, ...], frozenset[int]] = {}
        self._by_queue: dict[int, list[int]] = {}
        for gang in pool.of_gang:
            self._by_queue.setdefault(state.problem.gangs[gang].queue, []).append(gang)

    def units(self, rung: Rung, who: Aggressor) -> frozenset[int]:
        """Units that ``rung`` may take for ``who``, before any test of the set as a whole."""
        if rung is Rung.CONSOLIDATION:
            return self._consolidation(who)
        if rung is Rung.PREEMPT:
            return self._preempt(who)
        return self.reclaim(who, self.reclaim_queues(who))

    def _consolidation(self, who: Aggressor) -> frozenset[int]:
        own = tuple(self.pool.of_gang.get(who.gang.index, ()))
        key = ("move", own)
        if key not in self._sets:
            self._sets[key] = frozenset(u.index for u in self.pool.units if u.index not in own)
        return self._sets[key]

    def _preempt(self, who: Aggressor) -> frozenset[int]:
        problem, gang = self.state.problem, who.gang.gang
        key = ("preempt", who.queue, gang.priority, gang.never_preempts)
        if key not in self._sets:
            units: list[int] = []
            for victim in self._by_queue.get(who.queue, ()) if not gang.never_preempts else ():
                if problem.gangs[victim].gang.priority < gang.priority:
                    least = preempt_min_runtime_s(problem.queues, problem.policy, who.queue)
                    units.extend(self._unprotected(victim, least))
            self._sets[key] = frozenset(units)
        return self._sets[key]

    def reclaim_queues(self, who: Aggressor) -> tuple[int, ...]:
        """Leaf queues from which ``who`` may reclaim now."""
        problem, state = self.state.problem, self.state
        return tuple(
            queue
            for queue in self._by_queue
            if queue != who.queue
            and victim_queue_eligible(
                problem.queues,
                problem.allocatable,
                state.allocated,
                who.queue,
                queue,
                who.charge,
            )
        )

    def reclaim(self, who: Aggressor, queues: tuple[int, ...]) -> frozenset[int]:
        """Units of ``queues`` that reclaim may take for ``who``."""
        problem = self.state.problem
        key = ("reclaim", who.queue, queues)
        if key not in self._sets:
            units: list[int] = []
            for queue in queues:
                least = reclaim_min_runtime_s(problem.queues, problem.policy, who.queue, queue)
                for victim in self._by_queue[queue]:
                    units.extend(self._unprotected(victim, least))
            self._sets[key] = frozenset(units)
        return self._sets[key]

    def _unprotected(self, gang: int, min_runtime_s: float) -> list[int]:
        """Units of ``gang``; only its surplus while its minimum run time has not passed."""
        problem = self.state.problem
        started = problem.gangs[gang].gang.last_start_s
        units = self.pool.of_gang[gang]
        if protected_until_s(started, min_runtime_s) > problem.snapshot.now_s:
            # Who is short of its minimum has no surplus, whatever its parts have.
            return [u for u in units if not self.pool.units[u].is_core] if self._had_minimum(gang) else []
        return units

    def _had_minimum(self, gang: int) -> bool:
        """True where the gang ran with its minimum when the cycle began."""
        shape = self.state.problem.gangs[gang]
        running = GangState([list(leaf.active) for leaf in shape.leaves], [[] for _ in shape.leaves])
        return Chunker(shape, running).is_satisfied(shape.root)


def reclaim_allowed(state: State, pool: VictimPool, ledger: ReclaimLedger, units: list[int]) -> bool:
    """True where taking ``units`` is fair at every step.

    ``ledger`` holds the queues' numbers from before the question. Units that found another place are not charged. What
    is tested is the chunk (reference 3.5); which gang comes last is free, so the one whose last chunk is the largest.
    """
    problem = state.problem
    taken = [pool.units[u] for u in units if pool.has_left(u) or not problem.policy.consolidating_reclaim]
    by_gang: dict[int, list[Unit]] = {}
    for unit in taken:
        by_gang.setdefault(unit.gang, []).append(unit)
    chunked = [(problem.gangs[gang].queue, victim_chunks(state, own)) for gang, own in by_gang.items()]
    chunked.sort(key=lambda entry: tuple(reversed(entry[1][-1])))
    if not all(ledger.may_look_at(queue) for queue in {problem.gangs[pool.units[u].gang].queue for u in units}):
        return False
    for queue, chunks in chunked:
        for chunk in chunks:
            if not ledger.allows(queue, chunk):
                return False
            ledger.take(queue, chunk)
    return ledger.saturation_ok(problem.policy.saturation_multiplier)


def was_counted(outcome: Outcome, leaf: int) -> bool:
    """True where an earlier reclaim took victims by right of what a queue held to which ``leaf`` belongs."""
    problem, pool = outcome.state.problem, outcome.pool
    if pool is None:
        return False
    for admission in outcome.admissions:
        if admission.rung is Rung.RECLAIM:
            mine = problem.gangs[admission.chunk.gang].queue
            payers = {problem.gangs[pool.units[u].gang].queue for u in admission.units}
            if any(levelled(problem.queues, mine, payer)[1] in problem.queues.path[leaf] for payer in payers):
                return True
    return False


def victim_chunks(state: State, units: list[Unit]) -> list[Charge]:
    """What is tested together when ``units`` of one gang go: surplus pod by pod, then the core in one piece.

    KAI (``splitVictimTasks``) calls core the first ``min_member`` victims of each podset in the order of eviction,
    whatever is left of the gang: three surplus pods of a gang of four are one chunk.
    """
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
