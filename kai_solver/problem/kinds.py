"""Kinds: pods with the same demands on a node and costs to their queue share one number, found once per pod."""

from collections.abc import Sequence

from kai_solver.domain import Constraints, Container, GpuRequest, Pod
from kai_solver.units import Vector

_Key = tuple[int, Vector, GpuRequest, int, bool, tuple[Container, ...]]


class Kinds:
    """Numbers of kinds, in the order in which they were met; the first pod of each stands for all of it.

    Parameters
    ----------
    by_container
        Some optional rule looks into pods: QoS class and containers tell them apart.
    """

    def __init__(self, *, by_container: bool) -> None:
        self.by_container = by_container
        self.samples: list[Pod] = []
        self._numbers: dict[_Key, int] = {}
        # Importers share Constraints objects: identity is a cheap first key, hashing them deeply costs 10 µs.
        self._by_parts: dict[tuple[int, int, int, int], tuple[int, Pod]] = {}
        self._by_identity: dict[int, tuple[Constraints, int]] = {}
        self._constraints: dict[Constraints, int] = {}

    def of(self, pods: Sequence[Pod]) -> list[int]:
        """Kind of each of ``pods``."""
        return [self.kind(pod) for pod in pods]

    def kind(self, pod: Pod) -> int:
        """Kind of ``pod``."""
        if self.by_container:
            return self._number(pod)
        # Importers share requests and constraints: whose parts are the same objects is known without hashing them.
        parts = id(pod.request), id(pod.gpu), id(pod.constraints), pod.quota_gpu_milli
        known = self._by_parts.get(parts)
        if known is None:
            known = self._by_parts[parts] = self._number(pod), pod
        return known[0]

    def _number(self, pod: Pod) -> int:
        gpu = pod.gpu
        known = self._by_identity.get(id(pod.constraints))
        rules = self._rules(pod.constraints) if known is None else known[1]
        guaranteed, containers = (pod.guaranteed, pod.containers) if self.by_container else (False, ())
        key = (rules, pod.request, gpu, pod.quota_gpu_milli, guaranteed, containers)
        kind = self._numbers.get(key)
        if kind is None:
            kind = self._numbers[key] = len(self.samples)
            self.samples.append(pod)
        return kind

    def _rules(self, constraints: Constraints) -> int:
        """Number of equal constraints; the object is held on to, since it is known again by its identity."""
        number = self._constraints.setdefault(constraints, len(self._constraints))
        self._by_identity[id(constraints)] = constraints, number
        return number

    @property
    def size(self) -> int:
        """Objects held."""
        return max(len(self.samples), len(self._by_identity), len(self._by_parts))
