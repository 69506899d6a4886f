"""Which device a running pod sits on, where the cluster does not say."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kai_solver.domain import Node, Pod, PodStatus
from kai_solver.units.shares import WHOLE


@dataclass(slots=True)
class DeviceLedger:
    """Devices of one node while its pods are read in; free parts of each device (`units.shares`), may go below zero.

    ``leaving``: the parts of each device that leaving pods hold.
    """

    node: Node
    free: list[int] = field(default_factory=list)
    leaving: list[int] = field(default_factory=list)
    groups: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Start with every device free."""
        self.free = [WHOLE] * self.node.gpus
        self.leaving = [0] * self.node.gpus

    def assign(self, pod: Pod) -> tuple[int, ...]:
        """Devices of ``pod``: those it names, those of its groups, else the best that are left.

        If none are left, those are charged of which leaving pods hold most: the pod waits there for them. A node that
        is over-committed has no room even then: devices are charged further, so that the violation stays visible. A
        node without devices holds none.
        """
        if not pod.gpu.devices or not self.free:
            return ()
        parts = pod.gpu.parts_on(self.node.gpu_memory_mib)
        devices = self._named(pod) or self._of_groups(pod) or self._best(pod.gpu.devices, parts)
        for device in devices:
            self.free[device] -= parts
            if pod.status is PodStatus.RELEASING:
                self.leaving[device] += parts
        return devices

    def _named(self, pod: Pod) -> tuple[int, ...]:
        return tuple(d for d in pod.devices if 0 <= d < len(self.free)) if pod.devices else ()

    def _of_groups(self, pod: Pod) -> tuple[int, ...]:
        devices: list[int] = []
        for group in pod.gpu_groups:
            if group not in self.groups:
                taken = {*self.groups.values(), *devices}
                others = [d for d in range(len(self.free)) if d not in taken]
                others = others or [d for d in range(len(self.free)) if d not in devices] or list(range(len(self.free)))
                self.groups[group] = max(others, key=lambda d: (self.free[d], -d))
            devices.append(self.groups[group])
        return tuple(devices)

    def _best(self, count: int, parts: int) -> tuple[int, ...]:
        reserved = set(self.groups.values()) if parts == WHOLE else set()
        fitting = [d for d, free in enumerate(self.free) if free >= parts and d not in reserved]
        rest = [d for d in range(len(self.free)) if d not in set(fitting)]
        fitting.sort(key=lambda d: self.free[d])
        rest.sort(key=lambda d: -self.free[d] - self.leaving[d])
        return tuple(sorted((fitting + rest)[:count]))


def known_devices(gpus: int, pods: Sequence[Pod]) -> list[tuple[int, ...]] | None:
    """Devices of each of the pods of a node with ``gpus`` devices; None if some are unknown, or two pods clash.

    They are those that pods have, else those that were chosen when they were bound. A kubelet need not keep to these:
    they are believed if every pod has some and none has those of another.
    """
    found: list[tuple[int, ...]] = []
    taken: set[int] = set()
    whole: set[int] = set()
    for pod in pods:
        devices = pod.devices if _has_all(pod) else pod.wished
        if not _take(pod, devices, gpus, taken, whole):
            return None
        found.append(devices)
    return found


def believed_devices(gpus: int, pods: Sequence[Pod]) -> list[tuple[int, ...]]:
    """Devices of each of the pods of a node on which not all are known; empty for pods with unidentified devices.

    These are pods of which no device is known, or that clash with others; what pods have precedes what was chosen.
    """
    found: list[tuple[int, ...]] = [()] * len(pods)
    if not any(pod.devices or pod.wished for pod in pods):
        return found
    taken: set[int] = set()
    whole: set[int] = set()
    for at in sorted(range(len(pods)), key=lambda at: not _has_all(pods[at])):
        pod = pods[at]
        devices = pod.devices if _has_all(pod) else pod.wished
        if _take(pod, devices, gpus, taken, whole):
            found[at] = devices
    return found


def presumed_devices(gpus: int, pods: Sequence[Pod]) -> list[tuple[int, ...]]:
    """Devices of the pods of a node as `believed_devices` has them; of pods with whole ones, what is missing is added.

    What others are known to have is not theirs, whatever is said of them: then they have free ones. So none has those
    of another, and what is left can be had. Pods that stay precede those that leave.
    """
    ordered = sorted(enumerate(pods), key=lambda numbered: numbered[1].status is PodStatus.RELEASING)
    found: list[tuple[int, ...]] = [()] * len(pods)
    taken: set[int] = set()
    whole: set[int] = set()
    for at, pod in ordered:
        if _has_all(pod) and _take(pod, pod.devices, gpus, taken, whole):
            found[at] = pod.devices
    partly: dict[int, set[int]] = {}
    for at, pod in ordered:
        own = {device for device in pod.devices if 0 <= device < gpus} - taken
        if not found[at] and own and pod.gpu.is_whole and len(own) < pod.gpu.devices:
            partly[at] = own
            taken |= own
            whole |= own
    for at, pod in ordered:
        if not pod.devices and _take(pod, pod.wished, gpus, taken, whole):
            found[at] = pod.wished
    for at, own in partly.items():
        beside = [device for device in range(gpus) if device not in taken][: pods[at].gpu.devices - len(own)]
        if len(own) + len(beside) == pods[at].gpu.devices:
            found[at] = tuple(sorted([*own, *beside]))
            taken.update(beside)
    return found


def _has_all(pod: Pod) -> bool:
    return len(pod.devices) == pod.gpu.devices


def _take(pod: Pod, devices: tuple[int, ...], gpus: int, taken: set[int], whole: set[int]) -> bool:
    """Note ``devices`` as ``taken``, and those that are ``whole``; False where the pod cannot have them."""
    own, is_whole = set(devices), pod.gpu.is_whole
    if (
        len(own) < pod.gpu.devices
        or max(own) >= gpus
        or min(own) < 0
        or not own.isdisjoint(taken if is_whole else whole)
    ):
        return False
    taken |= own
    if is_whole:
        whole |= own
    return True


def assign_running(node: Node, pods: list[tuple[int, Pod]]) -> tuple[dict[int, tuple[int, ...]], list[int]]:
    """Devices of every pod of ``node`` that holds resources, and what is free afterwards (parts).

    Pods that name their devices or groups are seated first, then whole GPUs, then shares, largest first; those that
    leave last, as others may have their places already. The order in which the pods come makes no difference: asked
    again, the answer is the same.
    """
    ledger = DeviceLedger(node)
    known = [(i, p) for i, p in pods if p.devices or p.gpu_groups]
    known.sort(key=lambda ip: (not ip[1].devices, ip[1].order, ip[1].key))
    unknown = [(i, p) for i, p in pods if not (p.devices or p.gpu_groups)]
    unknown.sort(
        key=lambda ip: (
            ip[1].status is PodStatus.RELEASING,
            -ip[1].gpu.parts_on(node.gpu_memory_mib),
            ip[1].order,
            ip[1].key,
        )
    )
    return {i: ledger.assign(p) for i, p in (*known, *unknown)}, ledger.free
