"""Pods on the nodes that a plan names, as arrays: where they are, what they ask for, and when they are there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from kai_solver.domain import GpuRequest, Pod
from kai_solver.units import Vector

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]


class Kinds:
    """Numbers for what pods ask for, from 0 on. Pods of one kind ask for the same; there are few kinds."""

    def __init__(self) -> None:
        self.requests: list[Vector] = []
        self.gpus: list[GpuRequest] = []
        self._numbers: dict[tuple[Vector, int], int] = {}

    def of(self, pods: Sequence[Pod]) -> Integers:
        """(pods,) kind of each. The pods of a gang mostly share the very objects, and are not looked up one by one."""
        found: list[int] = []
        request, gpu, kind = None, None, 0
        for pod in pods:
            if pod.request is not request or pod.gpu is not gpu:
                request, gpu = pod.request, pod.gpu
                kind = self._number(request, gpu)
            found.append(kind)
        return np.array(found, dtype=np.int64)

    def _number(self, request: Vector, gpu: GpuRequest) -> int:
        key = request, id(gpu)
        known = self._numbers.get(key)
        if known is None:
            known = self._numbers[key] = len(self.requests)
            self.requests.append(request)
            self.gpus.append(gpu)
        return known


@dataclass(frozen=True, slots=True)
class Column:
    """P pods on nodes that the plan names.

    Attributes
    ----------
    rows, kinds
        (P,) places of their nodes in ``Scene.concerned``, and what they ask for.
    now, end
        (P,) whether they hold resources of their nodes at once, and finally.
    """

    pods: Sequence[Pod]
    rows: Integers
    kinds: Integers
    now: Flags
    end: Flags

    @classmethod
    def of(cls, pods: Sequence[Pod], rows: Iterable[int], kinds: Kinds, now: Flags, end: Flags) -> "Column":
        """Of pods, and the places of their nodes."""
        return cls(pods, np.array(list(rows), dtype=np.int64), kinds.of(pods), now, end)

    def at(self, *, end: bool) -> Flags:
        """(P,) whether they hold resources at that moment."""
        return self.end if end else self.now
