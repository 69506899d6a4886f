"""Devices of the nodes while a scenario is replayed: which pods hold them, and how much of the rest is of use."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from kai_solver.domain import Node, Pod
from kai_solver.errors import InternalError
from kai_solver.units import MILLI
from kai_solver.units.shares import WHOLE, floor_milli

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]


class NodeBooks:
    """Parts held per device, (N, D), and which nodes are up, (N,).

    Refuses what cannot be: a device held for more than itself is a fault of the policy, and ends the replay.
    """

    def __init__(self, nodes: Sequence[Node]) -> None:
        self.names = tuple(node.name for node in nodes)
        self.index = {name: i for i, name in enumerate(self.names)}
        self.gpus: Ints = np.array([node.gpus for node in nodes], dtype=np.int64)
        width = int(self.gpus.max(initial=0))
        self.exists: Bools = np.arange(width) < self.gpus[:, None]
        self.held: Ints = np.zeros((len(nodes), width), dtype=np.int64)
        self.down: Ints = np.array([not node.schedulable for node in nodes], dtype=np.int64)
        self._memory_mib = [node.gpu_memory_mib for node in nodes]

    def take(self, pod: Pod) -> None:
        """The pod holds its devices on its node from now on."""
        self._add(pod, 1)
        node = self.index[pod.node]
        if self.down[node] or (self.held[node] > WHOLE).any():
            what = "is down" if self.down[node] else "has a device that is held for more than itself"
            raise InternalError(f"{pod.key} was bound to {pod.node}, which {what}")

    def leave(self, pod: Pod) -> None:
        """The pod holds them no more."""
        self._add(pod, -1)

    def _add(self, pod: Pod, sign: int) -> None:
        if not pod.gpu.devices:
            return
        node = self.index[pod.node]
        if len(pod.devices) != pod.gpu.devices:
            raise InternalError(f"{pod.key} has {len(pod.devices)} devices and asked for {pod.gpu.devices}")
        self.held[node, list(pod.devices)] += sign * pod.gpu.parts_on(self._memory_mib[node])

    def wholly_free(self, node: str) -> int:
        """GPUs of the node of which no pod holds a part."""
        index = self.index[node]
        return int((self.exists[index] & (self.held[index] == 0)).sum())

    @property
    def up_gpu_milli(self) -> int:
        """Thousandths of GPUs of nodes that are up."""
        return int(self.gpus[self.down == 0].sum()) * MILLI

    @property
    def held_gpu_milli(self) -> int:
        """Thousandths that are held."""
        return floor_milli(int(self.held.sum()))

    def rows(self) -> Ints:
        """(N, 4): GPU thousandths held, GPUs wholly free, thousandths free, and whether it is down."""
        free = np.where(self.exists, MILLI - floor_milli(self.held), 0)
        whole = (self.exists & (self.held == 0)).sum(axis=1)
        held = floor_milli(self.held.sum(axis=1))
        return np.stack([held, whole, free.sum(axis=1), (self.down > 0).astype(np.int64)], axis=1)

    def fragmentation(self, sizes: Mapping[int, float]) -> float:
        """Share of the free GPU capacity of nodes that are up which a pod of the scenario cannot use, 0 .. 1.

        Averaged over ``sizes`` (thousandths of GPUs a pod asks for, and their share of the pods), as the paper on
        fragmentation gradient descent (USENIX ATC 2023) has it: a node on which the pod does not fit counts whole, one
        on which it does with what lies on devices that are too full for it.
        """
        free = np.where(self.exists & (self.down == 0)[:, None], MILLI - floor_milli(self.held), 0)
        total = int(free.sum())
        if not total or not sizes:
            return 0.0
        wasted = sum(share * self._unusable(free, milli) for milli, share in sizes.items())
        return float(wasted) / total

    @staticmethod
    def _unusable(free: Ints, milli: int) -> int:
        each, devices = (MILLI, milli // MILLI) if milli >= MILLI else (milli, 1)
        usable = free >= each
        fits = usable.sum(axis=1) >= devices
        return int(free[~fits].sum()) + int(np.where(usable, 0, free)[fits].sum())
