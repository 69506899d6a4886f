"""Texts of events that users and tools match on, as KAI writes them (reference 1.13, 3.14)."""

from kai_solver.domain import Rung
from kai_solver.fairness import levelled
from kai_solver.reduction import GangShape, Problem
from kai_solver.units import QUEUE_RESOURCES, format_amount


def eviction_message(problem: Problem, pod: int, rung: Rung, gangs: tuple[int, ...]) -> str:
    """What the event on an evicted pod says; ``gangs``: for whom it goes."""
    key = problem.pods[pod].key
    gang = problem.gangs[problem.pod_gang[pod]]
    if rung is Rung.STALE:
        return _stale_message(gang, key)
    names = ", ".join(problem.gangs[g].gang.key for g in gangs)
    if rung is Rung.PREEMPT:
        return f"Pod {key} was preempted by higher priority workload {names}"
    pairs = [levelled(problem.queues, problem.gangs[g].queue, gang.queue) for g in gangs]
    queues = dict.fromkeys([victim for _, victim in pairs] + [reclaimer for reclaimer, _ in pairs])
    return "\n".join([f"Pod {key} was preempted by workload {names}.", *(queue_line(problem, q) for q in queues)])


def _stale_message(gang: GangShape, key: str) -> str:
    short = next((leaf for leaf in gang.leaves if len(leaf.active) < leaf.min_member), gang.leaves[0])
    where = f" in sub-group {short.name}" if len(gang.leaves) > 1 else ""
    return (
        f"Workload doesn't meet the minimum required number of pods ({short.min_member}){where}, "
        f"evicting remaining pod: {key}"
    )


def queue_line(problem: Problem, queue: int) -> str:
    """``<queue> uses <...> with a quota of <...>, fair-share of <...> and queue priority of <d>.``"""
    tree = problem.queues

    def words(amounts: list[int] | tuple[int, int, int]) -> str:
        return ", ".join(format_amount(r, a) for r, a in zip(QUEUE_RESOURCES, amounts, strict=True))

    return (
        f"{tree.title(queue)} uses <{words(problem.allocated[queue])}> with a quota of "
        f"<{words(tree.quotas[queue])}>, fair-share of <{words(problem.share[queue])}> "
        f"and queue priority of <{tree.priority[queue]}>."
    )
