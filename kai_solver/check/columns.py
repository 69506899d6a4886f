"""The pods of a snapshot, read once: what queues hold and want by kind of pod, and arrays of those on some nodes."""

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from kai_solver.domain import Constraints, Gang, GpuRequest, Pod, PodStatus, Snapshot
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

    def count(self, gang: Gang, kind: int, running: int, waiting: int) -> None:
        """Add pods of ``gang`` that are of one kind."""
        key = gang.queue, gang.preemptible, kind
        if running:
            self.running[key] = self.running.get(key, 0) + running
        if waiting:
            self.waiting[key] = self.waiting.get(key, 0) + waiting

    def held(self) -> Column:
        """The pods that hold resources of a node that the plan names."""
        return Column.of(self.pods, self.rows, self.kinds, [True] * len(self.pods), self.end)


def stays(pod: Pod, leaving: Container[str]) -> bool:
    """True if a pod that holds resources still does finally: it stays, or it is stuck in releasing."""
    return pod.key not in leaving if pod.status.is_active else pod.status is PodStatus.STUCK_IN_RELEASING


def take_census(snapshot: Snapshot, kinds: Kinds, rows: Mapping[str, int], leaving: Container[str]) -> Census:
    """Read every pod.

    Parameters
    ----------
    rows
        Places of the nodes that the plan names.
    leaving
        Keys of the pods that leave. Others that are active stay finally, as do those that are stuck in releasing.
    """
    census = Census()
    pods, places, asked, stay, rules = census.pods, census.rows, census.kinds, census.end, census.constraints
    number, row_of, stuck, pending = kinds.numbers.get, rows.get, PodStatus.STUCK_IN_RELEASING, PodStatus.PENDING
    request, gpu, constraints, quota, kind = None, None, None, 0, 0
    for gang in snapshot.gangs:
        running = waiting = 0
        for pod in gang.pods:
            # Neighbours mostly share the very objects.
            if pod.request is not request or pod.gpu is not gpu or pod.quota_gpu_milli != quota:
                if running or waiting:
                    census.count(gang, kind, running, waiting)
                    running = waiting = 0
                request, gpu, quota = pod.request, pod.gpu, pod.quota_gpu_milli
                known = number((request, id(gpu), quota))
                kind = kinds.of(pod) if known is None else known
            if pod.constraints is not constraints:
                constraints = pod.constraints
                rules[id(constraints)] = constraints
            status = pod.status
            if status.holds_resources:
                is_active = status.is_active
                if is_active and pod.gpu.memory_mib:
                    census.by_memory.append((gang, pod))
                elif is_active:
                    running += 1
                row = row_of(pod.node)
                if row is not None:
                    pods.append(pod)
                    places.append(row)
                    asked.append(kind)
                    # As `stays`, which a call for each pod would make slower.
                    stay.append(pod.key not in leaving if is_active else status is stuck)
            elif status is pending:
                waiting += 1
        if running or waiting:
            census.count(gang, kind, running, waiting)
    _count_foreign(census, snapshot, kinds, rows, leaving)
    return census


def _count_foreign(
    census: Census, snapshot: Snapshot, kinds: Kinds, rows: Mapping[str, int], leaving: Container[str]
) -> None:
    for pod in snapshot.foreign:
        census.constraints[id(pod.constraints)] = pod.constraints
        row = rows.get(pod.node)
        if row is not None and pod.status.holds_resources:
            census.pods.append(pod)
            census.rows.append(row)
            census.kinds.append(kinds.of(pod))
            census.end.append(stays(pod, leaving))
