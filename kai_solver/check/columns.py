"""The pods of a snapshot: what queues hold and want by kind of pod, and arrays of those on some nodes."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kai_solver.domain import Constraints, Gang, GpuRequest, Pod, PodStatus
from kai_solver.units import Vector

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

Counts = dict[tuple[str, bool, int], int]
"""Pods by leaf, by whether they are preemptible, and by kind."""


@dataclass(slots=True)
class Kinds:
    """K kinds of pods, numbered from 0 on: pods of one kind ask for the same. There are few of them.

    Attributes
    ----------
    pods
        One of each kind.
    """

    pods: list[Pod] = field(default_factory=list)
    numbers: dict[tuple[Vector, int, int], int] = field(default_factory=dict)

    def of(self, pod: Pod) -> int:
        """The kind of ``pod``. Requests of GPUs are known by identity: equal ones may be of two kinds."""
        key = pod.request, id(pod.gpu), pod.quota_gpu_milli
        known = self.numbers.get(key)
        if known is None:
            known = self.numbers[key] = len(self.pods)
            self.pods.append(pod)
        return known

    def of_all(self, pods: Iterable[Pod]) -> list[int]:
        """The kind of each; neighbours mostly share the very objects, and are not looked up."""
        found: list[int] = []
        request, gpu, quota, kind = None, None, 0, 0
        for pod in pods:
            if pod.request is not request or pod.gpu is not gpu or pod.quota_gpu_milli != quota:
                request, gpu, quota, kind = pod.request, pod.gpu, pod.quota_gpu_milli, self.of(pod)
            found.append(kind)
        return found

    def flags(self, test: Callable[[GpuRequest], object]) -> Flags:
        """(K,) which of them pass a test of their GPUs."""
        return np.array([bool(test(pod.gpu)) for pod in self.pods], dtype=np.bool_)


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

    pods: list[Pod]
    rows: Integers
    kinds: Integers
    now: Flags
    end: Flags

    @classmethod
    def of(cls, pods: list[Pod], rows: list[int], kinds: list[int], now: list[bool], end: list[bool]) -> "Column":
        """Of lists with an element for each pod."""
        flags = np.array([now, end], dtype=np.bool_)
        return cls(pods, np.array(rows, dtype=np.int64), np.array(kinds, dtype=np.int64), flags[0], flags[1])

    def at(self, *, end: bool) -> Flags:
        """(P,) whether they hold resources at that moment."""
        return self.end if end else self.now


@dataclass(slots=True)
class Census:
    """What all pods of a snapshot come to.

    Attributes
    ----------
    running, waiting
        Active pods, and those that wait.
    constraints
        Of all pods, by identity.
    by_memory
        Active pods that ask for GPU memory, with their gangs, beside ``running``: they pay by their nodes.
    pods, rows, kinds, end
        Of every pod that holds resources of a node that the plan names, foreign ones included, as of `Column`.
    """

    running: Counts = field(default_factory=dict)
    waiting: Counts = field(default_factory=dict)
    constraints: dict[int, Constraints] = field(default_factory=dict)
    by_memory: list[tuple[Gang, Pod]] = field(default_factory=list)
    pods: list[Pod] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    end: list[bool] = field(default_factory=list)

    def hold(self, pod: Pod, kind: int, rows: Mapping[str, int], leaving: Container[str]) -> None:
        """Note a pod that holds resources of a node, if that is one of those of ``rows``."""
        row = rows.get(pod.node)
        if row is not None:
            self.pods.append(pod)
            self.rows.append(row)
            self.kinds.append(kind)
            self.end.append(stays(pod, leaving))

    def held(self) -> Column:
        """The pods that hold resources of a node that the plan names."""
        return Column.of(self.pods, self.rows, self.kinds, [True] * len(self.pods), self.end)


def stays(pod: Pod, leaving: Container[str]) -> bool:
    """True if a pod that holds resources still does finally: it stays, or it is stuck in releasing."""
    return pod.key not in leaving if pod.status.is_active else pod.status is PodStatus.STUCK_IN_RELEASING
