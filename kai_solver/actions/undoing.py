"""Reclaim may take back what consolidation gave in the same cycle (docs/kai-behaviour.md#reclaim-lasts).

Nobody runs there yet, so nothing is lost, and running victims may be spared for it. KAI finds such a gang among the
first victims of its queue, as the youngest.
"""

from math import inf

from kai_solver.actions.disruption import Disruption
from kai_solver.domain import Action
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor, was_counted
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.reasons.refusals import TAKEN_BACK


def solve(
    outcome: Outcome, disruption: Disruption, preemptor: Preemptor, allocation_unit: AllocationUnit
) -> list[int] | None:
    """As `Disruption.solve`; gangs that consolidation admitted give way where that spares running victims."""
    given = _given(outcome, disruption, preemptor)
    if not given:
        return disruption.solve(preemptor, allocation_unit)
    state = outcome.state
    mark = state.mark()
    found = disruption.solve(preemptor, allocation_unit)
    steps = state.journal[mark:]
    given = _cheaper(outcome, disruption, given, found)
    if not given:
        return found
    cost = _cost(disruption, found)
    state.rollback(mark)
    for admission in given:
        for pod in admission.allocation_unit.pods:
            state.lift(pod)
    disruption.settle()
    spared = disruption.solve(preemptor, allocation_unit) if _is_undone(outcome, disruption, given) else None
    if spared is not None and _cost(disruption, spared) < cost and state.keeps_rules():
        for admission in given:
            outcome.withdraw(admission, TAKEN_BACK)
        return spared
    state.rollback(mark)
    state.replay(steps)
    return found


def _given(outcome: Outcome, disruption: Disruption, preemptor: Preemptor) -> list[Admission]:
    """What consolidation admitted in queues that ``preemptor`` may take from."""
    if disruption.action is not Action.RECLAIM or not outcome.consolidated:
        return []
    moved = [a for a in outcome.admissions if a.action is Action.CONSOLIDATION]
    queue_of = {a.allocation_unit.gang: outcome.state.problem.gangs[a.allocation_unit.gang].queue for a in moved}
    queues = set(disruption.eligibility.reclaim_queues(preemptor)) & set(queue_of.values())
    free = {queue for queue in queues if not was_counted(outcome, queue)}
    built_on = {a.allocation_unit.gang for a in outcome.admissions if a.action is Action.RECLAIM}
    return [a for a in moved if queue_of[a.allocation_unit.gang] in free and a.allocation_unit.gang not in built_on]


def _is_undone(outcome: Outcome, disruption: Disruption, given: list[Admission]) -> bool:
    """False where somebody who moved for ``given`` cannot go home, since others have taken that room meanwhile."""
    moved_for_others = {unit for a in outcome.admissions if a not in given for unit in a.units}
    return not any(
        disruption.pool.is_disturbed(unit) for a in given for unit in a.units if unit not in moved_for_others
    )


def _cheaper(
    outcome: Outcome, disruption: Disruption, given: list[Admission], found: list[int] | None
) -> list[Admission]:
    """Those of no higher priority than the victims ``found``; none where nobody has to leave anyway."""
    pool, gangs = disruption.pool, outcome.state.problem.gangs
    if found is None:
        return given
    evicted = [gangs[pool.units[u].gang].gang.priority for u in found if pool.has_left(u)]
    return [a for a in given if evicted and gangs[a.allocation_unit.gang].gang.priority <= min(evicted)]


def _cost(disruption: Disruption, units: list[int] | None) -> float:
    """Work lost with ``units``, as the greedy weighs it; infinite where there is no way."""
    if units is None:
        return inf
    return sum(disruption.pool.cost[u] for u in units if disruption.pool.has_left(u))
