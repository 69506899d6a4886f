"""All reclaims of a finished cycle once more, one after the other, as KAI would test them.

The stages choose victims for all reclaimers together, by rights from before any of them. Which victims are assigned to
which reclaim then decides whether every single one is allowed (`fairness.reclaim`).
"""

from copy import copy
from typing import Self

from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger, ReclaimRight
from kai_solver.planstate.eligibility import reclaim_allowed
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge, sum_of

_EVICTING = (Action.RECLAIM, Action.PREEMPT)


def reclaims_hold(outcome: Outcome) -> bool:
    """True where every reclaim is allowed in the state that the admissions before it left."""
    if outcome.pool is None or all(a.action is not Action.RECLAIM for a in outcome.admissions):
        return True
    replay = ReclaimReplay(outcome, outcome.pool)
    return all(replay.admit(admission) for admission in outcome.admissions)


class ReclaimReplay:
    """What every queue holds as the admissions follow each other."""

    def __init__(self, outcome: Outcome, pool: VictimPool) -> None:
        self.state, self.pool = outcome.state, pool
        self.problem = outcome.state.problem
        self.allocated = [list(row) for row in self.problem.allocated]
        self.fixed = [list(row) for row in self.problem.allocated_fixed]
        self.gone: set[int] = set()
        self._charges: dict[int, tuple[Charge, Charge]] = {}
        """By the first pod of an admission."""

    def copy(self) -> Self:
        """What the queues hold now, on its own."""
        other = copy(self)
        other.allocated, other.fixed = [list(row) for row in self.allocated], [list(row) for row in self.fixed]
        other.gone = set(self.gone)
        return other

    def admit(self, admission: Admission) -> bool:
        """Book the admission and its victims; False where it is a reclaim that is not allowed."""
        if admission.action is Action.RECLAIM and admission.units and not self._is_allowed(admission):
            return False
        self.book(admission)
        return True

    def book(self, admission: Admission) -> None:
        """What the admission's queue gets, and those of its victims lose."""
        self.receive(admission)
        fresh = [u for u in admission.units if u not in self.gone and self.pool.has_left(u)]
        for unit in fresh if admission.action in _EVICTING else ():
            self.add(self._queue_of(unit), self._lost(unit), -1)
            self.gone.add(unit)

    def receive(self, admission: Admission, sign: int = 1) -> None:
        """What the admission's queue gets; with a ``sign`` of -1 it is taken back."""
        gang = self.problem.gangs[admission.allocation_unit.gang]
        self.add(gang.queue, self.charge_of(admission), sign, is_fixed=not gang.gang.preemptible)

    def charge_of(self, admission: Admission) -> Charge:
        """What the admission costs its queue at its places."""
        return self._charged(admission)[0]

    def asked_by(self, admission: Admission) -> Charge:
        """What its rights to reclaim are asked for: requests by GPU memory count on the smallest devices."""
        return self._charged(admission)[1]

    def right_of(self, admission: Admission) -> ReclaimRight | None:
        """The right of a reclaim by what the queues hold now; None if it has none, whatever the victims are."""
        gang = self.problem.gangs[admission.allocation_unit.gang]
        right = self.problem.reclaim_right(self.allocated, gang.queue, self.asked_by(admission))
        return right if right.refusal(self.fixed, preemptible=gang.gang.preemptible) is None else None

    def _charged(self, admission: Admission) -> tuple[Charge, Charge]:
        pods = admission.allocation_unit.pods
        found = self._charges.get(pods[0])
        if found is None:
            charged = sum_of(self.state.places[pod].charge for pod in pods)
            found = self._charges[pods[0]] = charged, charge_of(self.problem, pods)
        return found

    def _is_allowed(self, admission: Admission) -> bool:
        """With victims that it shares with an earlier one still in their places."""
        shared = [unit for unit in admission.units if unit in self.gone]
        for unit in shared:
            self.add(self._queue_of(unit), self._lost(unit), +1)
        right = self.right_of(admission)
        ledger = None if right is None else ReclaimLedger(right)
        for unit in shared:
            self.add(self._queue_of(unit), self._lost(unit), -1)
        return ledger is not None and reclaim_allowed(self.state, self.pool, ledger, list(admission.units))

    def _lost(self, unit: int) -> Charge:
        """What the queue of a unit that has left loses: some of its pods may have been spared."""
        own, gone = self.pool.units[unit], self.state.gone
        if all(pod in gone for pod in own.pods):
            return own.charge
        return sum_of(self.problem.charges[pod] for pod in own.pods if pod in gone)

    def _queue_of(self, unit: int) -> int:
        return self.problem.gangs[self.pool.units[unit].gang].queue

    def add(self, leaf: int, charge: Charge, sign: int, *, is_fixed: bool = False) -> None:
        """``sign`` times ``charge`` for a leaf queue and all above it."""
        cpu, memory, gpu = charge
        for table in (self.allocated, self.fixed) if is_fixed else (self.allocated,):
            for queue in self.problem.queues.path[leaf]:
                row = table[queue]
                row[0] += sign * cpu
                row[1] += sign * memory
                row[2] += sign * gpu
