"""What nodes are worth while a window is placed, and what a pod would cost on each of them."""

from dataclasses import dataclass

import numpy as np

from kai_solver.lab.experiments.cluster import Cluster, Devices, take_whole
from kai_solver.lab.experiments.first_pods import FirstPods
from kai_solver.lab.experiments.fragmentation import Fragmentation
from kai_solver.lab.experiments.trace import Bools, Floats, Ints, Shape
from kai_solver.leftover import ValueTable
from kai_solver.units import MILLI

FRAGMENTATION_WEIGHT = 0.1
"""Of fragmentation beside value: worths leave ties (a linear programme's optimum has many), and it settles them."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Value of nodes less a little of their fragmentation.

    Attributes
    ----------
    table
        Values at what pods are worth now.
    small
        The same where no pod takes a whole node.
    first
        Bounds the value of nodes with little CPU, by the usual pods.
    fragmentation
        What settles ties.
    model
        GPU model of every node, shape (N,).
    kind
        Type of every node, shape (N,).
    cpu_per_mib
        CPU that comes with a MiB of memory on every node, thousandths, shape (N,).
    """

    table: ValueTable
    small: ValueTable
    first: FirstPods
    fragmentation: Fragmentation
    model: Ints
    kind: Ints
    cpu_per_mib: Floats

    def room(self, nodes: Ints, cpu: Ints, memory: Ints) -> Ints:
        """The scarcer of CPU and memory of ``nodes``, as CPU, shape (K,)."""
        return np.minimum(cpu, (memory * self.cpu_per_mib[nodes]).astype(np.int64))

    def value(self, nodes: Ints, cpu: Ints, memory: Ints, free: Ints) -> Floats:
        """Value of ``nodes`` if they had ``cpu`` and ``memory``, shape (K,), and ``free``, shape (K, D)."""
        room, kind = self.room(nodes, cpu, memory), self.kind[nodes]
        values = self.table.of_nodes(room, free, kind)
        tight = self.first.are_tight(room, free)
        if tight.size:
            bound = self.first.value(self.table, room[tight], free[tight], kind[tight])
            values[tight] = np.minimum(values[tight], bound)
        judged: Floats = values - FRAGMENTATION_WEIGHT * self.fragmentation.amount(cpu, free, self.model[nodes])
        return judged


class Landscape:
    """Losses by shape and node, computed again for nodes that changed.

    Parameters
    ----------
    cluster
        What is free; changed by `take` and `give`.
    shapes, allowed
        Requests, and GPU models on which each may run, by shape.
    """

    def __init__(self, cluster: Cluster, judge: Judge, shapes: tuple[Shape, ...], allowed: list[Bools]) -> None:
        self.cluster = cluster
        self._judge = judge
        self._shapes = shapes
        self._allowed = allowed
        every = np.arange(len(cluster.cpu))
        self._value = judge.value(every, cluster.cpu, cluster.memory, cluster.free)
        self._log: list[int] = []
        self._known: dict[int, tuple[Floats, Ints, int]] = {}

    def losses(self, kind: int) -> tuple[Floats, Ints]:
        """By node: value lost by a pod of shape ``kind`` (inf: no room), and the GPU for a share (-1: any)."""
        if kind in self._known:
            loss, device, upto = self._known[kind]
            stale = np.unique(np.array(self._log[upto:], dtype=np.int64))
        else:
            loss, device = np.full(len(self._value), np.inf), np.full(len(self._value), -1, dtype=np.int64)
            stale = np.arange(len(loss))
        self._known[kind] = loss, device, len(self._log)
        if stale.size:
            fits = self.cluster.fits(self._shapes[kind], self._allowed[kind], stale)
            loss[stale[~fits]] = np.inf
            hosts = stale[fits]
            if hosts.size:
                loss[hosts], device[hosts] = self._of(self._shapes[kind], hosts)
        return loss, device

    def cost(self, node: int, device: int, kind: int) -> float:
        """Value that a pod of shape ``kind`` takes from other small pods on ``node``, in thousandths of a GPU."""
        row, shape, cluster = np.array([node]), self._shapes[kind], self.cluster
        free = cluster.free[row]
        for own in (device,) if device >= 0 else cluster.tightest(node, shape):
            free[0, own] -= shape.gpu_milli
        judge, types = self._judge, self._judge.kind[row]
        cpu, memory = cluster.cpu[row], cluster.memory[row]
        before = judge.small.of_nodes(judge.room(row, cpu, memory), cluster.free[row], types)
        room = judge.room(row, cpu - shape.cpu_milli, memory - shape.memory_mib)
        return float((before - judge.small.of_nodes(room, free, types))[0])

    def take(self, node: int, device: int, kind: int) -> Devices:
        """Put a pod of shape ``kind`` on ``node``; return its GPUs."""
        shape = self._shapes[kind]
        devices = (device,) if device >= 0 else self.cluster.tightest(node, shape)
        self.cluster.take(node, devices, shape)
        self._changed(node)
        return devices

    def give(self, node: int, devices: Devices, kind: int) -> None:
        """Take a pod away."""
        self.cluster.give(node, devices, self._shapes[kind])
        self._changed(node)

    def retake(self, node: int, devices: Devices, kind: int) -> None:
        """Put a pod back on the GPUs that it had."""
        self.cluster.take(node, devices, self._shapes[kind])
        self._changed(node)

    def gains(self, kinds: Ints, nodes: Ints, devices: list[Devices]) -> Floats:
        """Value gained by taking each of these pods away, shape (P,)."""
        cpu, memory, free = self.cluster.cpu[nodes], self.cluster.memory[nodes], self.cluster.free[nodes]
        for row, (kind, own) in enumerate(zip(kinds.tolist(), devices, strict=True)):
            shape = self._shapes[kind]
            cpu[row] += shape.cpu_milli
            memory[row] += shape.memory_mib
            free[row, list(own)] += shape.gpu_milli
        gains: Floats = self._judge.value(nodes, cpu, memory, free) - self._value[nodes]
        return gains

    def _changed(self, node: int) -> None:
        row = np.array([node])
        self._value[node] = self._judge.value(
            row, self.cluster.cpu[row], self.cluster.memory[row], self.cluster.free[row]
        )[0]
        self._log.append(node)

    def _of(self, shape: Shape, nodes: Ints) -> tuple[Floats, Ints]:
        cpu, memory = self.cluster.cpu[nodes] - shape.cpu_milli, self.cluster.memory[nodes] - shape.memory_mib
        free = self.cluster.free[nodes]
        if 0 < shape.total_milli < MILLI:
            return self._of_share(shape, nodes, cpu, memory)
        if shape.gpus:
            take_whole(free, shape.gpus)
        loss: Floats = self._value[nodes] - self._judge.value(nodes, cpu, memory, free)
        return loss, np.full(len(nodes), -1, dtype=np.int64)

    def _of_share(self, shape: Shape, nodes: Ints, cpu: Ints, memory: Ints) -> tuple[Floats, Ints]:
        """The best GPU of each node; GPUs of a node with as much free are equal."""
        free = self.cluster.free[nodes]
        row, device = np.nonzero(free >= shape.gpu_milli)
        _, first = np.unique(row * (MILLI + 1) + free[row, device], return_index=True)
        row, device = row[first], device[first]
        after = free[row]
        after[np.arange(len(row)), device] -= shape.gpu_milli
        loss = self._value[nodes[row]] - self._judge.value(nodes[row], cpu[row], memory[row], after)
        order = np.lexsort((loss, row))
        best = order[np.unique(row[order], return_index=True)[1]]
        return loss[best], device[best]
