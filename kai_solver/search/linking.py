"""The stage ``links``: seats, then victims, are exchanged so that gangs lose less bandwidth.

Nothing that came before gets worse: the same pods run and start, as many leave that cost as much, and no more idle
nodes are opened. Only pods move whose places are a matter of room and domain; the others stay where they are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from kai_solver.domain import Stage
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import Placer
from kai_solver.planstate.eviction_units import Unit
from kai_solver.planstate.opening import opened_nodes
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge
from kai_solver.search.gpu_assignment import seating_of
from kai_solver.search.rights import Rights
from kai_solver.search.seating import Seating

LINK_LOSS = "link-loss"
VICTIMS_TRIED = 40
"""Exchanges of a victim tried, about a millisecond each."""

_Kind = tuple[object, ...]
"""Equal for units that cost the same."""


def link_stage(
    outcome: Outcome, rights: Callable[[], Rights], is_over: Callable[[], bool], *, by_gpus: bool = False
) -> Stage | None:
    """Exchange what gains bandwidth; what the plan loses then, in thousandths of a GPU, None where links say nothing.

    ``rights``: which units may be taken by which admission. ``is_over``: whether the stage's time is. ``by_gpus``:
    victims cost GPUs and not work.
    """
    seating = seating_of(outcome)
    if seating is None:
        return None
    is_all = _exchange_seats(outcome, seating, is_over)
    if seating.best_cost and outcome.pool is not None and not is_over():
        kinds = _stayers(outcome, outcome.pool, by_gpus=by_gpus)
        if kinds:
            takers = rights().takers
            seating = _exchange_victims(outcome, outcome.pool, takers, kinds, seating, is_over, by_gpus=by_gpus)
    value = seating.best_cost
    bound = 0 if outcome.state.gone else value if is_all else min(seating.bound, value)
    return Stage(LINK_LOSS, value, bound, value <= bound)


def _exchange_seats(outcome: Outcome, seating: Seating, is_over: Callable[[], bool]) -> bool:
    """Take better seats where there are some; True where no seats at all are better than those taken."""
    state = outcome.state
    if seating.best_cost <= seating.bound or all(assignment.is_fixed for assignment in seating.assignments):
        return False
    before, cost = seating.best, seating.best_cost
    is_all = seating.search(is_over) and seating.is_whole
    if seating.best_cost < cost and not _sit_down(outcome, seating, before):
        seating.best, seating.best_cost = before, cost
        return False
    return is_all and _knows_all(state, seating)


def _knows_all(state: State, seating: Seating) -> bool:
    """Whether every pod with GPUs of the plan was tried elsewhere, so that no other could make way."""
    assignments = {
        assignment.pod for assignment in seating.assignments if assignment.counts and not assignment.is_fixed
    }
    return all(pod in assignments for pod, place in state.places.items() if place.devices)


def _sit_down(outcome: Outcome, seating: Seating, before: Sequence[int]) -> bool:
    """Put the assignments on their better seats; False, and nothing changed, where a rule forbids one."""
    state = outcome.state
    mark, fits = state.mark(), FitTable(state)
    changed = [
        (assignment, node)
        for assignment, node, was in zip(seating.assignments, seating.best, before, strict=True)
        if node != was
    ]
    for assignment, _ in changed:
        state.lift(assignment.pod)
    for assignment, node in changed:
        now, later = fits.counts(state.problem.pod_shape[assignment.pod])
        allowed = state.admitting(assignment.pod, None)
        if (now if assignment.asking.at_once else later)[node] <= 0 or not (allowed is None or allowed[node]):
            state.rollback(mark)
            return False
        place = state.put(assignment.pod, node, now=assignment.asking.at_once)
        if place.now is not assignment.asking.at_once:
            state.rollback(mark)
            return False
    _settle(outcome)
    return True


def _settle(outcome: Outcome) -> None:
    """Update the pool of units with the new places of moved ones."""
    pool = outcome.pool
    for unit in pool.units if pool is not None else ():
        if pool is not None and pool.is_moved(unit.index):
            pool.note_places(unit.index)


# -- victims -----------------------------------------------------------------------------------------------------------


def _exchange_victims(
    outcome: Outcome,
    pool: VictimPool,
    takers: Sequence[frozenset[int]],
    kinds: Mapping[_Kind, Sequence[int]],
    seating: Seating,
    is_over: Callable[[], bool],
    *,
    by_gpus: bool,
) -> Seating:
    """Let other units leave that cost as much, if the takers lose less by that."""
    tried = 0
    for at, admission in enumerate(outcome.admissions):
        for unit, other in _equals(pool, admission, takers[at], kinds, by_gpus=by_gpus):
            tried += 1
            if tried > VICTIMS_TRIED or not seating.best_cost or is_over():
                return seating
            found = _with_other(outcome, pool, at, unit, other, seating.best_cost)
            if found is not None:
                seating = found
                break
    return seating


def _stayers(outcome: Outcome, pool: VictimPool, *, by_gpus: bool) -> dict[_Kind, list[int]]:
    """Units that stay, by the kinds of those that were evicted and are the only one of their gang to leave.

    They are looked for before rights are tested, which is expensive.
    """
    taken = {unit for admission in outcome.admissions for unit in admission.units}
    left = [pool.units[unit] for unit in taken if pool.has_left(unit) and not pool.is_elastic[unit]]
    kinds: dict[_Kind, list[int]] = {_kind(pool, unit.index, by_gpus=by_gpus): [] for unit in left}
    costs = {_cost(unit, by_gpus=by_gpus) for unit in left}
    for unit in pool.units if left else ():
        if _cost(unit, by_gpus=by_gpus) in costs and not pool.is_elastic[unit.index]:
            identical = kinds.get(_kind(pool, unit.index, by_gpus=by_gpus))
            if identical is not None:
                identical.append(unit.index)
    return {kind: identical for kind, identical in kinds.items() if not all(map(pool.is_disturbed, identical))}


def _equals(
    pool: VictimPool,
    admission: Admission,
    takers: frozenset[int],
    kinds: Mapping[_Kind, Sequence[int]],
    *,
    by_gpus: bool,
) -> Iterator[tuple[int, int]]:
    """Units that left for ``admission``, each with units that stay, may be taken by it and cost the same."""
    for unit in admission.units:
        if not pool.has_left(unit) or pool.is_elastic[unit]:
            continue
        for other in kinds.get(_kind(pool, unit, by_gpus=by_gpus), ()):
            if other in takers and not pool.is_disturbed(other) and pool.may_leave(other):
                yield unit, other


def _kind(pool: VictimPool, unit: int, *, by_gpus: bool) -> _Kind:
    """What the stages and the queues know of a unit."""
    of, problem = pool.units[unit], pool.state.problem
    gang = problem.gangs[of.gang]
    shapes = tuple(sorted(problem.pod_shape[pod] for pod in of.pods))
    return (gang.queue, gang.gang.priority, gang.gang.preemptible, of.is_core, shapes, _cost(of, by_gpus=by_gpus))


def _cost(unit: Unit, *, by_gpus: bool) -> tuple[int, Charge]:
    return 0 if by_gpus else round(unit.work), unit.charge


def _with_other(outcome: Outcome, pool: VictimPool, at: int, unit: int, other: int, cost: int) -> Seating | None:
    """Let ``other`` leave in place of ``unit``; None, and nothing changed, where that gains nothing."""
    state, admission = outcome.state, outcome.admissions[at]
    mark, opened = state.mark(), len(opened_nodes(state))
    starts = [state.places[pod].now for pod in admission.allocation_unit.pods]
    for pod in admission.allocation_unit.pods:
        state.lift(pod)
    for pod in pool.units[other].pods:
        state.evict(pod)
    is_done = state.returns_to_origin(pool.units[unit].pods) and Placer(state).place_unit(admission.allocation_unit)
    found = seating_of(outcome) if is_done and state.keeps_rules() else None
    is_kept = found is not None and [state.places[pod].now for pod in admission.allocation_unit.pods] == starts
    if found is None or not is_kept or found.best_cost >= cost or len(opened_nodes(state)) > opened:
        state.rollback(mark)
        return None
    units = tuple(other if taken == unit else taken for taken in admission.units)
    others = outcome.admissions
    outcome.replace_admissions([*others[:at], replace(admission, units=units), *others[at + 1 :]])
    return found
