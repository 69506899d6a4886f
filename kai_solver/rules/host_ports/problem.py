"""Host ports of pods, counted by node."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.predicates import port_number, ports_clash
from kai_solver.problem import Problem

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NAME = "ports"
"""The rule, and its family of rows."""
TAKEN = "node(s) didn't have free ports for the requested pod ports"
"""Kubernetes' text for a node on which a port is taken."""


@dataclass(frozen=True, slots=True, eq=False)
class PortTable:
    """By shape that asks for any host ports: these, and those that clash with them, themselves among them."""

    asked: dict[int, tuple[str, ...]]
    clashing: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class PortCounts:
    """``pods``: (N,) pods by node, by port that any pod has had."""

    table: PortTable
    nodes: int
    pods: dict[str, IntArray] = field(default_factory=dict)

    def copy(self) -> "PortCounts":
        """The same, to be changed apart."""
        return PortCounts(self.table, self.nodes, {port: pods.copy() for port, pods in self.pods.items()})

    def add(self, shape: int, node: int, count: int) -> None:
        """``count`` pods of ``shape`` come to ``node``."""
        for port in self.table.asked[shape]:
            if port not in self.pods:
                self.pods[port] = np.zeros(self.nodes, dtype=np.int64)
            self.pods[port][node] += count

    def is_free(self, shape: int) -> BoolArray:
        """(N,) nodes where no pod has a port that one of ``shape`` asks for."""
        free = np.ones(self.nodes, dtype=np.bool_)
        for port in self.table.clashing[shape]:
            if port in self.pods:
                free &= self.pods[port] == 0
        return free

    def has_clash(self, shape: int, node: int) -> bool:
        """Whether another pod on ``node`` has a port of a pod of ``shape`` that is there."""
        own = self.table.asked[shape]
        taken = (port for port in self.table.clashing[shape] if port in self.pods)
        return any(self.pods[port][node] > own.count(port) for port in taken)


@dataclass(frozen=True, slots=True, eq=False)
class HostPorts:
    """Running pods with host ports: ``later`` without those that are leaving, ``now`` with them.

    ``held``: shape and node of those that stay.
    """

    table: PortTable
    now: PortCounts
    later: PortCounts
    held: frozenset[tuple[int, int]]

    def taken(self, shape: int) -> list[int]:
        """Nodes where a pod has, or still has, a port that one of ``shape`` asks for."""
        found: list[int] = np.flatnonzero(~self.now.is_free(shape)).tolist() if shape in self.table.asked else []
        return found

    def are_crossed(self) -> bool:
        """Whether pods run beside each other that may not come to each other."""
        return any(self.later.has_clash(shape, node) for shape, node in self.held)


def host_ports_of(problem: Problem) -> HostPorts | None:
    """Host ports of all pods; None where no pod of a gang has any: those of others ask for no place."""
    every = {shape: spec.constraints.host_ports for shape, spec in enumerate(problem.shapes.shapes)}
    asked = {shape: ports for shape, ports in every.items() if ports}
    asking = np.flatnonzero(np.isin(problem.columns.shape, list(asked)))
    if not (problem.columns.gang[asking] >= 0).any():
        return None
    table = PortTable(asked, _clashing(asked))
    now, later = PortCounts(table, len(problem.nodes)), PortCounts(table, len(problem.nodes))
    held: set[tuple[int, int]] = set()
    for number in asking.tolist():
        shape, node, status = problem.pod_shape[number], problem.pod_node[number], problem.pods[number].status
        if node >= 0 and status.holds_resources:
            now.add(shape, node, 1)
            if status is not PodStatus.RELEASING:
                later.add(shape, node, 1)
                held.add((shape, node))
    return HostPorts(table, now, later, frozenset(held))


def _clashing(asked: dict[int, tuple[str, ...]]) -> dict[int, tuple[str, ...]]:
    by_number: dict[str, dict[str, None]] = {}
    for ports in asked.values():
        for port in ports:
            by_number.setdefault(port_number(port), {})[port] = None
    found: dict[int, tuple[str, ...]] = {}
    for shape, ports in asked.items():
        near = ((port, other) for port in ports for other in by_number[port_number(port)])
        found[shape] = tuple(dict.fromkeys(other for port, other in near if ports_clash(port, other)))
    return found
