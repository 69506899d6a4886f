"""The run of an action that disturbs running work: gang by gang, in order, until each was served or refused.

Consolidation, reclaim and preemption run in the same way; which gangs may ask, and which work may be taken, each says
in its own file. Steps of one gang's attempt stand in `attempt`, the cheapest first.
"""

from collections.abc import Callable, Mapping, Sequence

from kai_solver.actions.accelerators.refused import Refused
from kai_solver.actions.accelerators.swaps import Swaps
from kai_solver.actions.board.serving import BoardLine
from kai_solver.actions.caps import over_capacity
from kai_solver.actions.consolidate import Consolidate
from kai_solver.actions.context import Context, of_choice
from kai_solver.actions.give_way import give_way
from kai_solver.actions.preempt import Preempt
from kai_solver.actions.reclaim import Reclaim
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import never
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnits
from kai_solver.planstate.outcome import Admission, Outcome, Refusal
from kai_solver.reasons.refusals import within_delay

SEARCHES: Mapping[Action, type[VictimSearch]] = {search.action: search for search in (Consolidate, Reclaim, Preempt)}


def search_of(
    action: Action,
    outcome: Outcome,
    fits: FitTable,
    gang_units: GangUnits,
    waiting: Sequence[int] = (),
    is_over: Callable[[], bool] = never,
) -> VictimSearch:
    """The search of ``action``, which disturbs running work."""
    return SEARCHES[action](outcome, fits, gang_units, waiting, is_over)


def disrupt(context: Context, action: Action, candidates: Sequence[int]) -> list[int] | None:
    """Run ``action`` for the gangs ``candidates``.

    Returns None once each was served or refused; the gangs that had no attempt if the time ended before, or if the
    action served none for so long that it gives way to the next.
    """
    search = search_of(action, context.outcome, context.placer.fits, context.gang_units, candidates, context.is_over)
    if not candidates:
        return None
    line = context.line(action, candidates)
    if line is not None:
        line.free_milli = search.free_milli
        return _disrupt_on_board(context, search, line)
    gang_order, late = context.gang_order(candidates), None
    swaps, refused = Swaps(context, search), Refused(context, action)
    while not gang_order.is_over:
        if context.is_over() or context.is_fruitless():
            late = list(gang_order.rest())
            break
        if swaps.serve(gang_order):
            context.attempted(served=True)
            refused.forget()
            continue
        next_gang = gang_order.pop()
        if next_gang is None:
            break
        gang = next_gang.gang
        unit = context.gang_units[gang].next()
        if unit is None:
            continue  # Its core was evicted for an earlier gang, and its surplus cannot run alone.
        kind, refusal = context.kind(gang), attempt(context, search, unit)
        context.attempted(served=refusal is None)
        if refusal is not None:
            context.outcome.refuse(gang, action, of_choice(refusal, unit), unit.pods)
            refused.note(kind, refusal)
            if refused.refuse_rest(gang_order):
                break
        else:
            search.forget()
            refused.forget()
            gang_order.refresh()
            swaps.note(unit, context.outcome.admissions[-1].units)
    search.settle()
    return late


def _disrupt_on_board(context: Context, search: VictimSearch, line: BoardLine) -> list[int] | None:
    """`disrupt`, with the turns of plain gangs taken by kernels."""
    known: dict[int, Refusal] = {}
    outcome, action = context.outcome, search.action

    def refuse(unit: AllocationUnit, kind: int, is_same: bool) -> None:
        refusal = known.get(kind) if is_same else None
        if refusal is None:
            refusal = forbidden(context, search, unit) or search.over_capacity(unit) or context.left_open
            known[kind] = refusal
        outcome.refuse(unit.gang, action, refusal, unit.pods)

    late = None
    while True:
        if context.is_over() or context.is_fruitless():
            late = list(line.rest())
            break
        before = outcome.version
        turns = line.serve(refuse)
        unit, next_gang = line.asked_again, None
        if unit is None:
            next_gang = line.pop()
            unit = next_gang.allocation_unit if next_gang is not None else None
        if unit is not None:
            is_said = line.shows_all and next_gang is None
            refusal = (_yield_to if is_said else attempt)(context, search, unit, line)
            if refusal is not None:
                outcome.refuse(unit.gang, action, of_choice(refusal, unit), unit.pods)
                line.unchanged()
            else:
                search.forget()
                line.changed()
        elif not turns and not line.has_more:
            break
        context.attempted(served=outcome.version != before)
    search.settle()
    return late


def _yield_to(context: Context, search: VictimSearch, unit: AllocationUnit, line: BoardLine) -> Refusal | None:
    """Admit ``unit``, for which no running work makes room, if binds of this cycle give way; else the refusal."""
    if give_way(context, search, context.preemptor(unit), unit, line):
        return None
    return forbidden(context, search, unit) or search.over_capacity(unit) or context.left_open


def attempt(
    context: Context, search: VictimSearch, unit: AllocationUnit, line: BoardLine | None = None
) -> Refusal | None:
    """Admit ``unit`` with victims; the refusal if that may not or cannot be.

    Asked in turn: the rules; what an equal unit was refused; a bound that proves it impossible, unless arrays found
    room; free room; victims; the solver; and binds of this cycle that give way. Neither victims nor such binds are
    sought where that was in vain for fewer such pods.
    """
    outcome, action = context.outcome, search.action
    preemptor = context.preemptor(unit)
    refusal = forbidden(context, search, unit) or search.over_capacity(unit)
    if refusal is not None:
        return refusal
    signature = context.signature(unit)
    refusal = search.known_refusal(preemptor, signature)
    if refusal is not None:
        return refusal
    is_found, is_vain = line is not None and line.found == unit.gang, search.is_vain(preemptor, unit)
    refusal = None if is_found else context.refute(unit, action)
    if refusal is None:
        found: list[int] | None = None
        if search.uses_free_room and over_capacity(context.state, unit) is None and context.fits_free(unit):
            found = []
        if found is None and not is_vain:
            found = search.find(preemptor, unit)
        if found is not None:
            outcome.admit(Admission(unit, action, tuple(found)))
            return None
        refusal = context.ask(unit, action, search)
    if refusal is None or (not is_vain and give_way(context, search, preemptor, unit, line)):
        return None
    search.remember(preemptor, unit, signature, refusal)
    return refusal


def forbidden(context: Context, search: VictimSearch, unit: AllocationUnit) -> Refusal | None:
    """What forbids the action without a search: the gang's delay, the action's rules, a pod too large for any node."""
    preemptor = context.preemptor(unit)
    refusal = within_delay(context.problem, preemptor.gang)
    if refusal is not None:
        return refusal
    refusal = search.refusal(preemptor)
    if refusal is None or refusal.proof.method == "count":
        refusal = context.largest_node.refuses(unit) or refusal
    return refusal
