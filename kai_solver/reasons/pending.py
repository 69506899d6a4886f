"""Why a gang stays pending: its entry in the plan, and the text of its event and of its PodGroup's condition.

Each action's refusal (``refusals.py``) says what that action found; the entry joins them.

Source: docs/kai-behaviour.md#reasons.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from kai_solver.domain import (
    Action,
    Blocker,
    FitError,
    Gang,
    Pending,
    PodStatus,
    Proof,
    QueueDetails,
    QueueVector,
    Reason,
)
from kai_solver.domain.plan import ProofState
from kai_solver.errors.barrier import caught
from kai_solver.planstate.outcome import Outcome, Refusal
from kai_solver.problem import Problem
from kai_solver.problem.rules import rule_of_kind
from kai_solver.reasons.attempt import GANG
from kai_solver.units import MILLI

Names = dict[int, tuple[bool, ...]]
"""By refusal (identity; one serves all gangs of one shape): which of its errors hold placeholders for names."""

FOUND_NO_ROOM = "No room was found for the workload when it had its turn"
"""Where no refusal says more: no time was left for it, or pods that leave have made room since."""

NO_TIME = "; no time was left for the smallest set"
"""Added to the methods of a proof whose smallest set was not looked for."""

_STRENGTH: dict[ProofState, int] = {"proven": 0, "unasked": 1, "unknown": 2}

_SINGLE = frozenset(("limit", "quota", "fair-share", "rule", "size", "count"))
"""Methods whose one blocker is all that blocks."""

_BLOCKED_BY = {
    Reason.QUEUE_NOT_LEAF: "a queue with children",
    Reason.QUEUE_DOES_NOT_EXIST: "no such queue",
}
"""What blocks gangs that no action is asked for, in few words: the message says it in full."""

_BESIDE = {"earlier": "what was admitted before it", "plan": "all that this plan admits"}
"""What a proof is relative to."""

_POD = re.compile(r"\{pod:(\d+)\}")


# -- entries of the plan -----------------------------------------------------------------------------------------------


def pending_gangs(problem: Problem, outcome: Outcome, is_late: Callable[[], bool]) -> tuple[Pending, ...]:
    """One entry for every gang with pods that wait and get nothing more this cycle, by name.

    ``is_late``: asked before each entry; True where no time is left for the smallest set of what blocks.
    """
    found = [_without_queue(gang, why) for gang, why in problem.outside.values() if _waits(gang)]
    names: Names = {}
    for gang, actions in outcome.refusals.items():
        if any(outcome.state.gangs[gang].pending) or not problem.gangs[gang].pending:
            found.append(_entry(problem, outcome, gang, actions, names, late=is_late()))
    served = outcome.has_admitted() | outcome.refusals.keys()
    found += [
        _dropped(problem.gangs[gang].gang.key)
        for gang in problem.gang_columns.pending
        if gang not in served and any(outcome.state.gangs[gang].pending)
    ]
    return tuple(sorted(found, key=lambda p: p.gang))


def left_out(gang: str, text: str) -> Pending:
    """The entry of a gang that was left out of the cycle because of an unexpected error."""
    errors, proof = (FitError(Reason.SET_ASIDE.value, (text,)),), Proof("unknown", "error")
    return Pending(gang, Reason.SET_ASIDE, text, proof, errors)


def _dropped(gang: str) -> Pending:
    """A gang without a refusal and without a new place: what it got was taken back."""
    text = "What it was to get went to another workload, with the pods that it cannot run without"
    return Pending(gang, Reason.NOT_ENOUGH_RESOURCES, text, Proof("unknown", "dropped"))


def _waits(gang: Gang) -> bool:
    return any(pod.status is PodStatus.PENDING for pod in gang.pods)


def _without_queue(gang: Gang, why: str) -> Pending:
    if gang.set_aside:
        reason = Reason.SET_ASIDE
    elif "not a leaf" in why:
        reason = Reason.QUEUE_NOT_LEAF
    else:
        reason = Reason.QUEUE_DOES_NOT_EXIST
    errors = (FitError(reason.value, (why,)),)
    _, _, cause = why.partition("takes no part: ")
    if reason is Reason.SET_ASIDE and not cause:
        blocker = Blocker("gang", gang.key, "a gang that can be used", "was set aside")
    else:
        blocker = Blocker(
            "queue", gang.queue, "a leaf queue", f"set aside, as {cause}" if cause else _BLOCKED_BY[reason]
        )
    return Pending(gang.key, reason, why, Proof("proven", "rule", (blocker,)), errors)


def _entry(
    problem: Problem, outcome: Outcome, gang: int, actions: dict[Action, Refusal], names: Names, *, late: bool
) -> Pending:
    """The entry, with a plainer text where an unexpected error stops the search for a better one."""
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
    """A plain reason where the text of a better one fails."""
    reason = next(iter(actions.values())).reason
    text = f"{reason.value}; the details could not be worked out ({caught('explaining', gang, error)})"
    return Pending(gang, reason, text, Proof("unknown", "error"), (FitError(reason.value, (text,)),))


def _pending(
    problem: Problem, outcome: Outcome, gang: int, actions: dict[Action, Refusal], names: Names, *, late: bool
) -> Pending:
    """The first action's text (what is short), or the rule that forbids; a proof only where every action has one.

    A gang that is in its preemption delay gets KAI's reason for that beside what is short (1.13).
    """
    action, first = next(
        ((a, refusal) for a, refusal in actions.items() if refusal.message), next(iter(actions.items()))
    )
    delay = next((refusal for refusal in actions.values() if refusal.reason is Reason.PREEMPTION_DELAY), first)
    message = (first.message or FOUND_NO_ROOM) if delay is first else f"{first.message}\n{delay.message}"
    states = [refusal.proof.state for refusal in actions.values()]
    state = max(states, key=_STRENGTH.__getitem__)
    asked = ((action.value, refusal.proof.method) for action, refusal in actions.items())
    methods = [f"{name}: {method}" if method else name for name, method in asked]
    blocking, minimal = named_blockers(actions.values()) if late else blocking_set(actions.values())
    hurried = NO_TIME if late and state == "proven" and any(r.evidence is not None for r in actions.values()) else ""
    pods = outcome.asked.get((gang, action), ())
    held = (
        rule.sentence.format(name=blocker.name, have=blocker.have)
        for blocker in blocking
        if (rule := rule_of_kind(blocker.kind)) is not None and rule.sentence
    )
    return Pending(
        problem.gangs[gang].gang.key,
        delay.reason,
        _with_names(problem, gang, pods, "\n".join((message, *held))),
        Proof(
            state,
            "; ".join(methods) + hurried,
            blocking,
            minimal and state == "proven",
            _beside(actions),
            next((refusal.proof.at_most for refusal in actions.values() if refusal.proof.at_most is not None), None),
        ),
        tuple(_errors(problem, outcome, gang, actions, names)),
    )


def _beside(actions: Mapping[Action, Refusal]) -> Literal["earlier", "plan"]:
    """A proof that any action has from the end of the cycle is beside all that the plan admits."""
    return "plan" if any(refusal.proof.beside == "plan" for refusal in actions.values()) else "earlier"


def blocking_set(refusals: Iterable[Refusal]) -> tuple[tuple[Blocker, ...], bool]:
    """What blocks a gang in all actions together, and whether nothing of it can be left out.

    What no node, or no empty cluster, could serve needs no more words. Else every action has its set; an element that
    several sets have is one, with the least amount that helps.
    """
    every = list(refusals)
    size = next((refusal.proof.blocking for refusal in every if refusal.proof.method == "size"), ())
    if size:
        return size, True
    for refusal in every:
        ever = refusal.evidence.blocking_ever() if refusal.evidence is not None else ()
        if ever:
            return ever, True
    merged: dict[tuple[str, str, str, str], Blocker] = {}
    minimal = True
    for refusal in every:
        found = refusal.evidence.blocking() if refusal.evidence is not None else ()
        alone = refusal.evidence is None and refusal.proof.method in _SINGLE and len(refusal.proof.blocking) == 1
        minimal &= bool(found) or alone
        for blocker in found or refusal.proof.blocking:
            key = (blocker.kind, blocker.name, blocker.where, blocker.resource)
            known = merged.get(key, blocker)
            merged[key] = blocker if blocker.short < known.short else known
    return tuple(merged.values()), minimal


def named_blockers(refusals: Iterable[Refusal]) -> tuple[tuple[Blocker, ...], bool]:
    """The blockers that the refusals name; whether one of them could be left out is not known."""
    return tuple(dict.fromkeys(b for refusal in refusals for b in refusal.proof.blocking)), False


def _errors(
    problem: Problem, outcome: Outcome, gang: int, actions: dict[Action, Refusal], names: Names
) -> Iterator[FitError]:
    """KAI's errors of the first action that has any, then what KAI adds in the actions that evict.

    That is one line for the preemption delay, and one for each action for a pod larger than every node.
    """
    delayed = False
    for number, (action, refusal) in enumerate(actions.items()):
        is_delay = refusal.reason is Reason.PREEMPTION_DELAY
        if not number or refusal.proof.method == "size" or (is_delay and not delayed):
            if id(refusal) not in names:
                names[id(refusal)] = tuple(map(_holds_names, refusal.fit_errors))
            pods = outcome.asked.get((gang, action), ())
            for error, holds_names in zip(refusal.fit_errors, names[id(refusal)], strict=True):
                yield _named(problem, gang, pods, error) if holds_names else error
        delayed |= is_delay


def _with_names(problem: Problem, gang: int, pods: tuple[int, ...], text: str) -> str:
    """``text`` with the names of ``gang`` and of the ``pods`` that it asked a place for."""
    if "{" not in text:
        return text
    named = text.replace(GANG, problem.gangs[gang].gang.key)
    return _POD.sub(lambda found: problem.pods[pods[int(found[1])]].key if int(found[1]) < len(pods) else "?", named)


def _holds_names(error: FitError) -> bool:
    """True where ``error`` has placeholders for the names of a gang or its pods."""
    return error.queue is None and any("{" in text for text in (*error.messages, *error.detailed))


def _named(problem: Problem, gang: int, pods: tuple[int, ...], error: FitError) -> FitError:
    """``error``, which holds placeholders, with the names of ``gang`` and ``pods`` put in."""
    messages = tuple([_with_names(problem, gang, pods, text) for text in error.messages])
    detailed = tuple([_with_names(problem, gang, pods, text) for text in error.detailed])
    return FitError(error.reason, messages, detailed, error.subgroup, error.domain)


# -- texts of events and conditions ------------------------------------------------------------------------------------

NO_POD_GROUP = "Unable to schedule podgroup"
"""KAI's reason where there are several errors, or none (``common_info/job_errors.go``)."""


def pending_text(pending: Pending) -> str:
    """KAI's short message, then what the engine knows beyond it: Kubernetes' words, a cure, a proof."""
    more = pending.message
    for error in pending.fit_errors:
        for text in error.messages:
            more = more.replace(text, "")
    lines = [short_message(pending.fit_errors)] if pending.fit_errors else []
    lines += [line for line in more.strip().splitlines() if line.strip(" .")]
    sentence = proof_sentence(pending.proof)
    return "\n".join([*lines, sentence] if sentence else lines)


def proof_sentence(proof: Proof) -> str:
    """What is proven of a gang, by itself or together with others; empty where nothing is."""
    if proof.state == "proven" and proof.method:
        return f"Proven: no allowed plan runs it beside {_BESIDE[proof.beside]}."
    if proof.at_most is None:
        return ""
    gangs, most = proof.at_most.gangs, proof.at_most.most
    return (
        f"Proven: of {gangs} workloads that wait, this one among them, at most {most} can run beside all that this "
        f"plan admits; at least {gangs - most} have to wait."
    )


def short_message(errors: Sequence[FitError]) -> str:
    """The reason, then every distinct text with its count where it is more than one."""
    counts = Counter(text for error in errors for text in error.messages)
    lines = sorted(f"{count} {text}" if count > 1 else text for text, count in counts.items())
    return _reason(errors) + (": " + ". \n".join(lines) + "." if lines else "")


def detailed_message(errors: Sequence[FitError]) -> str:
    """One line an error, sorted, after the reason: what ``--detailed-fit-errors`` shows."""
    lines = sorted(f"\n{_detailed(error)}." for error in errors)
    return f"\n{_reason(errors)}." + "".join(lines)


def _reason(errors: Sequence[FitError]) -> str:
    return errors[0].reason if len(errors) == 1 else NO_POD_GROUP


def _detailed(error: FitError) -> str:
    text = ", ".join(error.detailed or error.messages)
    if error.subgroup not in ("", "default"):
        text = f"subgroup {error.subgroup}: {text}"
    return f"<{error.domain}>: {text}" if error.domain else text


def scheduling_condition(
    gang: Gang, pending: Pending, gpu_resource: str, node_pool: str = "default"
) -> dict[str, Any] | None:
    """The condition ``UnschedulableOnNodePool`` of a PodGroup's ``status.schedulingConditions``, as plain data.

    None where KAI writes none: while a pod of the gang is active, and for a gang that is not ready.
    ``lastTransitionTime`` and ``transitionID`` are left to the writer of the status: they depend on the present one.
    """
    if pending.reason is Reason.NOT_READY or any(pod.status.is_active for pod in gang.pods):
        return None
    return {
        "type": "UnschedulableOnNodePool",
        "nodePool": node_pool,
        "reason": "Unschedulable",
        "message": pending_text(pending),
        "status": "True",
        "reasons": [_explanation(error, gpu_resource) for error in pending.fit_errors],
    }


def _explanation(error: FitError, gpu_resource: str) -> dict[str, Any]:
    """KAI's ``UnschedulableExplanation``."""
    entry: dict[str, Any] = {"reason": error.reason, "message": ", ".join(error.messages)}
    if error.queue is not None:
        entry["details"] = {"queueDetails": _queue_details(error.queue, gpu_resource)}
    return entry


def _queue_details(queue: QueueDetails, gpu_resource: str) -> dict[str, Any]:
    amounts = {
        "queueRequestedResources": queue.requested,
        "queueDeservedResources": queue.deserved,
        "queueAllocatedNonPreemptibleResources": queue.allocated_fixed,
        "podGroupRequestedResources": queue.gang_requested,
        "podGroupRequestedNonPreemptibleResources": queue.gang_fixed,
        "queueAllocatedResources": queue.allocated,
        "queueResourceLimits": queue.limits,
    }
    return {"name": queue.name} | {key: resource_list(vector, gpu_resource) for key, vector in amounts.items()}


def resource_list(amounts: QueueVector, gpu_resource: str) -> dict[str, str]:
    """Kubernetes quantities; -1 of a resource is unlimited. Parts of a GPU are in thousandths (KAI drops them)."""
    cpu, memory, gpu = amounts
    return {"cpu": _milli(cpu), "memory": str(memory), gpu_resource: _milli(gpu)}


def _milli(amount: int) -> str:
    if amount == -1:
        return "-1"
    return str(amount // MILLI) if amount % MILLI == 0 else f"{amount}m"
