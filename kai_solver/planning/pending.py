"""Gangs that stay pending: the reason that matters to their owner, and what the actions proved together."""

from collections.abc import Callable, Iterable, Iterator, Mapping

from kai_solver.domain import Action, Blocker, FitError, Gang, Pending, PodStatus, Proof, Reason
from kai_solver.domain.plan import ProofState
from kai_solver.errors.barrier import caught
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.problem import Problem
from kai_solver.problem.budgets import BUDGETS
from kai_solver.reasons.fit_errors import for_gang, holds_names, named

Names = dict[int, bool]
"""By refusal (identity; one serves all gangs of one shape): whether its errors hold places for names."""

_STRENGTH: dict[ProofState, int] = {"proven": 0, "unasked": 1, "unknown": 2}


def pending_gangs(problem: Problem, outcome: Outcome, is_late: Callable[[], bool]) -> tuple[Pending, ...]:
    """One entry for every gang with pods that wait and get nothing more this cycle, by name.

    ``is_late``: asked before each, whether there is no time for the smallest set of what blocks.
    """
    found = [_outside(gang, why) for gang, why in problem.outside.values() if _waits(gang)]
    names: Names = {}
    for gang, actions in outcome.refusals.items():
        if any(outcome.state.gangs[gang].pending) or not problem.gangs[gang].pending:
            found.append(_told(problem, outcome, gang, actions, names, late=is_late()))
    found += [_dropped(problem.gangs[g].gang.key) for g in _without_a_word(problem, outcome)]
    return tuple(sorted(found, key=lambda p: p.gang))


def _without_a_word(problem: Problem, outcome: Outcome) -> list[int]:
    """Gangs that wait, were refused by no action, and hold nothing new: what they got was taken back."""
    served = outcome.has_admitted() | outcome.refusals.keys()
    return [
        g.index
        for g in problem.gangs
        if g.index not in served and g.pending and any(outcome.state.gangs[g.index].pending)
    ]


def _told(
    problem: Problem, outcome: Outcome, gang: int, actions: dict[Action, Refusal], names: Names, *, late: bool
) -> Pending:
    """The entry, in plainer words where an unexpected error stops the search for better ones."""
    key = problem.gangs[gang].gang.key
    try:
        return _pending(problem, outcome, gang, actions, names, late=late)
    except Exception as error:
        try:
            if not late:
                caught("explaining", key, error)
                return _pending(problem, outcome, gang, actions, names, late=True)
        except Exception as another:
            error = another
        return _unexplained(key, actions, error)


def _unexplained(gang: str, actions: Mapping[Action, Refusal], error: Exception) -> Pending:
    """A plain reason where the words for a better one fail."""
    reason = next(iter(actions.values())).reason
    text = f"{reason.value}; the details could not be worked out ({caught('explaining', gang, error)})"
    return Pending(gang, reason, text, Proof("unknown", "error"), (FitError(reason.value, (text,)),))


def _dropped(gang: str) -> Pending:
    text = "What it was to get went to another workload, with the pods that it cannot run without"
    return Pending(gang, Reason.NOT_ENOUGH_RESOURCES, text, Proof("unknown", "dropped"))


def _waits(gang: Gang) -> bool:
    return any(pod.status is PodStatus.PENDING for pod in gang.pods)


_BLOCKED_BY = {
    Reason.SET_ASIDE: "a gang that could not be read",
    Reason.QUEUE_NOT_LEAF: "a queue with children",
    Reason.QUEUE_DOES_NOT_EXIST: "no such queue",
}
"""What stands in the way of gangs outside the ladder, in few words: the message says it in full."""


def _outside(gang: Gang, why: str) -> Pending:
    if gang.set_aside:
        reason = Reason.SET_ASIDE
    elif "not a leaf" in why:
        reason = Reason.QUEUE_NOT_LEAF
    else:
        reason = Reason.QUEUE_DOES_NOT_EXIST
    errors = (FitError(reason.value, (why,)),)
    blocker = Blocker("queue", gang.queue, "a leaf queue", _BLOCKED_BY[reason])
    return Pending(gang.key, reason, why, Proof("proven", "rule", (blocker,)), errors)


def _pending(
    problem: Problem, outcome: Outcome, gang: int, actions: dict[Action, Refusal], names: Names, *, late: bool
) -> Pending:
    """The first action's words (what lacks), or the rule that forbids; a proof only if every action has one.

    A gang that may not disturb others yet is told that beside what lacks (docs/kai-behaviour.md#conditions).
    """
    action, first = next(
        ((r, refusal) for r, refusal in actions.items() if refusal.message), next(iter(actions.items()))
    )
    delay = next((refusal for refusal in actions.values() if refusal.reason is Reason.PREEMPTION_DELAY), first)
    message = first.message if delay is first else f"{first.message}\n{delay.message}"
    states = [refusal.proof.state for refusal in actions.values()]
    state = max(states, key=_STRENGTH.__getitem__)
    said = ((asked.value, refusal.proof.method) for asked, refusal in actions.items())
    methods = [f"{name}: {method}" if method else name for name, method in said]
    blocking, minimal = told_blockers(actions.values()) if late else blocking_set(actions.values())
    hurried = NO_TIME if late and state == "proven" and any(r.evidence is not None for r in actions.values()) else ""
    pods = outcome.asked.get((gang, action), ())
    message = "\n".join((message, *(_held(b) for b in blocking if b.kind == BUDGETS)))
    return Pending(
        problem.gangs[gang].gang.key,
        delay.reason,
        for_gang(problem, gang, pods, message),
        Proof(state, "; ".join(methods) + hurried, blocking, minimal and state == "proven"),
        tuple(_errors(problem, outcome, gang, actions, names)),
    )


def _held(budgets: Blocker) -> str:
    return f"Disruption budgets hold pods that could make room: {budgets.name} ({budgets.have})"


NO_TIME = "; no time was left for the smallest set"
"""Beside the methods of a proof whose smallest set was not searched."""

_OF_ONE = frozenset(("limit", "quota", "fair-share", "rule", "size", "count"))
"""Methods whose one blocker is all that blocks."""


def blocking_set(refusals: Iterable[Refusal]) -> tuple[tuple[Blocker, ...], bool]:
    """What blocks a gang in all actions together, and whether nothing of it can be left out.

    What no empty cluster could serve needs no more words. Else every action has its set; an element that several have
    is one, with the least amount that helps.
    """
    every = list(refusals)
    for refusal in every:
        ever = refusal.evidence.blocking_ever() if refusal.evidence is not None else ()
        if ever:
            return ever, True
    size = next((refusal.proof.blocking for refusal in every if refusal.proof.method == "size"), ())
    if size:
        return size, True
    merged: dict[tuple[str, str, str, str], Blocker] = {}
    minimal = True
    for refusal in every:
        found = refusal.evidence.blocking() if refusal.evidence is not None else ()
        alone = refusal.evidence is None and refusal.proof.method in _OF_ONE and len(refusal.proof.blocking) == 1
        minimal &= bool(found) or alone
        for blocker in found or refusal.proof.blocking:
            key = (blocker.kind, blocker.name, blocker.where, blocker.resource)
            known = merged.get(key, blocker)
            merged[key] = blocker if blocker.short < known.short else known
    return tuple(merged.values()), minimal


def told_blockers(refusals: Iterable[Refusal]) -> tuple[tuple[Blocker, ...], bool]:
    """What the actions named when they said no: not tested whether something of it could be left out."""
    return tuple(dict.fromkeys(b for refusal in refusals for b in refusal.proof.blocking)), False


def _errors(
    problem: Problem, outcome: Outcome, gang: int, actions: dict[Action, Refusal], names: Names
) -> Iterator[FitError]:
    """KAI's errors of the first action that has any, then what KAI adds in the actions that evict.

    That is one line for the preemption delay, and one per action for a pod larger than every node.
    """
    delayed = False
    for number, (action, refusal) in enumerate(actions.items()):
        is_delay = refusal.reason is Reason.PREEMPTION_DELAY
        if not number or refusal.proof.method == "size" or (is_delay and not delayed):
            if id(refusal) not in names:
                names[id(refusal)] = any(map(holds_names, refusal.fit_errors))
            if names[id(refusal)]:
                pods = outcome.asked.get((gang, action), ())
                yield from (named(problem, gang, pods, error) for error in refusal.fit_errors)
            else:
                yield from refusal.fit_errors
        delayed |= is_delay
