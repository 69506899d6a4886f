"""What a plan costs, stage by stage, and who could be disturbed for those that were admitted."""

import numpy as np

from kai_solver.domain import Plan, Rung, Stage
from kai_solver.fairness import surplus as surplus_of
from kai_solver.formulation.joint import QueueSurplus
from kai_solver.greedy import Outcome
from kai_solver.greedy.rules import Aggressor, Eligibility
from kai_solver.greedy.state import State
from kai_solver.units import MILLI


def admission_stage(plan: Plan) -> Stage:
    """Gangs left pending, and how many of them provably must be."""
    bound = sum(p.proof.state == "proven" for p in plan.pending)
    return Stage("pending-gangs", len(plan.pending), bound, bound == len(plan.pending))


def measured_stages(outcome: Outcome) -> list[Stage]:
    """The outcome as it stands: evicted work by stratum, gangs broken, pods evicted, pods moved, nodes opened."""
    pool, state = outcome.pool, outcome.state
    units = [(u, pool.has_left(u.index), pool.is_moved(u.index)) for u in pool.units] if pool is not None else []
    lost = [u for u, left, _ in units if left and u.gang not in outcome.stale]
    work: dict[int, int] = {}
    for unit in lost:
        stratum = state.problem.gangs[unit.gang].gang.priority
        work[stratum] = work.get(stratum, 0) + max(1, round(unit.work))
    broken, evicted = sum(u.is_core for u in lost), sum(len(u.pods) for u in lost)
    moved = sum(len(u.pods) for u, _, is_moved in units if is_moved)
    stages = [_zero_bound(f"evicted-work/{p}", work[p]) for p in sorted(work, reverse=True)]
    counts = (("gangs-broken", broken), ("evicted-pods", evicted), ("moved-pods", moved))
    return [*stages, *(_zero_bound(name, value) for name, value in counts), _opened(state)]


def _opened(state: State) -> Stage:
    """GPU nodes of which no device was in use and some is to be: what the stage ``preference`` minimises.

    Bound: what the GPUs of the placed pods exceed the room on the other nodes by, in the largest free nodes.
    """
    problem = state.problem
    whole = ((problem.device_free + problem.device_releasing) >= MILLI).sum(axis=1)
    is_free = (problem.gpus > 0) & (whole == problem.gpus)
    opened = {p.node for p in state.places.values() if p.devices and is_free[p.node]}
    demand = sum(len(p.devices) * p.milli for p in state.places.values())
    elsewhere = sum(len(p.devices) * p.milli for p in state.places.values() if not is_free[p.node])
    room = elsewhere + int(state.gpu_free[~is_free].sum())
    sizes = np.sort(problem.gpus[is_free])[::-1].cumsum() * MILLI
    bound = min(int(np.searchsorted(sizes, demand - room)) + 1, len(opened)) if demand > room else 0
    return Stage("nodes-opened", len(opened), bound, bound == len(opened))


def _zero_bound(name: str, value: int) -> Stage:
    return Stage(name, value, 0, value == 0)


def rights_of(outcome: Outcome) -> tuple[dict[Rung, frozenset[int]], list[QueueSurplus]]:
    """Units that each rung may take for any gang that it admitted, by the numbers from before the disruptive rungs.

    For reclaim also how much may be taken from each levelled queue: the least that any of the reclaimers allows, but
    never less than what was in fact taken, which passed the rules one by one.
    """
    pool = outcome.pool
    if pool is None:
        return {}, []
    before = _before_disruption(outcome)
    eligibility = Eligibility(before, pool)
    rights: dict[Rung, frozenset[int]] = {}
    surplus: dict[int, QueueSurplus] = {}
    seen: set[tuple[object, ...]] = set()
    for admission in outcome.admissions:
        gang = before.problem.gangs[admission.chunk.gang]
        who = Aggressor.of(before.problem, admission.chunk)
        key = (admission.rung, who.queue, who.charge, gang.gang.priority, gang.gang.never_preempts)
        if admission.rung is Rung.ALLOCATE or (admission.rung is not Rung.CONSOLIDATION and key in seen):
            continue
        seen.add(key)
        units = frozenset(u for u in eligibility.units(admission.rung, who) if pool.may_leave(u))
        units |= frozenset(admission.units)
        rights[admission.rung] = rights.get(admission.rung, frozenset()) | units
        if admission.rung is Rung.RECLAIM:
            _limit_surplus(before, eligibility, who, surplus)
    return rights, [_at_least_taken(outcome, s) for s in surplus.values()]


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
