"""What a pod takes from usual ones by its place, kept up to date as places are taken; and what a whole plan takes."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.leftover import Outlook
from kai_solver.planstate.state import State
from kai_solver.units import GPU
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

STEP = 10.0
"""Thousandths of a GPU that count as a difference: prices are no more exact than that."""
MOST_STEPS = (1 << 12) - 1


class Losses:
    """Values of nodes, and by shape what one pod of it would take of them; refreshed for touched nodes only."""

    def __init__(self, state: State, outlook: Outlook) -> None:
        self._state = state
        self._outlook = outlook
        self._known: dict[int, tuple[IntArray, int]] = {}

    def steps(self, shape: int) -> IntArray:
        """(N,) loss by node in steps, 0 to `MOST_STEPS`; right where a pod of ``shape`` fits. Do not write to it."""
        touched = self._state.touched
        if shape not in self._known:
            rows = np.arange(len(self._state.problem.nodes))
            self._known[shape] = self._of(shape, rows), len(touched)
        found, seen = self._known[shape]
        if seen < len(touched):
            rows = np.array(sorted(set(touched[seen:])), dtype=np.int64)
            found[rows] = self._of(shape, rows)
            self._known[shape] = found, len(touched)
        return found

    def _of(self, shape: int, rows: IntArray) -> IntArray:
        state, spec = self._state, self._state.problem.shapes.shapes[shape]
        free, devices = state.future[:, rows], state.device_future[rows]
        request = np.array(spec.request, dtype=np.int64)
        request[GPU] = 0
        parts = np.minimum(state.problem.shapes.parts(shape)[rows], WHOLE)
        after = _taken(devices, spec.gpu.devices, parts) if spec.gpu.devices else devices
        values = self._outlook.values
        loss: FloatArray = values(rows, (free, devices)) - values(rows, (free - request[:, None], after))
        return np.clip(np.rint(loss / STEP), 0, MOST_STEPS).astype(np.int64)


def _taken(devices: IntArray, count: int, parts: IntArray) -> IntArray:
    """(K, D) free with ``parts`` (K,) of ``count`` devices taken: the fullest that have so much."""
    fits = devices >= parts[:, None]
    order = np.argsort(np.where(fits, devices, 2 * WHOLE), axis=1, kind="stable")[:, :count]
    after = devices.copy()
    np.put_along_axis(after, order, np.take_along_axis(devices, order, axis=1) - parts[:, None], axis=1)
    return after


def worth_lost(state: State, outlook: Outlook) -> int:
    """Worth that the plan takes from usual pods, in thousandths of a GPU; below 0 where it gives more than it takes."""
    nodes = sorted(set(state.touched))
    return outlook.worth(nodes, state.problem.room) - outlook.worth(nodes, (state.future, state.device_future))
