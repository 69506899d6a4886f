"""Gangs that stay pending: the reason that matters to their owner, and what the rungs proved together."""

from collections.abc import Iterator

from kai_solver.domain import Blocker, FitError, Gang, Pending, PodStatus, Proof, Reason, Rung
from kai_solver.domain.plan import ProofState
from kai_solver.greedy import Outcome, Refusal
from kai_solver.greedy.fit_errors import for_gang, named
from kai_solver.reduction import Problem

_STRENGTH: dict[ProofState, int] = {"proven": 0, "unasked": 1, "unknown": 2}


def pending_gangs(problem: Problem, outcome: Outcome) -> tuple[Pending, ...]:
    """One entry for every gang with pods that wait and get nothing more this cycle, by name."""
    found = [_outside(gang, why) for gang, why in problem.outside.values() if _waits(gang)]
    for gang, rungs in outcome.refusals.items():
        if any(outcome.state.gangs[gang].pending) or not problem.gangs[gang].pending:
            found.append(_pending(problem, outcome, gang, rungs))
    found += [_dropped(problem.gangs[g].gang.key) for g in _without_a_word(problem, outcome)]
    return tuple(sorted(found, key=lambda p: p.gang))


def _without_a_word(problem: Problem, outcome: Outcome) -> list[int]:
    """Gangs that wait, were refused by no rung, and hold nothing new: what they got was taken back."""
    served = outcome.has_admitted() | outcome.refusals.keys()
    return [
        g.index
        for g in problem.gangs
        if g.index not in served and g.pending and any(outcome.state.gangs[g.index].pending)
    ]


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


def _pending(problem: Problem, outcome: Outcome, gang: int, rungs: dict[Rung, Refusal]) -> Pending:
    """The first rung's words (what lacks), or the rule that forbids; a proof only where every rung has one.

    A gang that may not have others disturbed yet is told that beside what lacks: KAI has a reason for it (1.13).
    """
    rung, first = next(((r, refusal) for r, refusal in rungs.items() if refusal.message), next(iter(rungs.items())))
    delay = next((refusal for refusal in rungs.values() if refusal.reason is Reason.PREEMPTION_DELAY), first)
    message = first.message if delay is first else f"{first.message}\n{delay.message}"
    states = [refusal.proof.state for refusal in rungs.values()]
    state = max(states, key=_STRENGTH.__getitem__)
    blocking: dict[Blocker, None] = {}
    methods: dict[str, None] = {}
    for asked, refusal in rungs.items():
        methods[f"{asked.value}: {refusal.proof.method}" if refusal.proof.method else asked.value] = None
        blocking.update(dict.fromkeys(refusal.proof.blocking))
    pods = outcome.asked.get((gang, rung), ())
    return Pending(
        problem.gangs[gang].gang.key,
        delay.reason,
        for_gang(problem, gang, pods, message),
        Proof(state, "; ".join(methods), tuple(blocking)),
        tuple(_errors(problem, outcome, gang, rungs)),
    )


def _errors(problem: Problem, outcome: Outcome, gang: int, rungs: dict[Rung, Refusal]) -> Iterator[FitError]:
    """KAI's errors of the first rung that has any, then what KAI adds on the rungs that evict.

    That is one line for the preemption delay, and one a rung for a pod larger than every node.
    """
    delayed = False
    for number, (rung, refusal) in enumerate(rungs.items()):
        is_delay = refusal.reason is Reason.PREEMPTION_DELAY
        if not number or refusal.proof.method == "size" or (is_delay and not delayed):
            pods = outcome.asked.get((gang, rung), ())
            yield from (named(problem, gang, pods, error) for error in refusal.fit_errors)
        delayed |= is_delay
