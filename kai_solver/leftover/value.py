"""Value of free capacity at given worths of pods: the best packing of pods that usually arrive into what is free.

With a price ``a`` for CPU, the packing of a node falls apart into packings of its GPUs. Every ``a >= 0`` gives an upper
bound, and the least over ``a`` is the value of the node when CPU may be shared out in fractions (Lagrangian dual):

    V(node) = min over a of  a * free CPU + whole(a, free GPUs) + sum over GPUs that are used in part of share(a, free)

``share`` and ``whole`` are unbounded knapsacks; tables over a grid of prices hold them. Pods that need every GPU of the
largest nodes are looked at one by one instead: a fraction of one is worth nothing.
"""

from dataclasses import dataclass

import numpy as np

from kai_solver.leftover.demand import Bools, Demand, Floats, Ints
from kai_solver.units import MILLI


@dataclass(frozen=True, slots=True)
class PackingTable:
    """Best packings of one GPU in G situations (a price of CPU on a type of node).

    Attributes
    ----------
    value
        By free steps of the GPU, shape (G, levels + 1), not decreasing.
    best
        Kind that the packing begins with, -1: none, the last step stays free; shape (G, levels + 1).
    """

    value: Floats
    best: Ints

    def pattern(self, situation: int, level: int, demand: Demand) -> tuple[int, ...]:
        """Kinds of the best packing of ``level`` free steps, sorted."""
        kinds: list[int] = []
        while level > 0:
            kind = int(self.best[situation, level])
            if kind >= 0:
                kinds.append(kind)
            level -= 1 if kind < 0 else int(demand.milli[kind]) // demand.unit
        return tuple(sorted(kinds))


def pack_device(demand: Demand, net: Floats) -> PackingTable:
    """Pack pods of at most one GPU into one GPU; ``net`` is what each is worth less its CPU, shape (G, C)."""
    rows = np.arange(len(net))
    gains = []
    for step in demand.steps:
        kinds = np.flatnonzero((demand.gpus == 1) & (demand.milli == step * demand.unit))
        kind = kinds[np.argmax(net[:, kinds], axis=1)]
        gains.append((step, kind, net[rows, kind]))
    value = np.zeros((len(net), demand.levels + 1))
    best = np.full(value.shape, -1, dtype=np.int64)
    for level in range(1, demand.levels + 1):
        value[:, level] = value[:, level - 1]
        for step, kind, gain in gains:
            if step > level:
                break
            total = value[:, level - step] + gain
            better = total > value[:, level] + _EPSILON
            value[better, level] = total[better]
            best[better, level] = kind[better]
    return PackingTable(value, best)


def pack_whole(demand: Demand, net: Floats, one: Floats, most: int) -> Floats:
    """Value of 0 to ``most`` GPUs that are wholly free, shape (G, most + 1); ``one`` is that of one, shape (G,).

    Pods that need ``most`` GPUs are left out.
    """
    value = np.zeros((len(net), most + 1))
    sizes = [int(gpus) for gpus in np.unique(demand.gpus) if 1 < gpus < most]
    gains = [(gpus, net[:, demand.gpus == gpus].max(axis=1)) for gpus in sizes]
    for free in range(1, most + 1):
        value[:, free] = value[:, free - 1] + one
        for gpus, gain in gains:
            if gpus <= free:
                np.maximum(value[:, free], value[:, free - gpus] + gain, out=value[:, free])
    return value


_EPSILON = 1e-9
PRICES: Floats = np.concatenate(([0.0], np.geomspace(0.004, 0.6, 40)))
"""Prices of a thousandth of a CPU, in thousandths of a GPU; a pod of one GPU and one core pays 1 at most."""


@dataclass(frozen=True, slots=True)
class ValueTable:
    """Values of nodes at given worths.

    Attributes
    ----------
    unit
        Thousandths of a GPU in a step.
    prices
        Prices of CPU by type of node, shape (T, A).
    share
        By type, free steps of a GPU and price, shape (T, levels + 1, A); the last level, a whole GPU, is 0 here.
    whole
        By type, wholly free GPUs and price, shape (T, D + 1, A).
    full
        Pods that need every GPU of the largest nodes: their CPU by type, worth, and types that may host them.
    most
        GPUs of the largest nodes.
    """

    unit: int
    prices: Floats
    share: Floats
    whole: Floats
    full: tuple[tuple[Ints, float, Bools], ...]
    most: int

    @classmethod
    def of(cls, demand: Demand, worth: Floats, most: int) -> "ValueTable":
        """Tables for nodes of up to ``most`` GPUs.

        ``worth`` is that of one more pod of each kind, shape (C,), not negative. Pods without GPUs bound the price of
        CPU from below: capacity that GPUs do not need goes to them.
        """
        types = demand.allowed.shape[1]
        prices = np.maximum(PRICES[None, :], _floors(demand, worth)[:, None])
        net = worth[None, None, :] - prices[:, :, None] * demand.cpu.T[:, None, :]
        net = np.where(demand.allowed.T[:, None, :], net, -1.0).reshape(-1, len(worth))
        packed = pack_device(demand, net).value
        whole = pack_whole(demand, net, packed[:, -1], most)
        packed[:, -1] = 0.0
        by_type = (types, len(PRICES), -1)
        tables = [table.reshape(by_type).transpose(0, 2, 1).copy() for table in (packed, whole)]
        return cls(demand.unit, prices, tables[0], tables[1], _full(demand, worth, most), most)

    def of_nodes(self, cpu: Ints, free: Ints, kind: Ints) -> Floats:
        """Values of states, shape (K,).

        Parameters
        ----------
        cpu, free, kind
            Free CPU (K,), free thousandths of GPUs (K, D), type of the node (K,).
        """
        whole = np.count_nonzero(free == MILLI, axis=1)
        total = self.prices[kind] * cpu[:, None] + self.whole[kind, whole]
        steps = free // self.unit
        for device in range(free.shape[1]):
            total += self.share[kind, steps[:, device]]
        values: Floats = total.min(axis=1)
        return self._with_full(values, cpu, whole, kind) if self.full else values

    def _with_full(self, values: Floats, cpu: Ints, whole: Ints, kind: Ints) -> Floats:
        empty = np.flatnonzero(whole >= self.most)
        for need, worth, allowed in self.full if empty.size else ():
            able = empty[(cpu[empty] >= need[kind[empty]]) & allowed[kind[empty]]]
            rest = self.prices[kind[able], 0] * (cpu[able] - need[kind[able]])
            values[able] = np.maximum(values[able], worth + rest)
        return values


def _floors(demand: Demand, worth: Floats) -> Floats:
    """Price of CPU, by type of node, at which pods without GPUs take all that is there, shape (T,)."""
    rate = np.where((demand.gpus == 0)[:, None], worth[:, None] / np.maximum(demand.cpu, 1), 0.0)
    floors: Floats = (rate * demand.allowed).max(axis=0, initial=0.0)
    return floors


def _full(demand: Demand, worth: Floats, most: int) -> tuple[tuple[Ints, float, Bools], ...]:
    kinds = np.flatnonzero((demand.gpus == most) & (most > 1) & (worth > 0)).tolist()
    return tuple((demand.cpu[kind], float(worth[kind]), demand.allowed[kind]) for kind in kinds)
