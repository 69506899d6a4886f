"""What pods hold on every node, and on every device."""

import numpy as np

from kai_solver.domain import Node, Pod, PodStatus, Snapshot
from kai_solver.reduction.devices import seat_running
from kai_solver.reduction.podtable import PodTable
from kai_solver.units import GPU, MILLI, PODS


def usable_devices(node: Node) -> int:
    """Devices that may be had: those of a node in MIG mode ``mixed`` may not (reference 1.5)."""
    return min(node.gpus, node.allocatable[GPU] // MILLI)


class Occupancy:
    """Arrays as `Problem` has them."""

    def __init__(self, snapshot: Snapshot, nodes: tuple[Node, ...], table: PodTable) -> None:
        size, count = snapshot.schema.size, len(nodes)
        width = max((node.gpus for node in nodes), default=0)
        self.capacity = np.array([n.allocatable for n in nodes], dtype=np.int64).reshape(count, size).T.copy()
        self.capacity[GPU] = 0
        self.held = np.zeros((size, count), dtype=np.int64)
        self.releasing = np.zeros((size, count), dtype=np.int64)
        self.device_free = np.zeros((count, width), dtype=np.int64)
        self.device_releasing = np.zeros((count, width), dtype=np.int64)
        self.sharers = np.zeros((count, width), dtype=np.int64)
        self.sharers_leaving = np.zeros((count, width), dtype=np.int64)
        self.seats: dict[int, tuple[int, ...]] = {}
        by_node: dict[int, list[int]] = {}
        for index, pod in enumerate(table.pods):
            if table.pod_node[index] >= 0 and pod.status.holds_resources:
                by_node.setdefault(table.pod_node[index], []).append(index)
        for node, node_pods in by_node.items():
            self._fill(node, nodes[node], [(i, table.pods[i]) for i in node_pods])
        for node in range(count):
            if node not in by_node:
                self.device_free[node, : nodes[node].gpus] = MILLI
            withheld = self.device_free[node, usable_devices(nodes[node]) : nodes[node].gpus]
            np.minimum(withheld, 0, out=withheld)

    def _fill(self, index: int, node: Node, pods: list[tuple[int, Pod]]) -> None:
        requests = np.array([pod.request for _, pod in pods], dtype=np.int64)
        requests[:, GPU] = 0
        leaving = np.array([pod.status is PodStatus.RELEASING for _, pod in pods])
        self.held[:, index] = requests.sum(axis=0)
        self.releasing[:, index] = requests[leaving].sum(axis=0)
        seats, free = seat_running(node, pods)
        self.device_free[index, : node.gpus] = free
        for (pod_index, pod), left in zip(pods, leaving, strict=True):
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
