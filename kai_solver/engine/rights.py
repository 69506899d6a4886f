"""Who could be disturbed for those that were admitted, by the numbers from before the disruptive rungs."""

from dataclasses import dataclass

from kai_solver.domain import Rung
from kai_solver.fairness import surplus as surplus_of
from kai_solver.formulation.joint import QueueSurplus
from kai_solver.greedy import Outcome
from kai_solver.greedy.rules import Aggressor, Eligibility
from kai_solver.greedy.state import State

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
    before = _before_disruption(outcome)
    eligibility = Eligibility(before, pool)
    known: dict[tuple[object, ...], frozenset[int]] = {}
    taken: dict[Rung, set[int]] = {}
    takers: list[frozenset[int]] = []
    surplus: dict[int, QueueSurplus] = {}
    served = outcome.has_admitted()
    cores = frozenset(u.index for u in pool.units if u.is_core and u.gang in served)
    for admission in outcome.admissions:
        if admission.rung is Rung.ALLOCATE:
            takers.append(NOTHING)
            continue
        who = Aggressor.of(before.problem, admission.chunk)
        gang = who.gang.gang
        own = who.gang.index if admission.rung is Rung.CONSOLIDATION else -1
        key = (admission.rung, who.queue, who.charge, gang.priority, gang.never_preempts, own)
        if key not in known:
            known[key] = eligibility.units(admission.rung, who)
            taken.setdefault(admission.rung, set()).update(known[key])
            if admission.rung is Rung.RECLAIM:
                _limit_surplus(before, eligibility, who, surplus)
        taken[admission.rung].update(admission.units)
        takers.append(known[key])
    movable = NOTHING.union(*taken.values())
    by_rung = {rung: frozenset(units) - cores for rung, units in taken.items()}
    return Rights(movable, by_rung, tuple(takers), tuple(_at_least_taken(outcome, s) for s in surplus.values()))


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


def _limit_surplus(before: State, eligibility: Eligibility, who: Aggressor, surplus: dict[int, QueueSurplus]) -> None:
    tree = before.problem.queues
    for leaf in eligibility.reclaim_queues(who):
        found = surplus_of(tree, before.problem.allocatable, before.allocated, who.queue, leaf, who.charge)
        leaves = frozenset(q for q, path in enumerate(tree.path) if found.queue in path and tree.is_leaf[q])
        amounts = found.amounts
        known = surplus.get(found.queue)
        if known is not None:
            old = known.amounts
            amounts = (min(old[0], amounts[0]), min(old[1], amounts[1]), min(old[2], amounts[2]))
        surplus[found.queue] = QueueSurplus(found.queue, leaves, amounts)


def _at_least_taken(outcome: Outcome, surplus: QueueSurplus) -> QueueSurplus:
    pool, gangs = outcome.pool, outcome.state.problem.gangs
    reclaimed = [u for a in outcome.admissions if a.rung is Rung.RECLAIM for u in a.units]
    units = [pool.units[u] for u in reclaimed if pool.has_left(u)] if pool is not None else []
    taken = [u.charge for u in units if gangs[u.gang].queue in surplus.leaves]
    amounts = tuple(max(a, sum(c[r] for c in taken)) for r, a in enumerate(surplus.amounts))
    return QueueSurplus(surplus.queue, surplus.leaves, (amounts[0], amounts[1], amounts[2]))
