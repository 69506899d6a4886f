"""Who could be disturbed for those that were admitted, by the numbers from before the disruptive rungs."""

from dataclasses import dataclass, replace

from kai_solver.domain import Rung
from kai_solver.fairness import surplus as surplus_of
from kai_solver.formulation.joint import QueueSurplus
from kai_solver.greedy import Admission, Outcome, State, VictimPool
from kai_solver.greedy.rules import Aggressor, Eligibility

NOTHING: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Rights:
    """What the stages may change.

    Attributes
    ----------
    movable
        Units that may be disturbed at all.
    by_rung
        Units that each rung may evict for any gang that it admitted: no core of a gang that got places itself.
    takers
        By admission, the units that it may take.
    surplus
        How much reclaim may take from each levelled queue: the least that any of the reclaimers allows, but never
        less than what was in fact taken, which passed the rules one by one.
    """

    movable: frozenset[int]
    by_rung: dict[Rung, frozenset[int]]
    takers: tuple[frozenset[int], ...]
    surplus: tuple[QueueSurplus, ...]


def rights_of(outcome: Outcome) -> Rights:
    """Rights of all that were admitted."""
    pool = outcome.pool
    if pool is None:
        return Rights(NOTHING, {}, (NOTHING,) * len(outcome.admissions), ())
    survey = _Survey(_before_disruption(outcome), pool)
    takers = tuple(survey.add(admission) for admission in outcome.admissions)
    served = outcome.has_admitted()
    cores = frozenset(u.index for u in pool.units if u.is_core and u.gang in served)
    return Rights(
        movable=NOTHING.union(*survey.taken.values()),
        by_rung={rung: frozenset(units) - cores for rung, units in survey.taken.items()},
        takers=takers,
        surplus=tuple(_at_least_taken(outcome, s) for s in survey.surplus.values()),
    )


def reclaimable(state: State, eligibility: Eligibility, who: Aggressor) -> list[QueueSurplus]:
    """What ``who`` may reclaim of each levelled queue, by the numbers of ``state``."""
    problem, tree = state.problem, state.problem.queues
    found: dict[int, QueueSurplus] = {}
    for leaf in eligibility.reclaim_queues(who):
        s = surplus_of(tree, problem.allocatable, state.allocated, who.queue, leaf, who.charge)
        leaves = frozenset(q for q, path in enumerate(tree.path) if s.queue in path and tree.is_leaf[q])
        found[s.queue] = QueueSurplus(s.queue, leaves, s.amounts)
    return list(found.values())


class _Survey:
    """Goes over the admissions; those who may take the same are asked for once."""

    def __init__(self, before: State, pool: VictimPool) -> None:
        self.taken: dict[Rung, set[int]] = {}
        self.surplus: dict[int, QueueSurplus] = {}
        self._before = before
        self._eligibility = Eligibility(before, pool)
        self._known: dict[tuple[object, ...], frozenset[int]] = {}

    def add(self, admission: Admission) -> frozenset[int]:
        """Units that ``admission`` may take."""
        rung = admission.rung
        if rung is Rung.ALLOCATE:
            return NOTHING
        who = Aggressor.of(self._before.problem, admission.chunk)
        gang = who.gang.gang
        own = who.gang.index if rung is Rung.CONSOLIDATION else -1
        key = (rung, who.queue, who.charge, gang.priority, gang.never_preempts, own)
        if key not in self._known:
            self._known[key] = self._eligibility.units(rung, who)
            self.taken.setdefault(rung, set()).update(self._known[key])
            if rung is Rung.RECLAIM:
                self._limit_surplus(who)
        self.taken[rung].update(admission.units)
        return self._known[key]

    def _limit_surplus(self, who: Aggressor) -> None:
        for found in reclaimable(self._before, self._eligibility, who):
            known, new = self.surplus.get(found.queue, found).amounts, found.amounts
            least = (min(known[0], new[0]), min(known[1], new[1]), min(known[2], new[2]))
            self.surplus[found.queue] = replace(found, amounts=least)


def _before_disruption(outcome: Outcome) -> State:
    """Queue numbers with the victims back and only undisturbing admissions in."""
    before = State(outcome.state.problem)
    for admission in outcome.admissions:
        if admission.rung is Rung.ALLOCATE:
            for pod in admission.chunk.pods:
                place = outcome.state.places[pod]
                for queue in before.problem.queues.path[before.problem.gangs[admission.chunk.gang].queue]:
                    row = before.allocated[queue]
                    before.allocated[queue] = [a + c for a, c in zip(row, place.charge, strict=True)]
    return before


def _at_least_taken(outcome: Outcome, surplus: QueueSurplus) -> QueueSurplus:
    pool, gangs = outcome.pool, outcome.state.problem.gangs
    reclaimed = [u for a in outcome.admissions if a.rung is Rung.RECLAIM for u in a.units]
    units = [pool.units[u] for u in reclaimed if pool.has_left(u)] if pool is not None else []
    taken = [u.charge for u in units if gangs[u.gang].queue in surplus.leaves]
    amounts = tuple(max(a, sum(c[r] for c in taken)) for r, a in enumerate(surplus.amounts))
    return replace(surplus, amounts=(amounts[0], amounts[1], amounts[2]))
