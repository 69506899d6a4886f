"""What would have to change for a pending gang to run, from what blocks it."""

from collections.abc import Iterator, Sequence

from kai_solver.domain import Gang, Pending, PodStatus, Reason
from kai_solver.domain.gpus import resource_like
from kai_solver.errors import nearest
from kai_solver.explaining.explanation import PodFit, QueueLine
from kai_solver.explaining.node_fit import required_pods
from kai_solver.problem import GangShape, Problem
from kai_solver.units import QUEUE_RESOURCES, UNLIMITED, counted, format_amount


def needed_changes(
    after: Problem,
    shape: GangShape | None,
    gang: Gang,
    chain: Sequence[QueueLine],
    fits: Sequence[PodFit],
    pending: Pending,
) -> tuple[str, ...]:
    """Sentences, the nearest cause first."""
    found = list(_readiness(gang))
    found += _outside(after, gang, pending)
    if shape is not None:
        found += _queue_changes(chain, next_charge(after, shape), gang.preemptible)
    if not _is_about_queues(pending):
        found += _node_changes(after, fits)
    found += _rule_changes(pending, alone=not found)
    return tuple(dict.fromkeys(found))


def next_charge(after: Problem, gang: GangShape) -> tuple[int, int, int]:
    """What the queues would pay for the gang's next allocation unit (docs/kai-behaviour.md#surplus)."""
    charges = [after.charges[pod] for pod in required_pods(gang)]
    cpu, memory, gpu = (sum(charge[r] for charge in charges) for r in range(3))
    return cpu, memory, gpu


def _readiness(gang: Gang) -> Iterator[str]:
    gated = sum(pod.status is PodStatus.GATED for pod in gang.pods)
    for podset in gang.root.podsets():
        alive = sum(p.status.is_alive and p.status is not PodStatus.GATED for p in gang.pods if p.podset == podset.name)
        if alive < podset.min_member:
            where = "" if podset.name == "default" else f" in sub-group {podset.name}"
            gates = f" ({gated} gated)" if gated else ""
            more = counted(podset.min_member - alive, "more pod")
            yield f"Create {more}{where}: {podset.min_member} needed, {alive} ready{gates}"


def _outside(after: Problem, gang: Gang, pending: Pending) -> Iterator[str]:
    if pending.reason is Reason.QUEUE_DOES_NOT_EXIST and "takes no part" in pending.message:
        yield f"Give the queue {gang.queue} parents that exist and lead to a root, or name another"
    elif pending.reason is Reason.QUEUE_DOES_NOT_EXIST:
        tree = after.queues
        like = nearest(gang.queue, [name for name, is_leaf in zip(tree.names, tree.is_leaf, strict=True) if is_leaf])
        yield f"Create the queue {gang.queue}, or name another" + (f": did you mean {like}?" if like else "")
    elif pending.reason is Reason.QUEUE_NOT_LEAF:
        yield f"Name a queue without children: {gang.queue} has some"
    elif gang.set_aside:
        yield f"Mend what set the gang aside: {gang.set_aside}"


def _queue_changes(chain: Sequence[QueueLine], charge: tuple[int, int, int], preemptible: bool) -> Iterator[str]:
    for line in chain:
        for r, resource in enumerate(QUEUE_RESOURCES):
            over = line.allocated[r] + charge[r] - line.limit[r]
            if charge[r] and line.limit[r] != UNLIMITED and over > 0:
                yield _raise_text("limit", line, line.limit[r], line.allocated[r], resource, over)
            over = line.non_preemptible[r] + charge[r] - line.quota[r]
            if charge[r] and not preemptible and line.quota[r] != UNLIMITED and over > 0:
                text = _raise_text("quota", line, line.quota[r], line.non_preemptible[r], resource, over)
                yield f"{text}, or make the workload preemptible"


def _raise_text(what: str, line: QueueLine, have: int, used: int, resource: str, over: int) -> str:
    return (
        f"Raise the {what} of queue {line.name} by {format_amount(resource, over)} "
        f"(now {format_amount(resource, have)}, in use {format_amount(resource, used)})"
    )


def _is_about_queues(pending: Pending) -> bool:
    """Whether it is proven that limits and quotas of queues block, and nothing else: free room would not help."""
    blocking = pending.proof.blocking
    is_proven = pending.proof.state == "proven" and pending.proof.minimal
    return is_proven and bool(blocking) and all(blocker.kind in ("queue-limit", "queue-quota") for blocker in blocking)


def _node_changes(after: Problem, fits: Sequence[PodFit]) -> Iterator[str]:
    for fit in fits:
        if fit.room >= fit.required:
            continue
        if fit.beyond.startswith("0 "):
            yield _absent(after, fit.beyond.removeprefix("0 "))
            continue
        if fit.beyond:
            yield f"No node has more than {fit.beyond}: ask for no more than that in a pod, or add larger nodes"
            continue
        if 0 < fit.at_most < fit.required:
            yield (
                f"The nodes hold at most {fit.at_most} pods of {fit.request} if nothing else runs, and {fit.required} "
                "are needed: ask for fewer or smaller pods, or add nodes"
            )
            continue
        nearest = f"; nearest: {fit.nearest}" if fit.nearest else ""
        if not fit.fitting_nodes and not fit.nearest:
            nearest = "; no node admits them as they are written"
        yield f"Free room for {counted(fit.required - fit.room, 'more pod')} of {fit.request}{nearest}"


def _absent(after: Problem, name: str) -> str:
    if name not in after.snapshot.schema.names:  # GPUs, CPU cores
        return f"No node has any {name}: add nodes that have some"
    like = resource_like(name, after.snapshot)
    return f"No node has any {name}: " + (f"did you mean {like}?" if like else "correct the name, or add such nodes")


def _rule_changes(pending: Pending, *, alone: bool) -> Iterator[str]:
    """What to do about pods that lack something outside, and (``alone``: nothing else is said) about joint rules."""
    blocking = pending.proof.blocking
    for blocker in blocking:
        if blocker.kind == "pod":
            yield f"Mend what pod {blocker.name} waits for: {blocker.have}"
    if not alone or pending.reason not in _TOGETHER:
        return
    if not any(blocker.kind == "pod" for blocker in blocking):
        yield _TOGETHER[pending.reason]


_TOGETHER = {
    Reason.TOPOLOGY: "Free room within one domain of the required level, or require a wider level",
    Reason.PLACEMENT: "Loosen the placement of its workload or queue, or add nodes",
    Reason.NOT_ENOUGH_RESOURCES: (
        "Each of its pods has room alone, all that are required have not: loosen the rules named above, or add nodes"
    ),
}
"""Where every kind of pod has room by itself, so that only what they must hold together stands in the way."""
