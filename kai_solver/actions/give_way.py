"""Binds of this cycle give way to gangs for which the next cycle would evict or move them.

Allocate comes before the actions that disturb. So it may give room to a gang although another gang could take that room
as soon as the first one runs: with a few more victims the other gang fits. Here such a bind gives way, so that nothing
starts that the next cycle stops. Other binds stay: small work that fits runs before a large gang that needs victims.
"""

from collections.abc import Collection, Sequence
from functools import cache

from kai_solver.actions.board.serving import BoardLine
from kai_solver.actions.caps import over_capacity
from kai_solver.actions.context import Context
from kai_solver.actions.gang_order import goes_before
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger, RunningWork, eligible, min_runtime_s
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import Preemptor, reclaim_allowed, was_counted
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.outcome import Admission
from kai_solver.reasons.refusals import GAVE_WAY

MOST_BINDS = 32
"""Most binds that may give way to one gang, the newest: each is undone, and placed again if possible."""


def give_way(
    context: Context,
    victim_search: VictimSearch,
    preemptor: Preemptor,
    allocation_unit: AllocationUnit,
    line: BoardLine | None = None,
) -> bool:
    """Admit ``allocation_unit``, which its action could not place, where binds of this cycle stand; else do nothing.

    ``line``: where gangs have their turns by kernels; these say first whether there is a way without the binds. In
    vain it takes 1 ms so, and 20 to 250 ms on the working state. On six clusters of 500 to 5,000 nodes, in four cycles
    each, plans are the same; on 5,000 real ones the greedy takes 2.7 s (3.2) and steady 1.1 to 1.8 s (1.5 to 2.2,
    2026-11-29).
    """
    binds = _yielding(context, victim_search, preemptor)
    if not binds:
        return False
    state = context.state
    mark, ledger = state.mark(), victim_search.ledger(preemptor)
    for admission in reversed(binds):
        for pod in reversed(admission.allocation_unit.pods):
            state.lift(pod)
    units = None
    if line is None or line.shows_way(allocation_unit):
        units = _placed(context, victim_search, preemptor, allocation_unit)
    if units is not None:
        lost = _not_again(context, binds)
        lost += _bereft(context, lost)
        if _is_allowed(context, victim_search, preemptor, units, lost, ledger):
            for admission in lost:
                context.outcome.withdraw(admission, GAVE_WAY)
            is_free = victim_search.action is Action.CONSOLIDATION and not units
            context.outcome.admit(
                Admission(allocation_unit, Action.ALLOCATE if is_free else victim_search.action, tuple(units))
            )
            return True
    state.rollback(mark)
    return False


def _yielding(context: Context, victim_search: VictimSearch, preemptor: Preemptor) -> list[Admission]:
    """Binds that the next cycle could take by the same action, in the order in which they were made.

    What can be asked of the kind of a bind is asked first, once for all: of the greedy's CPU on 5,000 loaded nodes (217
    gangs ask 1,500 binds) this takes 1.5%, and took 9% when each bind was asked for its places first (2026-11-23).
    """
    found: list[Admission] = []
    binds = context.outcome.binds
    if not binds:
        return found
    action, gangs, places = victim_search.action, context.problem.gangs, context.state.places
    reclaimable = frozenset(victim_search.eligibility.reclaim_queues(preemptor)) if action is Action.RECLAIM else ()
    queues = {Action.RECLAIM: reclaimable, Action.PREEMPT: (preemptor.queue,)}.get(action)

    @cache
    def may_give(queue: int, priority: int, preemptible: bool) -> bool:
        is_open = queues is None or queue in queues
        is_open = is_open and (action is Action.CONSOLIDATION or not was_counted(context.outcome, queue))
        return is_open and _may_take(victim_search, preemptor, reclaimable, queue, priority, preemptible)

    for admission in reversed(binds):
        if len(found) == MOST_BINDS:
            break
        victim = gangs[admission.allocation_unit.gang]
        if not may_give(victim.queue, victim.gang.priority, victim.gang.preemptible):
            continue
        if victim.index == preemptor.gang.index or not all(places[p].now for p in admission.allocation_unit.pods):
            continue
        if action is not Action.PREEMPT and _is_nominated(context, admission):
            continue  # Others left, or it moved, for its promised place: later cycles would undo that and repeat it.
        found.append(admission)
    return found[::-1]


def _is_nominated(context: Context, bind: Admission) -> bool:
    return any(context.problem.pods[pod].nominated_node for pod in bind.allocation_unit.pods)


def _may_take(
    victim_search: VictimSearch,
    preemptor: Preemptor,
    reclaimable: Collection[int],
    queue: int,
    priority: int,
    preemptible: bool,
) -> bool:
    """Whether the action may take another gang of this kind as soon as it runs, from a queue of the ``reclaimable``."""
    problem, action = victim_search.state.problem, victim_search.action
    now_s = problem.snapshot.now_s
    work = RunningWork(
        gang=-1,
        queue=queue,
        priority=priority,
        preemptible=preemptible,
        may_move=True,
        started_s=now_s,
        surplus=lambda: False,
    )
    may = eligible(
        action,
        preemptor.gang.index,
        preemptor.gang.gang,
        preemptor.queue,
        work,
        reclaimable=queue in reclaimable,
        min_runtime_s=min_runtime_s(problem.queues, problem.policy, action, preemptor.queue, queue),
        now_s=now_s,
    )
    return bool(may)


def _placed(
    context: Context, victim_search: VictimSearch, preemptor: Preemptor, allocation_unit: AllocationUnit
) -> list[int] | None:
    """Place ``allocation_unit``; returns the units that leave or move for it, None if it finds no place."""
    if over_capacity(context.state, allocation_unit) is None and context.fits_free(allocation_unit):
        return []
    return victim_search.make_room(preemptor, allocation_unit)


def _not_again(context: Context, binds: Sequence[Admission]) -> list[Admission]:
    """Place ``binds`` again where they can start now; those that cannot."""
    state, lost = context.state, list[Admission]()
    for admission in binds:
        allocation_unit, mark = admission.allocation_unit, state.mark()
        units_of_gang = context.gang_units[allocation_unit.gang]
        may_run = allocation_unit.is_core or units_of_gang.is_satisfied(units_of_gang.shape.root)
        fits = may_run and over_capacity(state, allocation_unit) is None and context.fits_free(allocation_unit)
        if not fits or not all(state.places[pod].now for pod in allocation_unit.pods):
            state.rollback(mark)
            lost.append(admission)
    return lost


def _bereft(context: Context, lost: Sequence[Admission]) -> list[Admission]:
    """Lift what else the gangs of ``lost`` were to get, where they lack their minimum without what was lost."""
    state, found = context.state, list[Admission]()
    gangs = {gang for gang in _gangs(lost) if not context.gang_units[gang].is_whole()}
    for admission in context.outcome.admissions if gangs else ():
        pods = admission.allocation_unit.pods
        if admission.allocation_unit.gang in gangs and pods[0] in state.places:
            for pod in pods:
                state.lift(pod)
            found.append(admission)
    return found


def _is_allowed(
    context: Context,
    victim_search: VictimSearch,
    preemptor: Preemptor,
    units: list[int],
    lost: Sequence[Admission],
    ledger: ReclaimLedger | None,
) -> bool:
    """Whether the ``units`` may go, and the ``lost`` binds as if they ran, and would not come first next time."""
    state, gangs = context.state, context.problem.gangs
    if any(admission.units for admission in lost):
        return False  # Others would leave for nothing.
    if not state.keeps_rules() or not state.may_be_gone() or not all(state.keeps_spacing(g) for g in _gangs(lost)):
        return False
    if victim_search.action is Action.CONSOLIDATION:
        return not lost
    if ledger is None:
        return True
    costs = [(gangs[a.allocation_unit.gang], charge_of(context.problem, a.allocation_unit.pods)) for a in lost]
    if not all(goes_before(state, preemptor.gang, preemptor.charge, gang, cost) for gang, cost in costs):
        return False
    return reclaim_allowed(state, victim_search.pool, ledger, units, [(gang.queue, cost) for gang, cost in costs])


def _gangs(binds: Sequence[Admission]) -> set[int]:
    return {admission.allocation_unit.gang for admission in binds}
