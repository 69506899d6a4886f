"""What every GPU of a topology's nodes does: domain by domain, node by node, with the queues that hold it."""

from collections import Counter
from dataclasses import dataclass

from kai_solver.domain import Snapshot
from kai_solver.explaining.domain_lines import inner_domains
from kai_solver.problem import build_problem
from kai_solver.units.shares import WHOLE

FOREIGN = ""
"""Stands for pods of other schedulers where a queue is expected."""


@dataclass(frozen=True, slots=True)
class NodeBoard:
    """The GPUs of one node.

    Attributes
    ----------
    takes_pods
        False for a node that is cordoned or not ready.
    held
        For each GPU, by queue, which part of it is held (0 to 1); nothing for a free one.
    gangs
        Names of the gangs that hold GPUs there, the largest share first.
    """

    name: str
    takes_pods: bool
    held: tuple[dict[str, float], ...]
    gangs: tuple[str, ...]

    @property
    def free(self) -> float:
        """GPUs that can be had; none on a node that takes no pods."""
        return sum(max(1.0 - sum(parts.values()), 0.0) for parts in self.held) if self.takes_pods else 0.0

    @property
    def is_idle(self) -> bool:
        """Whether none of its GPUs is in use, and pods may come."""
        return self.takes_pods and bool(self.held) and not any(self.held)


@dataclass(frozen=True, slots=True)
class DomainBoard:
    """An innermost domain of a topology (a rack, say), with its nodes by name."""

    name: str
    nodes: tuple[NodeBoard, ...]

    @property
    def gpus(self) -> int:
        """GPUs of its nodes."""
        return sum(len(node.held) for node in self.nodes)

    @property
    def free(self) -> float:
        """GPUs that can be had."""
        return sum(node.free for node in self.nodes)


def rack_boards(snapshot: Snapshot, topology: str = "") -> dict[str, tuple[DomainBoard, ...]]:
    """The innermost domains of every topology, or of the one named; of single nodes' levels, those above."""
    problem = build_problem(snapshot)
    held: list[list[dict[str, float]]] = [[{} for _ in range(count)] for count in problem.gpus.tolist()]
    by_gang: list[Counter[str]] = [Counter() for _ in problem.nodes]
    for pod, devices in problem.held_devices.items():
        node, gang = problem.pod_node[pod], problem.pod_gang[pod]
        if node < 0:
            continue
        part = problem.pods[pod].gpu.parts_on(problem.nodes[node].gpu_memory_mib) / WHOLE
        queue = problem.gangs[gang].gang.queue if gang >= 0 else FOREIGN
        for device in devices:
            if device < len(held[node]):
                parts = held[node][device]
                parts[queue] = parts.get(queue, 0.0) + part
        if gang >= 0:
            by_gang[node].update({problem.gangs[gang].gang.key: part * len(devices)})
    boards = [
        NodeBoard(node.name, node.schedulable, tuple(held[at]), tuple(key for key, _ in by_gang[at].most_common()))
        for at, node in enumerate(problem.nodes)
    ]
    found = {}
    for name in [topology] if topology else sorted(problem.domains):
        tree = problem.domains[name]
        domains = tuple(inner_domains(tree))
        deepest = max(domain.level for domain in domains)
        found[name] = tuple(
            DomainBoard(tree.title(domain), tuple(boards[node] for node in tree.nodes_of(domain).tolist()))
            for domain in domains
            if domain.level == deepest
        )
    return found
