"""The text on an evicted pod, as KAI writes it (docs/kai-behaviour.md#eviction-messages)."""

from kai_solver.domain import Action, Pod
from kai_solver.errors.barrier import caught
from kai_solver.fairness import levelled
from kai_solver.problem import GangShape, Problem
from kai_solver.reasons.node_reasons import amounts_text
from kai_solver.reasons.refusals import queue_vector


class EvictionTexts:
    """Texts of one plan; lines about queues are made once."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._drained = problem.drained
        self._lines: dict[int, str] = {}
        self._levels: dict[tuple[int, tuple[int, ...]], str] = {}

    def text(self, pod: int, action: Action, gangs: tuple[int, ...]) -> str:
        """The message of the event on an evicted pod; ``gangs``: those it is evicted for."""
        try:
            return self._text(pod, action, gangs)
        except Exception as error:
            key = self._problem.pods[pod].key
            caught("explaining", key, error)
            return f"Pod {key} was evicted by {action.value}"

    def moved(self, pod: int, why: str) -> str:
        """The message of the event on a pod that moves for no gang, but because of what ``why`` says."""
        return f"Pod {self._problem.pods[pod].key} was evicted and moves because {why}"

    def _text(self, pod: int, action: Action, gangs: tuple[int, ...]) -> str:
        problem = self._problem
        key, gang = problem.pods[pod].key, problem.gangs[problem.pod_gang[pod]]
        if action is Action.STALE and gang.index in self._drained:
            return f"Pod {key} was evicted because its queue {problem.queues.title(gang.queue)} is being drained"
        if action is Action.STALE:
            return _stale_message(gang, problem.pods[pod])
        if action is Action.CONSOLIDATION:
            return f"Pod {key} was preempted and rescheduled due to bin packing (resource consolidation) procedure"
        names = ", ".join([problem.gangs[g].gang.key for g in gangs])
        if action is Action.PREEMPT:
            return f"Pod {key} was preempted by higher priority workload {names}"
        return f"Pod {key} was preempted by workload {names}.\n{self._queues(gang.queue, gangs)}"

    def _queues(self, victim: int, gangs: tuple[int, ...]) -> str:
        """Lines of the queues on the level where victim and reclaimers are siblings."""
        reclaimers = tuple([self._problem.gangs[g].queue for g in gangs])
        found = self._levels.get((victim, reclaimers))
        if found is None:
            pairs = [levelled(self._problem.queues, reclaimer, victim) for reclaimer in reclaimers]
            queues = dict.fromkeys([theirs for _, theirs in pairs] + [mine for mine, _ in pairs])
            found = self._levels[victim, reclaimers] = "\n".join([self._line(queue) for queue in queues])
        return found

    def _line(self, queue: int) -> str:
        if queue not in self._lines:
            self._lines[queue] = queue_line(self._problem, queue)
        return self._lines[queue]


def _stale_message(gang: GangShape, pod: Pod) -> str:
    """KAI names the pod's own subgroup and its minimum; the subgroup that is short of pods is named after it."""
    own = next((leaf for leaf in gang.leaves if leaf.name == pod.podset), gang.leaves[0])
    short = next((leaf for leaf in gang.leaves if len(leaf.active) < leaf.min_member), own)
    where = "" if len(gang.leaves) == 1 and own.name == "default" else f" in sub-group {own.name}"
    lacks = "" if short is own else f". Sub-group {short.name} has {len(short.active)} of {short.min_member} pods"
    return (
        f"Workload doesn't meet the minimum required number of pods ({own.min_member}){where}, "
        f"evicting remaining pod: {pod.key}{lacks}"
    )


def queue_line(problem: Problem, queue: int) -> str:
    """``<queue> uses <...> with a quota of <...>, fair-share of <...> and queue priority of <d>.``"""
    tree = problem.queues
    uses, share = (queue_vector(amounts[queue]) for amounts in (problem.allocated, problem.share))
    return (
        f"{tree.title(queue)} uses <{amounts_text(uses)}> with a quota of <{amounts_text(tree.quotas[queue])}>, "
        f"fair-share of <{amounts_text(share)}> and queue priority of <{tree.priority[queue]}>."
    )
