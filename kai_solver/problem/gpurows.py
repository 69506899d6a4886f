"""Whole GPUs in a row: how many pods a node takes whose GPUs must have indices that follow each other.

What counts is known to be free: on a node where a pod with unidentified devices stays, or where some may not be had and
it is not stated which, no row can be promised, unless the node is empty.
"""

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import GpuRequest
from kai_solver.links import RowWish, mask_of, row_masks

if TYPE_CHECKING:
    from kai_solver.problem.problem import Problem

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


def fitting_in_rows(
    problem: "Problem", whole: BoolArray, gpu: GpuRequest, at: slice | IntArray, known: BoolArray
) -> IntArray:
    """(K,) pods that find a row each, on the nodes ``at`` with these devices wholly free, (K, D).

    ``known``: (N,) nodes of whose devices it is known which are free; where all are free, they always are.
    """
    wish = wish_of(gpu)
    if wish is None:
        return np.asarray(whole.sum(axis=1) // gpu.devices, dtype=np.int64)
    rows = rows_in(whole, gpu.devices, wish.row)
    return np.where(known[at] | (whole.sum(axis=1) == problem.devices[at]), rows, 0)


def known_where(problem: "Problem", device_free: IntArray) -> BoolArray:
    """(N,) nodes of which it may be known which devices are free, once (N, D) ``device_free`` is.

    They are those without unidentified devices, and those where as much got free as such pods hold: never too few.
    """
    if not problem.unidentified:
        return problem.devices_known
    freed = problem.device_free.copy()
    known = problem.devices_known.copy()
    origins = np.zeros(len(known), dtype=np.bool_)
    for pod in problem.unidentified:
        node = problem.pod_node[pod]
        origins[node] = True
        freed[node, list(problem.held_devices.get(pod, ()))] += problem.shapes.parts(problem.pod_shape[pod])[node]
    known[origins] = (device_free[origins] >= freed[origins]).all(axis=1)
    return known


def out_of_row(problem: "Problem") -> frozenset[int]:
    """Running pods that need a row and are not known to have one: nothing but a plan sees to it.

    They may stay where they are, and no count of rows has them in it.
    """
    shapes = problem.shapes.shapes
    asking = {index for index, shape in enumerate(shapes) if needs_row(shape.gpu)}
    if not asking:
        return frozenset()
    running = (pod for pod, shape in enumerate(problem.pod_shape) if shape in asking and problem.pod_node[pod] >= 0)
    return frozenset(pod for pod in running if not _sits_in_row(problem, pod))


def _sits_in_row(problem: "Problem", pod: int) -> bool:
    gpu, held_devices = problem.shapes.shapes[problem.pod_shape[pod]].gpu, sorted(problem.held_devices.get(pod, ()))
    wish = wish_of(gpu)
    if wish is None or not held_devices or not problem.devices_known[problem.pod_node[pod]]:
        return False
    return mask_of(held_devices) in row_masks(held_devices[-1] + 1, gpu.devices, wish.row)


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
