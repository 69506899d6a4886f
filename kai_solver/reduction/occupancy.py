"""What pods hold on every node, and on every device."""

from collections import defaultdict

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.reduction.devices import seat_running
from kai_solver.reduction.ground import Ground
from kai_solver.reduction.kinds import Kinds
from kai_solver.reduction.podtable import PodTable
from kai_solver.units import GPU, MILLI, PODS

IntArray = NDArray[np.int64]


class Occupancy:
    """Arrays as `Problem` has them."""

    def __init__(self, ground: Ground, table: PodTable, kinds: Kinds) -> None:
        size, count = ground.capacity.shape
        width = int(ground.gpus.max(initial=0))
        self._ground = ground
        self._table = table
        self.device_free: IntArray = np.where(np.arange(width) < ground.gpus[:, None], MILLI, 0)
        self.device_releasing: IntArray = np.zeros((count, width), dtype=np.int64)
        self.sharers: IntArray = np.zeros((count, width), dtype=np.int64)
        self.sharers_leaving: IntArray = np.zeros((count, width), dtype=np.int64)
        self.seats: dict[int, tuple[int, ...]] = {}
        holding = [p for p, node in enumerate(table.pod_node) if node >= 0 and table.pods[p].status.holds_resources]
        self.held = self._held(holding, kinds, (size, count))
        leaving = [p for p in holding if table.pods[p].status is PodStatus.RELEASING]
        self.releasing = self._held(leaving, kinds, (size, count))
        self._seat(holding)
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

    def _seat(self, holding: list[int]) -> None:
        pods, pod_node = self._table.pods, self._table.pod_node
        by_node: dict[int, list[int]] = defaultdict(list)
        for p in holding:
            if pods[p].gpu.devices:
                by_node[pod_node[p]].append(p)
        plain: list[int] = []
        rows: list[list[int]] = []
        for node, there in by_node.items():
            gpus = int(self._ground.gpus[node])
            free = self._plainly(node, there, gpus) if gpus else []
            if free is None:
                self._one_by_one(node, there)
            elif free:
                plain.append(node)
                rows.append(free)
        if rows:
            self.device_free[plain] = np.array(rows, dtype=np.int64)

    def _plainly(self, node: int, there: list[int], gpus: int) -> list[int] | None:
        """Seat pods that have whole devices and find them; None, and nobody is seated, where some pod is otherwise.

        Whole devices are alike: of those that nobody names the first are as good as any. Returns what is free by
        device, with 0 beyond the node's.
        """
        pods = self._table.pods
        free = [MILLI] * gpus + [0] * (self.device_free.shape[1] - gpus)
        seats: dict[int, tuple[int, ...]] = {}
        for p in there:
            pod = pods[p]
            if not pod.gpu.is_whole or pod.gpu_groups:
                return None
            if pod.devices:
                seats[p] = seat = tuple([d for d in pod.devices if 0 <= d < gpus])
                if not seat:
                    return None
                for d in seat:
                    free[d] -= MILLI
        if len(seats) < len(there) and not self._seat_unnamed([p for p in there if p not in seats], free, seats):
            return None
        for p in there:
            if pods[p].status is PodStatus.RELEASING:
                self.device_releasing[node, list(seats[p])] += MILLI
        self.seats.update(seats)
        return free

    def _seat_unnamed(self, there: list[int], free: list[int], seats: dict[int, tuple[int, ...]]) -> bool:
        """Give the first free devices; False where there are too few."""
        left = [d for d, milli in enumerate(free) if milli == MILLI]
        at = 0
        for p in there:
            seats[p] = seat = tuple(left[at : at + self._table.pods[p].gpu.devices])
            at += self._table.pods[p].gpu.devices
            for d in seat:
                free[d] = 0
        return at <= len(left)

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
