"""Shapes: pods that no rule of placement can tell apart are one shape."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Constraints, Container, GpuRequest, Node, Pod, Strategy
from kai_solver.predicates import NodePredicates
from kai_solver.problem.charges import BEYOND
from kai_solver.problem.podrules import Labels, PodRules
from kai_solver.problem.rules import Survey
from kai_solver.units import Vector

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


Traits = tuple[tuple[str, Hashable], ...]
NO_SURVEYS: Mapping[str, Survey] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Shape:
    """What a pod asks of a node.

    ``affinity_labels`` is empty unless the pod carries rules between pods, or such a rule speaks of it: only then do
    its namespace, and the labels that rules look at, tell it from its likes. ``traits``: by name of an optional rule,
    what else it tells pods apart by. ``nodes``, ``devices``: packed or spread; ``devices`` is of shared GPUs only.
    """

    request: Vector
    gpu: GpuRequest
    constraints: Constraints
    affinity_labels: tuple[tuple[str, str], ...] = ()
    traits: Traits = ()
    nodes: Strategy = "binpack"
    devices: Strategy = "binpack"

    def trait(self, rule: str) -> Hashable | None:
        """What the optional rule of that name tells the pods apart by; None where that is nothing."""
        return next((trait for name, trait in self.traits if name == rule), None)

    @property
    def relates_to_pods(self) -> bool:
        """True where other pods' places matter (affinity, anti-affinity, spread, host ports)."""
        return self.constraints.binds_pods


Style = tuple[Strategy, Strategy]
"""Packed or spread: over nodes, and over the devices of a node."""

PACKED: Style = ("binpack", "binpack")


def shape_of(pod: Pod, labels: Labels = (), traits: Traits = (), style: Style = PACKED) -> Shape:
    """The shape of ``pod``; ``labels`` as ``PodRules`` tells."""
    request = pod.request if max(pod.request) <= BEYOND else tuple(min(amount, BEYOND) for amount in pod.request)
    nodes, devices = style[0], style[1] if pod.gpu.is_shared else "binpack"
    return Shape(request, pod.gpu, pod.constraints, labels, traits, nodes, devices)


class ShapeTable:
    """Shapes by index, with the nodes that admit each, computed once and only when asked for."""

    def __init__(
        self,
        nodes: tuple[Node, ...],
        predicates: NodePredicates,
        rules: PodRules,
        surveys: Mapping[str, Survey] = NO_SURVEYS,
    ) -> None:
        self._rules = rules
        self.shapes: list[Shape] = []
        self.surveys = surveys
        self._index: dict[Shape, int] = {}
        self._by_parts: dict[tuple[int, Labels, Vector, GpuRequest, Traits, Style], int] = {}
        self._traits: dict[tuple[Vector, GpuRequest, bool, tuple[Container, ...]], Traits] = {}
        self._masks: dict[int, BoolArray] = {}
        self._same_room: dict[int, int] = {}
        self._by_room: dict[tuple[object, ...], int] = {}
        self._without_wishes: dict[int, int] = {}
        self._by_rules: dict[Shape, int] = {}
        self._millis: dict[GpuRequest, IntArray] = {}
        self._parts: dict[GpuRequest, IntArray] = {}
        self._requests: IntArray = np.zeros((0, 0), dtype=np.int64)
        self._whole: IntArray = np.zeros(0, dtype=np.int64)
        self._predicates = predicates
        self._gpu_memory = [node.gpu_memory_mib for node in nodes]

    def index(self, pod: Pod, style: Style = PACKED) -> int:
        """Index of the pod's shape, added when new."""
        c = pod.constraints
        labels = self._rules.labels_of(pod)
        traits = self._traits_of(pod) if self.surveys else ()
        # Importers share Constraints objects, so identity is a cheap first key: hashing them deeply costs 10 µs.
        parts = (id(c), labels, pod.request, pod.gpu, traits, style)
        found = self._by_parts.get(parts)
        if found is None:
            found = self._by_parts[parts] = self._intern(shape_of(pod, labels, traits, style))
        return found

    def _traits_of(self, pod: Pod) -> Traits:
        key = (pod.request, pod.gpu, pod.guaranteed, pod.containers)
        if key not in self._traits:
            found = ((name, survey.trait(pod)) for name, survey in self.surveys.items())
            self._traits[key] = tuple((name, trait) for name, trait in found if trait is not None)
        return self._traits[key]

    def _intern(self, shape: Shape) -> int:
        found = self._index.get(shape)
        if found is None:
            found = self._index[shape] = len(self.shapes)
            self.shapes.append(shape)
        return found

    def same_room(self, shape: int) -> int:
        """The first shape met that has the same room on every node: it differs in rules and wishes at most."""
        found = self._same_room.get(shape)
        if found is None:
            one = self.shapes[shape]
            said = one.constraints
            asked = (one.request, one.gpu, one.traits, one.nodes, one.devices)
            key = (*asked, said.node_terms, said.tolerations, said.blocked)
            found = self._same_room[shape] = self._by_room.setdefault(key, shape)
        return found

    def without_wishes(self, shape: int) -> int:
        """The first shape met that differs in preferences at most: all that rules look at is equal."""
        found = self._without_wishes.get(shape)
        if found is None:
            one = self.shapes[shape]
            said = replace(one.constraints, preferred=(), preferred_pods=(), preferred_spread=())
            found = self._without_wishes[shape] = self._by_rules.setdefault(replace(one, constraints=said), shape)
        return found

    @property
    def requests(self) -> IntArray:
        """(S, R) what one pod of each shape asks for."""
        if len(self._requests) < len(self.shapes):
            self._requests = np.array([shape.request for shape in self.shapes], dtype=np.int64)
        return self._requests

    @property
    def whole(self) -> IntArray:
        """(S,) whole devices that one pod of each shape asks for; 0 where it asks for none, or for parts."""
        if len(self._whole) < len(self.shapes):
            asked = [shape.gpu.devices if shape.gpu.is_whole else 0 for shape in self.shapes]
            self._whole = np.array(asked, dtype=np.int64)
        return self._whole

    def mask(self, shape: int) -> BoolArray:
        """(N,) True where the nodes' own properties admit the shape (not capacity, not other pods).

        That a node could not take it by an optional rule even if it were empty is such a property.
        """
        shape = self.same_room(shape)
        found = self._masks.get(shape)
        if found is None:
            constraints = self.shapes[shape].constraints
            found = self._predicates.node_mask(constraints)
            if constraints.blocked:
                found = np.zeros_like(found)
            for name, trait in self.shapes[shape].traits:
                found = found & ~self.surveys[name].refuses(trait)
            self._masks[shape] = found
        return found

    def reach(self, shapes: Iterable[int]) -> BoolArray:
        """(N,) nodes that some of ``shapes`` may be on, by `mask`."""
        found: BoolArray = np.zeros(len(self._gpu_memory), dtype=np.bool_)
        for shape in shapes:
            found |= self.mask(shape)
        return found

    def milli(self, shape: int) -> IntArray:
        """(N,) thousandths of each device that the shape is charged on each node; 0 for shapes without GPUs."""
        gpu = self.shapes[shape].gpu
        found = self._millis.get(gpu)
        if found is None:
            found = self._millis[gpu] = self._by_memory(gpu.milli_on) if gpu.devices else self._nothing()
        return found

    def parts(self, shape: int) -> IntArray:
        """(N,) parts of each device that the shape takes on each node (`units.shares`); 0 for shapes without GPUs."""
        gpu = self.shapes[shape].gpu
        found = self._parts.get(gpu)
        if found is None:
            found = self._parts[gpu] = self._by_memory(gpu.parts_on) if gpu.devices else self._nothing()
        return found

    def _by_memory(self, amount: Callable[[int], int]) -> IntArray:
        """(N,) an amount that depends on the memory of a node's devices, of which there are few kinds."""
        kinds, kind_of = self._memory_kinds
        found: IntArray = np.array([amount(memory) for memory in kinds], dtype=np.int64)[kind_of]
        return found

    def _nothing(self) -> IntArray:
        return np.zeros(len(self._gpu_memory), dtype=np.int64)

    @cached_property
    def _memory_kinds(self) -> tuple[list[int], IntArray]:
        """Memory of devices by kind, and (N,) the kind of each node."""
        kinds, kind_of = np.unique(np.array(self._gpu_memory, dtype=np.int64), return_inverse=True)
        return kinds.tolist(), kind_of.reshape(-1)
