"""All reclaims of a finished cycle once more, one after the other, as they would be judged by the plan.

The stages choose victims for all reclaimers together, by rights from before any of them. Who goes for whom then decides
whether every single one was allowed (reference 3.5).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from kai_solver.domain import Rung
from kai_solver.fairness import ReclaimLedger, may_reclaim
from kai_solver.greedy.outcome import Admission, Outcome
from kai_solver.greedy.rules import reclaim_allowed, victim_chunks
from kai_solver.greedy.victims import VictimPool
from kai_solver.reduction.charges import Charge, sum_of

_EVICTING = (Rung.RECLAIM, Rung.PREEMPT)


def reclaims_hold(outcome: Outcome) -> bool:
    """True where every reclaim is allowed in the state that the admissions before it left."""
    if outcome.pool is None or all(a.rung is not Rung.RECLAIM for a in outcome.admissions):
        return True
    books = _Books(outcome, outcome.pool)
    return all(books.admit(admission) for admission in outcome.admissions)


@dataclass(frozen=True, slots=True)
class Toll:
    """Units that go or move together, for one of the admissions ``able`` (by number)."""

    units: tuple[int, ...]
    able: frozenset[int]


def in_turn(outcome: Outcome, tolls: Iterable[Toll]) -> tuple[list[Admission], list[Toll]]:
    """Each toll for the first admission that may take it; what admissions have stays theirs. And tolls for nobody.

    Early is good: the victim's queue has lost little by then, and the taker's has got little.
    """
    left = list(tolls)
    if outcome.pool is None:
        return outcome.admissions, left
    books = _Books(outcome, outcome.pool)
    admissions: list[Admission] = []
    for number, admission in enumerate(outcome.admissions):
        mine = books.most(number, admission, [toll for toll in left if number in toll.able])
        left = [toll for toll in left if toll not in mine]
        admissions.append(replace(admission, units=(*admission.units, *(u for toll in mine for u in toll.units))))
        books.book(admissions[-1])
    return admissions, left


@dataclass(frozen=True, slots=True)
class _Parcel:
    """A toll, its leaf queue, what is tested together of it (nothing if it finds another place), if it can wait."""

    toll: Toll
    queue: int
    chunks: tuple[Charge, ...]
    can_wait: bool


def _turn(parcel: _Parcel) -> tuple[bool, Charge]:
    """Those whom nobody later may take first; the largest chunk last, which may pass the line."""
    cpu, memory, gpu = parcel.chunks[-1] if parcel.chunks else (0, 0, 0)
    return parcel.can_wait, (gpu, memory, cpu)


def _takes(ledger: ReclaimLedger, parcel: _Parcel) -> bool:
    for chunk in parcel.chunks:
        if not ledger.allows(parcel.queue, chunk):
            return False
        ledger.take(parcel.queue, chunk)
    return True


class _Books:
    """What every queue holds as the admissions follow each other."""

    def __init__(self, outcome: Outcome, pool: VictimPool) -> None:
        self.state, self.pool = outcome.state, pool
        self.problem = outcome.state.problem
        self.allocated = [list(row) for row in self.problem.allocated]
        self.fixed = [list(row) for row in self.problem.allocated_fixed]
        self.gone: set[int] = set()

    def admit(self, admission: Admission) -> bool:
        """Book the admission and its victims; False where it is a reclaim that is not allowed."""
        if admission.rung is Rung.RECLAIM and admission.units and not self._is_allowed(admission):
            return False
        self.book(admission)
        return True

    def book(self, admission: Admission) -> None:
        """What the admission's queue gets, and those of its victims lose."""
        gang = self.problem.gangs[admission.chunk.gang]
        self._add(gang.queue, self._charge_of(admission), +1, is_fixed=not gang.gang.preemptible)
        fresh = [u for u in admission.units if u not in self.gone and self.pool.has_left(u)]
        for unit in fresh if admission.rung in _EVICTING else ():
            self._add(self._queue_of(unit), self.pool.units[unit].charge, -1)
            self.gone.add(unit)

    def most(self, number: int, admission: Admission, tolls: list[Toll]) -> list[Toll]:
        """Of ``tolls`` those that the admission may take together, if it is a reclaim; any other may take all."""
        if admission.rung is not Rung.RECLAIM or not tolls:
            return tolls
        gang, charge, tree = self.problem.gangs[admission.chunk.gang], self._charge_of(admission), self.problem.queues
        shares, is_free = self.problem.share, gang.gang.preemptible
        if may_reclaim(tree, shares, self.allocated, self.fixed, gang.queue, charge, preemptible=is_free) is not None:
            return []
        parcels = sorted((self._parcel(toll, number) for toll in tolls), key=_turn)
        while refused := self._refused(gang.queue, charge, parcels):
            parcels = [parcel for parcel in parcels if parcel not in refused]
        return [parcel.toll for parcel in parcels]

    def _parcel(self, toll: Toll, number: int) -> _Parcel:
        units = [self.pool.units[u] for u in toll.units]
        is_charged = self.pool.has_left(toll.units[0]) or not self.problem.policy.consolidating_reclaim
        chunks = victim_chunks(self.state, units) if is_charged else ()
        return _Parcel(toll, self._queue_of(toll.units[0]), tuple(chunks), max(toll.able) > number)

    def _refused(self, leaf: int, charge: Charge, parcels: list[_Parcel]) -> list[_Parcel]:
        """Parcels that are in the way of a reclaim by ``leaf`` of them all; none where it is allowed."""
        problem = self.problem
        ledger = ReclaimLedger(problem.queues, problem.share, problem.allocatable, self.allocated, leaf, charge)
        refused = [parcel for parcel in parcels if not ledger.may_look_at(parcel.queue)]
        if not refused:
            refused = [parcel for parcel in parcels if not _takes(ledger, parcel)]
        if not refused:
            fuller = ledger.fuller_than(problem.policy.saturation_multiplier)
            path = problem.queues.path
            refused = [p for p in parcels if p.chunks and not fuller.isdisjoint(path[p.queue])][-1:]
        return refused

    def _charge_of(self, admission: Admission) -> Charge:
        return sum_of(self.state.places[pod].charge for pod in admission.chunk.pods)

    def _is_allowed(self, admission: Admission) -> bool:
        """With victims that it shares with an earlier one still in their places."""
        charge = self._charge_of(admission)
        problem, gang = self.problem, self.problem.gangs[admission.chunk.gang]
        shared = [unit for unit in admission.units if unit in self.gone]
        for unit in shared:
            self._add(self._queue_of(unit), self.pool.units[unit].charge, +1)
        tree, share = problem.queues, problem.share
        preemptible = gang.gang.preemptible
        refusal = may_reclaim(tree, share, self.allocated, self.fixed, gang.queue, charge, preemptible=preemptible)
        ledger = ReclaimLedger(tree, share, problem.allocatable, self.allocated, gang.queue, charge)
        for unit in shared:
            self._add(self._queue_of(unit), self.pool.units[unit].charge, -1)
        return refusal is None and reclaim_allowed(self.state, self.pool, ledger, list(admission.units))

    def _queue_of(self, unit: int) -> int:
        return self.problem.gangs[self.pool.units[unit].gang].queue

    def _add(self, leaf: int, charge: Charge, sign: int, *, is_fixed: bool = False) -> None:
        for queue in self.problem.queues.path[leaf]:
            for table in (self.allocated, self.fixed) if is_fixed else (self.allocated,):
                table[queue] = [held + sign * amount for held, amount in zip(table[queue], charge, strict=True)]
