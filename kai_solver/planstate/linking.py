"""What a pod loses by the links of the GPUs that a node has left for it, kept up to date as places are taken."""

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from kai_solver.links import FULL, masks_of
from kai_solver.planstate.state import State
from kai_solver.problem.fabric import Fabric
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]

STEPS = 16
"""Steps of how much less a node is good for afterwards: they break ties."""
BANDWIDTH = 1 << 21
"""A thousandth of bandwidth lost (1000 at most) comes before what is free (at most 2^20 in its steps)."""
_FEW = 24
"""Nodes up to which they are looked up one by one: 3 µs each, arrays take 100 µs (2026-11-22)."""


class Links:
    """By shape and node; refreshed for touched nodes only.

    Only where a pod has several whole GPUs do nodes differ; where links say nothing, nothing is lost.
    """

    def __init__(self, state: State, fabric: Fabric) -> None:
        self._state = state
        self._fabric = fabric
        self._kinds: list[int] = fabric.kinds.tolist()
        self._most = np.array([max(table.most_leftover, 1) for table in fabric.tables.tables], dtype=np.int64)
        self._known: dict[int, tuple[IntArray, int]] = {}

    def losses(self, shape: int) -> IntArray:
        """(N,) bandwidth lost of what the node has at its best, in thousandths that weigh `BANDWIDTH`, and loss of what
        is left, in `STEPS`; right where a pod of ``shape`` fits. Do not write to it.
        """
        touched = self._state.touched
        if shape not in self._known:
            found, seen = np.zeros(len(self._kinds), dtype=np.int64), len(touched)
            self._look(shape, found, np.arange(len(found)))
        else:
            found, seen = self._known[shape]
            if seen < len(touched):
                self._refresh(shape, found, set(touched[seen:]))
        self._known[shape] = found, len(touched)
        return found

    def _refresh(self, shape: int, found: IntArray, nodes: Collection[int]) -> None:
        if len(nodes) > _FEW:
            self._look(shape, found, np.array(sorted(nodes), dtype=np.int64))
            return
        count = self._state.problem.shapes.shapes[shape].gpu.devices
        for node in nodes:
            if self._kinds[node] >= 0:
                found[node] = self._loss_at(node, count)

    def _loss_at(self, node: int, count: int) -> int:
        """As `_look`, of one node."""
        state, kind = self._state, self._kinds[node]
        free = state.device_future[node].tolist()
        if state.whole_now[node] >= count:
            free = map(min, free, state.device_idle[node].tolist())
        mask = sum([1 << gpu for gpu, parts in enumerate(free) if parts == WHOLE])
        share, loss = self._fabric.tables.prospect(kind, mask, count)
        return (FULL - share) * BANDWIDTH + max(loss, 0) * (STEPS - 1) // int(self._most[kind])

    def _look(self, shape: int, found: IntArray, rows: IntArray) -> None:
        state, gpu = self._state, self._state.problem.shapes.shapes[shape].gpu
        rows = rows[self._fabric.kinds[rows] >= 0]
        kinds, later = self._fabric.kinds[rows], state.device_future[rows] == WHOLE
        now = later & (state.device_idle[rows] == WHOLE)
        starts = now.sum(axis=1) >= gpu.devices
        free = masks_of(np.where(starts[:, None], now, later))
        survey = self._fabric.tables.survey(kinds, free, gpu.devices)
        rest = np.maximum(survey.loss, 0) * (STEPS - 1) // self._most[kinds]
        found[rows] = (FULL - survey.share) * BANDWIDTH + rest
