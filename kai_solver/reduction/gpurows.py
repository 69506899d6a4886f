"""Whole GPUs in a row: how many pods a node takes whose GPUs must have indices that follow each other.

What counts is known to be free: on a node where somebody has GPUs that nobody can name, or where some may not be had
and nobody says which, no row can be promised, unless the node is empty.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import GpuRequest
from kai_solver.links import RowWish
from kai_solver.reduction.problem import Problem

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


@lru_cache(maxsize=256)
def wish_of(gpu: GpuRequest) -> RowWish | None:
    """The row that a pod wants; None where any GPUs will do."""
    return RowWish.parse(gpu.row) if gpu.row and gpu.is_whole else None


def needs_row(gpu: GpuRequest) -> bool:
    """Whether a pod cannot do without a row."""
    wish = wish_of(gpu)
    return wish is not None and wish.is_required


def fitting_in_rows(problem: Problem, whole: BoolArray, gpu: GpuRequest, at: slice | IntArray) -> IntArray:
    """(K,) pods that find a row each, on the nodes ``at`` with these devices wholly free, (K, D)."""
    wish = wish_of(gpu)
    if wish is None:
        return np.asarray(whole.sum(axis=1) // gpu.devices, dtype=np.int64)
    rows = rows_in(whole, gpu.devices, wish.row)
    known = problem.is_told[at] | (whole.sum(axis=1) == problem.devices[at])
    return np.where(known, rows, 0)


def rows_in(free: BoolArray, count: int, row: str) -> IntArray:
    """(K,) rows of ``count`` devices that ``free`` (K, D) has room for side by side."""
    found = np.zeros(len(free), dtype=np.int64)
    run = np.zeros(len(free), dtype=np.int64)
    for device, column in enumerate(free.T):
        if row == "aligned" and device % count == 0:
            run[:] = 0
        run = (run + 1) * column
        found += run == count
        run[run == count] = 0
    return found
