"""What is left on the nodes while pods arrive: plain arrays, one row a node."""

from dataclasses import dataclass

import numpy as np

from kai_solver.lab.experiments.trace import Bools, Ints, Shape, Trace
from kai_solver.units import MILLI

Devices = tuple[int, ...]


@dataclass(slots=True)
class Cluster:
    """Free capacity.

    Attributes
    ----------
    cpu, memory
        Free, shape (N,).
    free
        Free thousandths of each GPU, shape (N, D); 0 where a node has no such GPU.
    model
        Index of the GPU model, shape (N,).
    """

    cpu: Ints
    memory: Ints
    free: Ints
    model: Ints

    @classmethod
    def empty(cls, trace: Trace) -> "Cluster":
        """All of ``trace``'s nodes with nothing on them."""
        exists = np.arange(max(int(trace.gpus.max(initial=0)), 1)) < trace.gpus[:, None]
        return cls(trace.cpu.copy(), trace.memory.copy(), exists.astype(np.int64) * MILLI, trace.model)

    def fits(self, shape: Shape, allowed: Bools, nodes: Ints) -> Bools:
        """Which of ``nodes`` can host ``shape``; ``allowed`` by model, shape (M,)."""
        fits = (self.cpu[nodes] >= shape.cpu_milli) & (self.memory[nodes] >= shape.memory_mib)
        fits &= allowed[self.model[nodes]]
        if shape.gpus:
            fits &= np.count_nonzero(self.free[nodes] >= shape.gpu_milli, axis=1) >= shape.gpus
        return fits

    def tightest(self, node: int, shape: Shape) -> Devices:
        """The devices of ``node`` with the least that is enough, as many as ``shape`` asks for."""
        row = self.free[node]
        order = np.argsort(row, kind="stable")
        return tuple(order[row[order] >= shape.gpu_milli][: shape.gpus].tolist())

    def take(self, node: int, devices: Devices, shape: Shape) -> None:
        """Take what ``shape`` asks for."""
        self._change(node, devices, shape, -1)

    def give(self, node: int, devices: Devices, shape: Shape) -> None:
        """Give back what ``shape`` took."""
        self._change(node, devices, shape, 1)

    def _change(self, node: int, devices: Devices, shape: Shape, sign: int) -> None:
        self.cpu[node] += sign * shape.cpu_milli
        self.memory[node] += sign * shape.memory_mib
        for device in devices:
            self.free[node, device] += sign * shape.gpu_milli


def take_whole(free: Ints, gpus: int) -> None:
    """Take the first ``gpus`` wholly free GPUs of every row of ``free`` (K, D), which is changed."""
    whole = free == MILLI
    free[whole & (np.cumsum(whole, axis=1) <= gpus)] = 0
