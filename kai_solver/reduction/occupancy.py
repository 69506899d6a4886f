"""What pods hold on every node, and on every device."""

from collections import defaultdict
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node, Pod, PodStatus
from kai_solver.reduction.devices import seat_running
from kai_solver.reduction.ground import Ground
from kai_solver.reduction.kinds import Kinds
from kai_solver.reduction.podtable import PodTable
from kai_solver.units import GPU, MILLI, PODS

IntArray = NDArray[np.int64]


class Seating(NamedTuple):
    """Devices of the pods of one node, as long as it and they are the same; ``free`` thousandths by device."""

    node: Node
    pods: list[Pod]
    seats: list[tuple[int, ...]]
    free: list[int]


Seatings = dict[str, Seating]
"""By name of the node."""


class Occupancy:
    """Arrays as `Problem` has them; ``seatings`` for the next cycle, where they are the last one's ``before``."""

    def __init__(self, ground: Ground, table: PodTable, kinds: Kinds, before: Seatings) -> None:
        size, count = ground.capacity.shape
        width = int(ground.gpus.max(initial=0))
        self._ground = ground
        self._table = table
        self.device_free: IntArray = np.where(np.arange(width) < ground.gpus[:, None], MILLI, 0)
        self.device_releasing: IntArray = np.zeros((count, width), dtype=np.int64)
        self.sharers: IntArray = np.zeros((count, width), dtype=np.int64)
        self.sharers_leaving: IntArray = np.zeros((count, width), dtype=np.int64)
        self.seats: dict[int, tuple[int, ...]] = {}
        self.seatings: Seatings = {}
        holding = [p for p, node in enumerate(table.pod_node) if node >= 0 and table.pods[p].status.holds_resources]
        self.held = self._held(holding, kinds, (size, count))
        leaving = [p for p in holding if table.pods[p].status is PodStatus.RELEASING]
        self.releasing = self._held(leaving, kinds, (size, count))
        self._seat(holding, before)
        withheld = np.arange(width) >= ground.usable[:, None]
        np.minimum(self.device_free, 0, out=self.device_free, where=withheld)

    def _held(self, holding: list[int], kinds: Kinds, shape: tuple[int, int]) -> IntArray:
        """(R, N) requests of the pods ``holding``, GPUs aside."""
        held = np.zeros(shape, dtype=np.int64)
        if holding:
            table = self._table
            used = sorted({table.kinds[p] for p in holding})
            row_of = {kind: row for row, kind in enumerate(used)}
            requests = np.array([kinds.samples[kind].request for kind in used], dtype=np.int64)
            rows = np.array([row_of[table.kinds[p]] for p in holding], dtype=np.int64)
            nodes = np.array([table.pod_node[p] for p in holding], dtype=np.int64)
            order = np.argsort(nodes, kind="stable")
            edges = np.flatnonzero(np.diff(nodes[order], prepend=-1))
            held[:, nodes[order[edges]]] = np.add.reduceat(requests[rows[order]], edges).T
            held[GPU] = 0
        return held

    def _seat(self, holding: list[int], before: Seatings) -> None:
        pods, pod_node, width = self._table.pods, self._table.pod_node, self.device_free.shape[1]
        by_node: dict[int, list[int]] = defaultdict(list)
        for p in holding:
            if pods[p].gpu.devices:
                by_node[pod_node[p]].append(p)
        rows: dict[int, list[int]] = {}
        for node, there in by_node.items():
            spec, here = self._ground.nodes[node], [pods[p] for p in there]
            found = before.get(spec.name)
            if found is None or found.node is not spec or found.pods != here:
                found = _plainly(spec, here)
            if found is None:
                self._one_by_one(node, there)
            else:
                self.seatings[spec.name] = found
                self.seats.update(zip(there, found.seats, strict=True))
                rows[node] = found.free if len(found.free) == width else found.free + [0] * (width - len(found.free))
        if rows:
            self.device_free[list(rows)] = np.array(list(rows.values()), dtype=np.int64)

    def _one_by_one(self, index: int, there: list[int]) -> None:
        """Seat pods of a node where some share devices, or where there are too few."""
        node, pods = self._ground.nodes[index], [(p, self._table.pods[p]) for p in there]
        seats, free = seat_running(node, pods)
        self.device_free[index, : node.gpus] = free
        for pod_index, pod in pods:
            left = pod.status is PodStatus.RELEASING
            if not left and not pod.gpu.is_shared:
                continue
            milli = pod.gpu.milli_on(node.gpu_memory_mib) if left else 0
            for device in seats.get(pod_index, ()):
                self.device_releasing[index, device] += milli
                self.sharers[index, device] += pod.gpu.is_shared
                self.sharers_leaving[index, device] += pod.gpu.is_shared and left
        self._reserve(index)
        self.seats.update({i: seat for i, seat in seats.items() if seat})

    def _reserve(self, node: int) -> None:
        """Count the reservation pods: one for each shared device, gone when its last sharer is."""
        shared = self.sharers[node] > 0
        self.held[PODS, node] += np.count_nonzero(shared)
        self.releasing[PODS, node] += np.count_nonzero(shared & (self.sharers[node] == self.sharers_leaving[node]))


def _plainly(node: Node, pods: list[Pod]) -> Seating | None:
    """Seat pods that stay, have whole devices and find them; None where some pod is otherwise.

    Whole devices are alike: of those that nobody names the first are as good as any.
    """
    free = [MILLI] * node.gpus
    named: dict[int, tuple[int, ...]] = {}
    for at, pod in enumerate(pods):
        if not pod.gpu.is_whole or pod.gpu_groups or pod.status is PodStatus.RELEASING:
            return None
        if pod.devices:
            named[at] = seat = tuple([d for d in pod.devices if 0 <= d < node.gpus])
            if not seat:
                return None
            for d in seat:
                free[d] -= MILLI
    left = [d for d, milli in enumerate(free) if milli == MILLI]
    if sum([pod.gpu.devices for at, pod in enumerate(pods) if at not in named]) > len(left):
        return None
    seats: list[tuple[int, ...]] = []
    first = 0
    for at, pod in enumerate(pods):
        if at in named:
            seats.append(named[at])
            continue
        seat = tuple(left[first : first + pod.gpu.devices])
        first += pod.gpu.devices
        seats.append(seat)
        for d in seat:
            free[d] = 0
    return Seating(node, pods, seats, free)
