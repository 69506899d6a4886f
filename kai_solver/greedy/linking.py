"""What a pod loses by the links of the GPUs that a node has left for it, kept up to date as places are taken."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.greedy.state import State
from kai_solver.links import FULL, masks_of
from kai_solver.reduction.fabric import Fabric
from kai_solver.units import MILLI

IntArray = NDArray[np.int64]

STEPS = 16
"""Steps of how much less a node is good for afterwards: they break ties."""


class Links:
    """By shape and node; refreshed for touched nodes only.

    Only where a pod has several whole GPUs do nodes differ; where links say nothing, nothing is lost.
    """

    def __init__(self, state: State, fabric: Fabric) -> None:
        self._state = state
        self._fabric = fabric
        self._most = np.array([max(table.most_leftover, 1) for table in fabric.tables.tables], dtype=np.int64)
        self._known: dict[int, tuple[IntArray, IntArray, int]] = {}

    def losses(self, shape: int) -> tuple[IntArray, IntArray]:
        """(N,) bandwidth lost of what the node has at its best, in thousandths, and (N,) loss of what is left, in
        `STEPS`; right where a pod of ``shape`` fits. Do not write to them.
        """
        touched = self._state.touched
        if shape not in self._known:
            bandwidth, rest = np.zeros((2, len(self._state.problem.nodes)), dtype=np.int64)
            self._look(shape, bandwidth, rest, np.flatnonzero(self._fabric.kinds >= 0))
        else:
            bandwidth, rest, seen = self._known[shape]
            if seen < len(touched):
                rows = np.array(sorted(set(touched[seen:])), dtype=np.int64)
                self._look(shape, bandwidth, rest, rows[self._fabric.kinds[rows] >= 0])
        self._known[shape] = bandwidth, rest, len(touched)
        return bandwidth, rest

    def _look(self, shape: int, bandwidth: IntArray, rest: IntArray, rows: IntArray) -> None:
        state, gpu = self._state, self._state.problem.shapes.shapes[shape].gpu
        later = state.device_future[rows] == MILLI
        now = later & (state.device_idle[rows] == MILLI)
        starts = now.sum(axis=1) >= gpu.devices
        free = masks_of(np.where(starts[:, None], now, later))
        found = self._fabric.tables.survey(self._fabric.kinds[rows], free, gpu.devices)
        bandwidth[rows] = FULL - found.share
        rest[rows] = np.maximum(found.loss, 0) * (STEPS - 1) // self._most[self._fabric.kinds[rows]]
