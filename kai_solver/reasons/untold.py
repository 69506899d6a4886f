"""What gangs lack that the board refused without a text: said of the state that the cycle ends with.

Most gangs that find no free room are served by a later action. On 5,000 loaded nodes texts of all 145 kinds that were
refused took a tenth of the greedy (2026-11-29).
"""

from collections.abc import Callable
from dataclasses import replace

from kai_solver.domain import Proof, Reason
from kai_solver.errors.barrier import caught
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnitsOf
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.signature import Signature, signature
from kai_solver.reasons.refusals import shortage

FOUND_NO_ROOM = "No room was found for the workload when it had its turn"
"""Where there is no time for more, and where pods that leave have made room since."""

NOTHING_FOUND = Refusal(Reason.NOT_ENOUGH_RESOURCES, FOUND_NO_ROOM, Proof("unknown", ""))


def is_untold(refusal: Refusal) -> bool:
    """Whether ``refusal`` says nothing yet of what lacks."""
    return not (refusal.message or refusal.fit_errors)


def tell(outcome: Outcome, is_late: Callable[[], bool]) -> None:
    """Say what lacks in the present state, which stays, for each gang whose first refusal does not.

    ``is_late``: asked before each kind of gangs; True where no time is left for it. After an unexpected error, too, a
    gang is told only that it had no room.
    """
    placer, gang_units = Placer(outcome.state), GangUnitsOf(outcome.state)
    known: dict[Signature, Refusal] = {}
    for gang, refusals in outcome.refusals.items():
        action, first = next(iter(refusals.items()))
        unit = gang_units[gang].next() if is_untold(first) else None
        if unit is None:
            continue
        kind = signature(outcome.state, unit)
        if kind not in known and not is_late():
            known[kind] = _shortage(outcome, placer, unit)
        told = known.get(kind, NOTHING_FOUND)
        blocking = first.proof.blocking or told.proof.blocking
        refusals[action] = replace(told, proof=replace(first.proof, blocking=blocking), evidence=first.evidence)
        outcome.asked[gang, action] = unit.pods


def _shortage(outcome: Outcome, placer: Placer, unit: AllocationUnit) -> Refusal:
    """What lacks for ``unit``; its proof says what blocks, and no more."""
    mark = outcome.state.mark()
    try:
        found = shortage(outcome.state, placer, unit, NOTHING_FOUND.proof)
    except Exception as error:
        outcome.state.rollback(mark)
        caught("explaining", outcome.state.problem.gangs[unit.gang].gang.key, error)
        return NOTHING_FOUND
    return found if found.message else NOTHING_FOUND
