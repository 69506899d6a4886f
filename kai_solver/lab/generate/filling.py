"""Where running gangs are: a valid placement in full use, and the holes that finished work left in it."""

from typing import Any

import numpy as np
from numpy.random import Generator

from kai_solver.lab.generate.parts import NODE_GPUS
from kai_solver.lab.generate.shapes import Shapes

Ints = np.ndarray[Any, np.dtype[np.int64]]


class Filler:
    """Places gangs on nodes of 8 GPUs; ``free`` is (N,) GPUs, ``rack`` (N,) indices of racks."""

    def __init__(self, nodes: int, rack_nodes: int, draw: Generator) -> None:
        self.free: Ints = np.full(nodes, NODE_GPUS, dtype=np.int64)
        self.rack: Ints = np.arange(nodes, dtype=np.int64) // rack_nodes
        self._draw = draw
        self._racks = int(self.rack[-1]) + 1

    def fill(self, shapes: Shapes) -> list[Ints | None]:
        """Nodes of every gang's pods; None where it found no place.

        Bound ones first, for they need a rack; then by size of pods: 1, 2, 4 and 8 divide each other, so that no order
        of the rest wastes room.
        """
        places: list[Ints | None] = [None] * len(shapes.pods)
        order = np.lexsort((-shapes.size, -shapes.gpus, ~shapes.bound))
        for i in order.tolist():
            pods, gpus = int(shapes.pods[i]), int(shapes.gpus[i])
            places[i] = self._in_a_rack(pods, gpus) if shapes.bound[i] else self._anywhere(pods, gpus)
        return places

    def release(self, nodes: Ints, gpus: int) -> None:
        """A gang has gone."""
        np.add.at(self.free, nodes, gpus)

    def _in_a_rack(self, pods: int, gpus: int) -> Ints | None:
        """Packed into a random rack that has room."""
        slots = self.free // gpus
        racks = np.flatnonzero(np.bincount(self.rack, slots, self._racks) >= pods)
        if not len(racks):
            return None
        nodes = np.flatnonzero((self.rack == self._draw.choice(racks)) & (slots > 0))
        tightest = nodes[np.argsort(self.free[nodes], kind="stable")]
        return self._take(np.repeat(tightest, slots[tightest])[:pods], gpus)

    def _anywhere(self, pods: int, gpus: int) -> Ints | None:
        """Scattered at random."""
        slots = np.repeat(np.arange(len(self.free)), self.free // gpus)
        return self._take(np.sort(self._draw.choice(slots, pods, replace=False)), gpus) if len(slots) >= pods else None

    def _take(self, nodes: Ints, gpus: int) -> Ints:
        np.subtract.at(self.free, nodes, gpus)
        return nodes
