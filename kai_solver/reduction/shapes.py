"""Shapes: pods that no rule of placement can tell apart are one shape."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Constraints, GpuRequest, Node, Pod
from kai_solver.predicates import NodePredicates
from kai_solver.reduction.podrules import Labels, PodRules
from kai_solver.units import Vector

BEYOND = 1 << 50
"""More of anything than a node has (1 PiB, 10^12 cores): larger requests are cut to it: sums stay in 64 bits."""

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks of a node.

    ``affinity_labels`` is empty unless the pod carries rules between pods, or such a rule speaks of it: only then do
    its namespace, and the labels that rules look at, tell it from its likes.
    """

    request: Vector
    gpu: GpuRequest
    constraints: Constraints
    affinity_labels: tuple[tuple[str, str], ...] = ()

    @property
    def relates_to_pods(self) -> bool:
        """True where other pods' places matter (affinity, anti-affinity, spread, host ports)."""
        return self.constraints.binds_pods


def shape_of(pod: Pod, labels: Labels = ()) -> Shape:
    """The shape of ``pod``; ``labels`` as ``PodRules`` tells."""
    request = pod.request if max(pod.request) <= BEYOND else tuple(min(amount, BEYOND) for amount in pod.request)
    return Shape(request, pod.gpu, pod.constraints, labels)


class ShapeTable:
    """Shapes by index, with the nodes that admit each, computed once and only when asked for."""

    def __init__(self, nodes: tuple[Node, ...], predicates: NodePredicates, rules: PodRules) -> None:
        self._rules = rules
        self.shapes: list[Shape] = []
        self._index: dict[Shape, int] = {}
        self._by_parts: dict[tuple[int, Vector, GpuRequest], int] = {}
        self._masks: dict[int, BoolArray] = {}
        self._millis: dict[int, IntArray] = {}
        self._predicates = predicates
        self._gpu_memory = [node.gpu_memory_mib for node in nodes]

    def index(self, pod: Pod) -> int:
        """Index of the pod's shape, added when new."""
        c = pod.constraints
        labels = self._rules.labels_of(pod)
        if labels:
            return self._intern(shape_of(pod, labels))
        # Importers share Constraints objects, so identity is a cheap first key: hashing them deeply costs 10 µs.
        parts = (id(c), pod.request, pod.gpu)
        found = self._by_parts.get(parts)
        if found is None:
            found = self._by_parts[parts] = self._intern(shape_of(pod))
        return found

    def _intern(self, shape: Shape) -> int:
        found = self._index.get(shape)
        if found is None:
            found = self._index[shape] = len(self.shapes)
            self.shapes.append(shape)
        return found

    def mask(self, shape: int) -> BoolArray:
        """(N,) True where the nodes' own properties admit the shape (not capacity, not other pods)."""
        found = self._masks.get(shape)
        if found is None:
            constraints = self.shapes[shape].constraints
            found = self._predicates.node_mask(constraints)
            if constraints.blocked:
                found = np.zeros_like(found)
            self._masks[shape] = found
        return found

    def milli(self, shape: int) -> IntArray:
        """(N,) thousandths of each device that the shape takes on each node; 0 for shapes without GPUs."""
        found = self._millis.get(shape)
        if found is None:
            gpu = self.shapes[shape].gpu
            values = [gpu.milli_on(memory) if gpu.devices else 0 for memory in self._gpu_memory]
            found = self._millis[shape] = np.array(values, dtype=np.int64)
        return found
