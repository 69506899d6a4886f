"""Queues in numbers, on the Queues themselves (docs/kai-behaviour.md#status-and-metrics, #queue-object)."""

from collections import Counter
from dataclasses import dataclass, field

from kai_solver.cluster.resources import QUEUES
from kai_solver.cluster.writer import Order
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.claimed import ClaimedGpus, amounts_beside
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Gang, PodStatus
from kai_solver.errors.barrier import barrier
from kai_solver.explaining import queue_line
from kai_solver.problem import Problem

EVERY_S = 5.0
"""The least seconds between two writes of one queue's status."""

REASON = "QueueMissing"
WITHOUT = (
    "Running pods stay, but count in no queue: none is reclaimed or preempted, and none is added. "
    "Create the queue again, or name another"
)


@dataclass(slots=True)
class _Claimed:
    """GPUs by claim in a queue and all below it, by device class."""

    allocated: Counter[str] = field(default_factory=Counter)
    non_preemptible: Counter[str] = field(default_factory=Counter)
    requested: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Queues:
    """Writes changes of what queues hold and ask for, and events for gangs whose queue is gone."""

    context: ReportContext
    _without: dict[str, str] = field(default_factory=dict)
    """Gangs with such an event, and its reason."""

    def cycle(self, problem: Problem, *, sums: bool = True) -> None:
        """All queues that take part; without ``sums`` their statuses are left alone."""
        claimed = _claimed(problem) if sums else ()
        for index, name in enumerate(problem.queues.names) if sums else ():
            with barrier("reporting", name):
                self._report(problem, index, claimed[index])
        without = {gang.key: (gang, why) for gang, why in problem.without_queue}
        for key, (gang, why) in without.items():
            if self._without.get(key) != why:
                with barrier("reporting", key):
                    self._report_without(gang, why)
        self._without = {key: why for key, (_, why) in without.items()}

    def _report_without(self, gang: Gang, why: str) -> None:
        """An event on its PodGroup, else on its pods that run; on both for a plain pod, whose PodGroup is ours."""
        if self.context.pod_group(gang.key) is not None:
            self.context.report_gang(gang.key, "Warning", REASON, f"{why}. {WITHOUT}")
            if len(gang.pods) > 1:
                return
        for pod in gang.pods:
            if pod.status.is_active:
                self.context.events.report(self.context.about_pod(pod.key), "Warning", REASON, f"{why}. {WITHOUT}")

    def _report(self, problem: Problem, index: int, claimed: "_Claimed") -> None:
        tree, line, gpu_name = problem.queues, queue_line(problem, problem, index), problem.policy.gpu_resources[0]
        wanted = {
            "childQueues": sorted(tree.names[child] for child in tree.children[index]),
            "allocated": amounts_beside(line.allocated, gpu_name, claimed.allocated),
            "allocatedNonPreemptible": amounts_beside(line.non_preemptible, gpu_name, claimed.non_preemptible),
            "requested": amounts_beside(line.requested, gpu_name, claimed.requested),
        }
        change = changes.status(wanted)
        self.context.statuses.patch(
            QUEUES, tree.names[index], change, topic="status", order=Order.LATER, every_s=EVERY_S
        )


def _claimed(problem: Problem) -> list[_Claimed]:
    """By queue; a claim that several gangs use counts in each."""
    tree, gpus = problem.queues, ClaimedGpus(problem.snapshot.claims)
    found = [_Claimed() for _ in tree.names]
    for shape in problem.gangs if gpus else ():
        gang = shape.gang
        allocated = gpus.of(pod for pod in gang.pods if pod.status.is_active)
        requested = gpus.of(pod for pod in gang.pods if pod.status.is_alive or pod.status is PodStatus.BINDING)
        for queue in tree.path[shape.queue]:
            found[queue].allocated += allocated
            found[queue].requested += requested
            if not gang.preemptible:
                found[queue].non_preemptible += allocated
    return found
