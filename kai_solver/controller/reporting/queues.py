"""Queues in numbers, on the Queues themselves (docs/kai-behaviour.md#status-and-metrics, #queue-object)."""

from dataclasses import dataclass, field

from kai_solver.cluster.resources import QUEUES
from kai_solver.cluster.writer import Order
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Gang
from kai_solver.errors.barrier import barrier
from kai_solver.explain import queue_line
from kai_solver.problem import Problem
from kai_solver.reasons.pending import resource_list

EVERY_S = 5.0
"""The least seconds between two writes of one queue's status."""

REASON = "QueueMissing"
WITHOUT = (
    "Running pods stay, but count in no queue: none is reclaimed or preempted, and none is added. "
    "Create the queue again, or name another"
)


@dataclass(slots=True)
class Queues:
    """Writes changes of what queues hold and ask for, and events for gangs whose queue is gone."""

    context: ReportContext
    _without: dict[str, str] = field(default_factory=dict)
    """Gangs with such an event, and its reason."""

    def cycle(self, problem: Problem) -> None:
        """All queues that take part."""
        tree, gpu_name = problem.queues, problem.policy.gpu_resources[0]
        for index, name in enumerate(tree.names):
            with barrier("reporting", name):
                self._report(problem, index, gpu_name)
        without = {gang.key: (gang, why) for gang, why in problem.without_queue}
        for key, (gang, why) in without.items():
            if self._without.get(key) != why:
                with barrier("reporting", key):
                    self._report_without(gang, why)
        self._without = {key: why for key, (_, why) in without.items()}

    def _report_without(self, gang: Gang, why: str) -> None:
        """An event on its PodGroup, else on its pods that run."""
        if self.context.pod_group(gang.key) is not None:
            self.context.report_gang(gang.key, "Warning", REASON, f"{why}. {WITHOUT}")
            return
        for pod in gang.pods:
            if pod.status.is_active:
                self.context.events.report(self.context.about_pod(pod.key), "Warning", REASON, f"{why}. {WITHOUT}")

    def _report(self, problem: Problem, index: int, gpu_name: str) -> None:
        tree, line = problem.queues, queue_line(problem, problem, index)
        wanted = {
            "childQueues": sorted(tree.names[child] for child in tree.children[index]),
            "allocated": resource_list(line.allocated, gpu_name),
            "allocatedNonPreemptible": resource_list(line.non_preemptible, gpu_name),
            "requested": resource_list(line.requested, gpu_name),
        }
        change = changes.status(wanted)
        self.context.statuses.patch(
            QUEUES, tree.names[index], change, topic="status", order=Order.LATER, every_s=EVERY_S
        )
