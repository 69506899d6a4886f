"""What gangs lack that the board refused without a text: said once all is decided, of those that wait still.

Most gangs that find no free room are served by a later action. On 5,000 loaded nodes texts of all 145 kinds that were
refused took a tenth of the greedy (2026-11-29).
"""

from collections.abc import Callable
from dataclasses import replace

from kai_solver.domain import Proof
from kai_solver.errors.barrier import caught
from kai_solver.placement.placing import Placer
from kai_solver.planstate.allocation_units import AllocationUnit, GangUnitsOf
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.planstate.signature import Signature, signature
from kai_solver.reasons.looks import Looks
from kai_solver.reasons.refusals import shortage

NO_PROOF = Proof("unknown", "")


def is_untold(refusal: Refusal) -> bool:
    """Whether ``refusal`` says nothing yet of what lacks."""
    return not (refusal.message or refusal.fit_errors)


def with_words_of(refusal: Refusal, told: Refusal) -> Refusal:
    """``refusal`` with what ``told`` says of what lacks, if it says so; its proof stays."""
    if not (is_untold(refusal) and told.fit_errors):
        return refusal
    return replace(refusal, reason=told.reason, message=told.message, fit_errors=told.fit_errors)


def tell(outcome: Outcome, is_late: Callable[[], bool]) -> None:
    """Write what lacks in the present state into the first refusal of each gang, if it has no text. The state stays.

    ``is_late``: asked before each kind of gangs; True where no time is left for it. Then nothing is said, and neither
    is where pods that leave have made room since.
    """
    placer, gang_units, looks = Placer(outcome.state), GangUnitsOf(outcome.state), Looks(outcome.state)
    known: dict[Signature, Refusal | None] = {}
    said: dict[tuple[int, int], tuple[Refusal, Refusal]] = {}
    for gang, refusals in outcome.refusals.items():
        action, first = next(iter(refusals.items()))
        unit = gang_units[gang].next() if is_untold(first) else None
        if unit is None:
            continue
        kind = signature(outcome.state, unit)
        if kind not in known and not is_late():
            known[kind] = _shortage(outcome, placer, unit, looks)
        told = known.get(kind)
        if told is not None:
            key = id(first), id(told)  # Both are held on to, so that nothing else has their identity.
            if key not in said:
                said[key] = first, _told(first, told)
            refusals[action] = said[key][1]
            outcome.asked[gang, action] = unit.pods


def _told(first: Refusal, told: Refusal) -> Refusal:
    """``first`` with the words of ``told``, and with its blockers if it names none."""
    proof = first.proof if first.proof.blocking else replace(first.proof, blocking=told.proof.blocking)
    return with_words_of(replace(first, proof=proof), told)


def _shortage(outcome: Outcome, placer: Placer, unit: AllocationUnit, looks: Looks) -> Refusal | None:
    """What lacks for ``unit``, and what blocks it; None where nothing does, and after an unexpected error."""
    mark = outcome.state.mark()
    try:
        found = shortage(outcome.state, placer, unit, NO_PROOF, looks)
    except Exception as error:
        outcome.state.rollback(mark)
        caught("explaining", outcome.state.problem.gangs[unit.gang].gang.key, error)
        return None
    return found if found.fit_errors else None
