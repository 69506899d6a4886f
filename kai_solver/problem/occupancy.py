"""What pods hold on every node, and on every device; kept from one cycle to the next."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node, Pod, PodStatus
from kai_solver.problem.devices import assign_running, known_devices, presumed_devices
from kai_solver.problem.kinds import Kinds
from kai_solver.problem.node_table import NodeTable
from kai_solver.problem.rows import NO_DEVICES, HeldDevices, Lodgers
from kai_solver.problem.withheld import Holder, withhold
from kai_solver.units import GPU, PODS
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

_Tenant = tuple[Lodgers, list[int]]
"""Some pods of theirs, by offset, hold devices of a node."""


class Occupancy:
    """Of N nodes, with D devices at most; only where pods came or went since, they are looked at again.

    Attributes
    ----------
    held, releasing
        (R, N) requests of pods, GPUs aside, without reservation pods.
    reserved, reserved_leaving
        (N,) reservation pods: one for each shared device, gone when its last sharer is.
    device_free, device_releasing, sharers, sharers_leaving
        (N, D) as `Problem` has them.
    devices_known
        (N,) whether it is known of all pods there which devices they hold.
    """

    def __init__(self, node_table: NodeTable, kinds: Kinds) -> None:
        count, width = len(node_table.nodes), int(node_table.gpus.max(initial=0))
        self._node_table = node_table
        self._kinds = kinds
        self._tenants: list[dict[str, _Tenant]] = [{} for _ in node_table.nodes]
        self.held: IntArray = np.zeros_like(node_table.capacity)
        self.releasing: IntArray = np.zeros_like(node_table.capacity)
        self.reserved: IntArray = np.zeros(count, dtype=np.int64)
        self.reserved_leaving: IntArray = np.zeros(count, dtype=np.int64)
        self.devices_known: BoolArray = np.ones(count, dtype=np.bool_)
        self.device_free: IntArray = np.where(np.arange(width) < node_table.gpus[:, None], WHOLE, 0)
        self.device_releasing: IntArray = np.zeros((count, width), dtype=np.int64)
        self.sharers: IntArray = np.zeros((count, width), dtype=np.int64)
        self.sharers_leaving: IntArray = np.zeros((count, width), dtype=np.int64)

    def serves(self, node_table: NodeTable, kinds: Kinds) -> bool:
        """Whether nodes and kinds still have their numbers, and as many resources and devices."""
        return (
            self._kinds is kinds
            and self._node_table.index is node_table.index
            and self.held.shape == node_table.capacity.shape
            and self.device_free.shape[1] == int(node_table.gpus.max(initial=0))
        )

    def update(self, node_table: NodeTable, come: Sequence[Lodgers], gone: Sequence[Lodgers]) -> None:
        """Take note of pods that came and left, and of nodes that changed."""
        changed: set[int] = set()
        if node_table is not self._node_table:
            changed = {
                n for n, (a, b) in enumerate(zip(node_table.nodes, self._node_table.nodes, strict=True)) if a is not b
            }
            self._node_table = node_table
        for lodgers in gone:
            for node in set(lodgers.origins):
                if node >= 0 and self._tenants[node].pop(lodgers.key, None) is not None:
                    changed.add(node)
        for lodgers in come:
            lodgers.held_devices = NO_DEVICES
            for offset, node in enumerate(lodgers.origins):
                if node >= 0 and (pod := lodgers.pods[offset]).gpu.devices and pod.status.holds_resources:
                    changed.add(node)
                    known = self._tenants[node].get(lodgers.key)
                    if known is None:
                        self._tenants[node][lodgers.key] = lodgers, [offset]
                    else:
                        known[1].append(offset)
        self._weigh(gone, -1)
        self._weigh(come, +1)
        self._assign_devices(sorted(changed))

    def _weigh(self, lodgers: Sequence[Lodgers], sign: int) -> None:
        kinds, nodes, leaving = list[int](), list[int](), list[bool]()
        for each in lodgers:
            for offset, node in enumerate(each.origins):
                if node >= 0 and (status := each.pods[offset].status).holds_resources:
                    kinds.append(each.kinds[offset])
                    nodes.append(node)
                    leaving.append(status is PodStatus.RELEASING)
        if not nodes:
            return
        used, rows = np.unique(np.array(kinds, dtype=np.int64), return_inverse=True)
        requests = np.array([self._kinds.samples[kind].request for kind in used.tolist()], dtype=np.int64)
        requests[:, GPU] = 0
        amounts, at, are_leaving = sign * requests[rows], np.array(nodes), np.array(leaving)
        _add(self.held, at, amounts)
        if any(leaving):
            _add(self.releasing, at[are_leaving], amounts[are_leaving])

    # -- devices -------------------------------------------------------------------------------------------------

    def _assign_devices(self, nodes: Sequence[int]) -> None:
        """Assign devices to the pods of ``nodes`` again."""
        if not nodes:
            return
        width, at = self.device_free.shape[1], np.array(nodes)
        self.device_free[at] = np.where(np.arange(width) < self._node_table.gpus[at][:, None], WHOLE, 0)
        for table in (self.device_releasing, self.sharers, self.sharers_leaving, self.reserved, self.reserved_leaving):
            table[at] = 0
        self.devices_known[at] = True
        rows: dict[int, list[int]] = {}
        for index in nodes:
            if not self._tenants[index]:
                continue
            there = [tenant for _, tenant in sorted(self._tenants[index].items())]
            pods = [lodgers.pods[offset] for lodgers, offsets in there for offset in offsets]
            held_devices, free = self._seated(index, pods)
            if free is not None:
                rows[index] = free if len(free) == width else free + [0] * (width - len(free))
            _write(there, held_devices)
        if rows:
            self.device_free[list(rows)] = np.array(list(rows.values()), dtype=np.int64)

    def _seated(self, index: int, stated: list[Pod]) -> tuple[HeldDevices, list[int] | None]:
        """Seat the pods of a node; with the free parts by device, None where these are written already."""
        node = self._node_table.nodes[index]
        if _say_nothing(stated) and (in_a_row := _in_a_row(node, stated)) is not None:
            self.devices_known[index] = False
            return in_a_row
        told = known_devices(node.gpus, stated)
        self.devices_known[index] = told is not None
        seats = presumed_devices(node.gpus, stated) if told is None else told
        pods = [_on(pod, devices) for pod, devices in zip(stated, seats, strict=True)]
        plain = _plainly(node, pods)
        if plain is not None:
            return plain
        held_devices = self._one_by_one(index, pods)
        if _is_contradictory(stated, seats):
            self.device_free[index] = self.device_releasing[index] = 0
        return held_devices, None

    def _one_by_one(self, index: int, pods: list[Pod]) -> HeldDevices:
        """Seat pods of a node where some share devices, or where there are too few."""
        node = self._node_table.nodes[index]
        held_devices, free = assign_running(node, list(enumerate(pods)))
        self.device_free[index, : node.gpus] = free
        for at, pod in enumerate(pods):
            left = pod.status is PodStatus.RELEASING
            if not left and not pod.gpu.is_shared:
                continue
            parts = pod.gpu.parts_on(node.gpu_memory_mib) if left else 0
            for device in held_devices.get(at, ()):
                self.device_releasing[index, device] += parts
                self.sharers[index, device] += pod.gpu.is_shared
                self.sharers_leaving[index, device] += pod.gpu.is_shared and left
        shared = self.sharers[index] > 0
        self.reserved[index] = np.count_nonzero(shared)
        self.reserved_leaving[index] = np.count_nonzero(shared & (self.sharers[index] == self.sharers_leaving[index]))
        return [held_devices.get(at, ()) for at in range(len(pods))]

    # -- for a problem -------------------------------------------------------------------------------------------

    def held_with_reservations(self) -> tuple[IntArray, IntArray]:
        """(R, N) what is held, and the part of it that is leaving."""
        held, releasing = self.held.copy(), self.releasing.copy()
        held[PODS] += self.reserved
        releasing[PODS] += self.reserved_leaving
        return held, releasing

    def devices_to_be_had(self) -> tuple[IntArray, IntArray]:
        """(N, D) parts that are free, or become free when the leaving pods have left."""
        free, releasing = self.device_free.copy(), self.device_releasing.copy()
        missing = self._node_table.gpus - self._node_table.usable
        for node in np.flatnonzero(missing).tolist():
            count = int(self._node_table.gpus[node])
            withhold(free[node, :count], releasing[node, :count], int(missing[node]), self._holders(node))
        return free, releasing

    def _holders(self, node: int) -> Iterator[Holder]:
        """Pods of ``node`` that stay."""
        memory_mib = self._node_table.nodes[node].gpu_memory_mib
        for lodgers, offsets in self._tenants[node].values():
            for offset in offsets:
                pod = lodgers.pods[offset]
                if pod.status is not PodStatus.RELEASING:
                    yield lodgers.held_devices[offset], pod.gpu.parts_on(memory_mib)


def _add(table: IntArray, nodes: IntArray, amounts: IntArray) -> None:
    """Add the rows of ``amounts`` (n, R) to the columns ``nodes`` of ``table`` (R, N), of which some come often."""
    order = np.argsort(nodes, kind="stable")
    edges = np.flatnonzero(np.diff(nodes[order], prepend=-1))
    table[:, nodes[order[edges]]] += np.add.reduceat(amounts[order], edges).T


def _on(pod: Pod, devices: tuple[int, ...]) -> Pod:
    return pod if pod.devices == devices else replace(pod, devices=devices)


def _is_contradictory(stated: Sequence[Pod], seats: Sequence[tuple[int, ...]]) -> bool:
    """Whether pods are said to have devices that others have, and some share devices: none can be had for certain."""
    if not any(pod.gpu.is_shared for pod in stated):
        return False
    return any(not set(pod.devices).issubset(seat) for pod, seat in zip(stated, seats, strict=True))


def _write(there: list[_Tenant], held_devices: HeldDevices) -> None:
    """Note the ``held_devices`` of the pods of one node."""
    left = iter(held_devices)
    for lodgers, offsets in there:
        if not lodgers.held_devices:
            lodgers.held_devices = [()] * len(lodgers.pods)
        for offset in offsets:
            lodgers.held_devices[offset] = next(left)


def _plainly(node: Node, pods: list[Pod]) -> tuple[HeldDevices, list[int]] | None:
    """Seat pods that stay, have whole devices and find them; None where some pod is otherwise.

    Whole devices are equal: of those that no pod names the first are as good as any. Free parts by device too.
    """
    free = [WHOLE] * node.gpus
    named: dict[int, tuple[int, ...]] = {}
    for at, pod in enumerate(pods):
        if not pod.gpu.is_whole or pod.gpu_groups or pod.status is PodStatus.RELEASING:
            return None
        if pod.devices:
            named[at] = own = tuple([d for d in pod.devices if 0 <= d < node.gpus])
            if not own:
                return None
            for d in own:
                free[d] -= WHOLE
    if not named:
        return _in_a_row(node, pods)
    left = [d for d, parts in enumerate(free) if parts == WHOLE]
    if sum([pod.gpu.devices for at, pod in enumerate(pods) if at not in named]) > len(left):
        return None
    held_devices: HeldDevices = []
    first = 0
    for at, pod in enumerate(pods):
        if at in named:
            held_devices.append(named[at])
            continue
        own = tuple(left[first : first + pod.gpu.devices])
        first += pod.gpu.devices
        held_devices.append(own)
        for d in own:
            free[d] = 0
    return held_devices, free


def _say_nothing(pods: list[Pod]) -> bool:
    """Whether all of the pods stay and have whole devices, and nothing says which: on most nodes it is so."""
    for pod in pods:
        if pod.devices or pod.wished or pod.gpu_groups or pod.status is PodStatus.RELEASING or not pod.gpu.is_whole:
            return False
    return True


def _in_a_row(node: Node, pods: list[Pod]) -> tuple[HeldDevices, list[int]] | None:
    """The same if no pod names any."""
    if sum(pod.gpu.devices for pod in pods) > node.gpus:
        return None  # first: a pod that sets nodeName may ask for more than memory holds
    held_devices: HeldDevices = []
    first = 0
    for pod in pods:
        held_devices.append(_run(first, pod.gpu.devices))
        first += pod.gpu.devices
    return held_devices, [0] * first + [WHOLE] * (node.gpus - first)


@lru_cache(maxsize=1024)
def _run(first: int, count: int) -> tuple[int, ...]:
    return tuple(range(first, first + count))
