"""Why a pod lost its place, in the words that KAI writes (reference 1.13 and 3.14, ``api/unschedule_info.go``)."""

from collections.abc import Iterator

from kai_solver.domain import Eviction, Gang, Move, Plan, Snapshot
from kai_solver.explain.explanation import QueueLine
from kai_solver.explain.queue_lines import queue_line
from kai_solver.reduction import Problem
from kai_solver.units import QUEUE_RESOURCES, format_amount


def eviction_text(problem: Problem, gangs: dict[str, Gang], eviction: Eviction) -> str:
    """KAI's message for one eviction.

    Parameters
    ----------
    problem
        Of the snapshot before the plan.
    gangs
        By key.
    """
    if eviction.reason == "stale":
        return stale_text(gangs[eviction.gang], eviction.pod)
    taker = eviction.helps[0] if eviction.helps else ""
    if eviction.reason == "preempt":
        return f"Pod {eviction.pod} was preempted by higher priority workload {taker}"
    lines = [f"Pod {eviction.pod} was preempted by workload {taker}."]
    if taker in gangs:
        lines += [_queue_text(line) for line in _rivals(problem, gangs[eviction.gang].queue, gangs[taker].queue)]
    return "\n".join(lines)


def move_text(move: Move) -> str:
    """KAI's message for a pod that is moved."""
    return f"Pod {move.pod} was preempted and rescheduled due to bin packing (resource consolidation) procedure"


def stale_text(gang: Gang, pod: str) -> str:
    """KAI's message for a pod of a gang that ran below its minimum for too long."""
    active: dict[str, int] = {}
    for member in gang.pods:
        active[member.podset] = active.get(member.podset, 0) + member.status.holds_resources
    for podset in gang.root.podsets():
        if active.get(podset.name, 0) < podset.min_member:
            where = "" if podset.name == "default" else f" in sub-group {podset.name}"
            return (
                f"Workload doesn't meet the minimum required number of pods ({podset.min_member}){where}, "
                f"evicting remaining pod: {pod}"
            )
    return f"Workload doesn't meet the minimum required number of pods, evicting remaining pod: {pod}"


def events_of(problem: Problem, snapshot: Snapshot, plan: Plan, gang: str) -> Iterator[str]:
    """What a plan does to the pods of ``gang``, one line a pod that loses its place."""
    gangs = {g.key: g for g in snapshot.gangs}
    for eviction in plan.evictions:
        if eviction.gang == gang:
            yield eviction.message or eviction_text(problem, gangs, eviction)
    for move in plan.moves:
        if move.gang == gang:
            yield f"{move_text(move)}; it goes from {move.source} to {move.target}"


def _rivals(problem: Problem, victim: str, taker: str) -> Iterator[QueueLine]:
    """The two queues just below the lowest common ancestor: the leaves themselves where they are siblings."""
    tree = problem.queues
    if victim not in tree.index or taker not in tree.index:
        return
    paths = [list(reversed(tree.path[tree.index[name]])) for name in (victim, taker)]
    common = 0
    while common < min(map(len, paths)) and paths[0][common] == paths[1][common]:
        common += 1
    for path in paths:
        yield queue_line(problem, problem, path[min(common, len(path) - 1)])


def _queue_text(line: QueueLine) -> str:
    return (
        f"{line.name} uses {amounts(line.allocated)} with a quota of {amounts(line.quota)}, "
        f"fair-share of {amounts(line.fair_share)} and queue priority of {line.priority}."
    )


def amounts(vector: tuple[int, int, int]) -> str:
    """``4 GPUs, 8 CPU cores, 32 GB``: GPUs first."""
    named = list(zip(QUEUE_RESOURCES, vector, strict=True))
    order = (named[2], named[0], named[1])
    return ", ".join(_amount(resource, amount) for resource, amount in order)


def _amount(resource: str, amount: int) -> str:
    return f"unlimited {resource}" if amount == -1 else format_amount(resource, amount)
