"""What capacity is worth to the pods that usually arrive, for the nodes of one problem."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from kai_solver.leftover.demand import Bools, Floats, Ints
from kai_solver.leftover.packing import Guest, pack
from kai_solver.leftover.value import ValueTable
from kai_solver.units import CPU, MEMORY
from kai_solver.units.shares import WHOLE, floor_milli

Room = tuple[Ints, Ints]
"""Free by resource, shape (R, K), and free parts of GPUs, shape (K, D), of K nodes (below 0: over-committed)."""


@dataclass(frozen=True, slots=True)
class Outlook:
    """Usual pods at their worth.

    Attributes
    ----------
    shapes
        Shapes of the kinds of pods, C of them.
    guests
        The same for `pack`: their worth is what the later stages and the reports count in.
    admits
        Nodes that take each kind, capacity aside, shape (C, N).
    table
        Values of nodes when CPU may be shared out in fractions: an upper bound of the packing, by arrays.
    kind
        Type of every node in ``table``, shape (N,).
    cpu_per_memory
        CPU that comes with a unit of memory on every node, shape (N,).
    """

    shapes: tuple[int, ...]
    guests: tuple[Guest, ...]
    admits: Bools
    table: ValueTable
    kind: Ints
    cpu_per_memory: Floats

    def values(self, nodes: Ints, room: Room) -> Floats:
        """Values of ``nodes``, shape (K,), with so much room, in thousandths of a GPU; greedy's guide."""
        free, devices = np.maximum(room[0], 0), floor_milli(np.minimum(room[1], WHOLE))
        cpu = np.minimum(free[CPU], (free[MEMORY] * self.cpu_per_memory[nodes]).astype(np.int64))
        return self.table.of_nodes(cpu, devices, self.kind[nodes])

    def worth(self, nodes: Iterable[int], room: Room) -> int:
        """Worth of the usual pods that ``nodes`` would still take with ``room`` (of all N nodes)."""
        return sum(self.packed(node, room[0][:, node], room[1][node])[0] for node in nodes)

    def packed(self, node: int, free: Ints, devices: Ints) -> tuple[int, dict[int, int]]:
        """Worth of the usual pods that ``node`` would still take, with ``free`` (R,) and ``devices`` (D,); by shape."""
        guests = [guest for guest in self.guests if self.admits[guest.kind, node]]
        worth, counts = pack(guests, free.tolist(), floor_milli(devices).tolist())
        return worth, {self.shapes[g.kind]: count for g, count in zip(guests, counts, strict=True) if count}
