"""Whole GPUs in a row: which pods need one, and on which nodes it is known which GPUs are free.

Only GPUs count that are known to be free. Pods with *unidentified* GPUs hold some, but it is unknown which. No row can
be promised on a node where such a pod stays, or where some GPUs may not be had and it is unknown which, unless the node
is empty.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import GpuRequest
from kai_solver.links import mask_of, row_masks, row_wish
from kai_solver.problem import Problem
from kai_solver.problem.devices import believed_devices

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

NAME = "gpurows"
"""The rule, and its family of rows in the model."""
KIND: Literal["row"] = "row"
"""Its element in a blocking set, and what a count is asked without."""


def needs_row(gpu: GpuRequest) -> bool:
    """Whether a pod cannot do without a row."""
    wish = row_wish(gpu)
    return wish is not None and wish.is_required


def fitting_in_rows(
    problem: Problem, whole: BoolArray, gpu: GpuRequest, at: slice | IntArray, known: BoolArray
) -> IntArray:
    """(K,) pods that find a row each, on the nodes ``at`` with these devices wholly free, (K, D).

    ``known``: (N,) nodes of whose devices it is known which are free; where all are free, they always are.
    """
    wish = row_wish(gpu)
    if wish is None:
        return np.asarray(whole.sum(axis=1) // gpu.devices, dtype=np.int64)
    rows = rows_in(whole, gpu.devices, wish.row)
    return np.where(known[at] | (whole.sum(axis=1) == problem.devices[at]), rows, 0)


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


def known_where(problem: Problem, unidentified: frozenset[int], device_free: IntArray) -> BoolArray:
    """(N,) nodes of which it may be known which devices are free, once (N, D) ``device_free`` is.

    They are those without pods of unidentified devices, and those where as much got free as these hold: never too few.
    """
    if not unidentified:
        return problem.devices_known
    freed = problem.device_free.copy()
    known = problem.devices_known.copy()
    origins = np.zeros(len(known), dtype=np.bool_)
    for pod in unidentified:
        node = problem.pod_node[pod]
        origins[node] = True
        freed[node, list(problem.held_devices.get(pod, ()))] += problem.shapes.parts(problem.pod_shape[pod])[node]
    known[origins] = (device_free[origins] >= freed[origins]).all(axis=1)
    return known


def unidentified_of(problem: Problem) -> frozenset[int]:
    """Pods with GPUs of which it is unknown which they are, on nodes where all GPUs may be had.

    Nodes some of whose GPUs may not be had are left out: which ones these are is unknown, whatever leaves.
    """
    nodes = set(np.flatnonzero(~problem.devices_known & (problem.devices == problem.gpus)).tolist())
    if not nodes:
        return frozenset()
    there: dict[int, list[int]] = {}
    for number, node in enumerate(problem.pod_node):
        pod = problem.pods[number]
        if node in nodes and pod.gpu.devices and pod.status.holds_resources:
            there.setdefault(node, []).append(number)
    found = set[int]()
    for node, numbers in there.items():
        believed = believed_devices(problem.nodes[node].gpus, [problem.pods[number] for number in numbers])
        found.update(number for number, devices in zip(numbers, believed, strict=True) if not devices)
    return frozenset(found)


def out_of_row(problem: Problem) -> frozenset[int]:
    """Running pods that need a row and of which it is not known that they have one: only a plan gives them one.

    They may stay where they are, and no count of rows has them in it.
    """
    shapes = problem.shapes.shapes
    asking = {index for index, shape in enumerate(shapes) if needs_row(shape.gpu)}
    running = (pod for pod, shape in enumerate(problem.pod_shape) if shape in asking and problem.pod_node[pod] >= 0)
    return frozenset(pod for pod in running if not _has_row(problem, pod))


def _has_row(problem: Problem, pod: int) -> bool:
    gpu, devices = problem.shapes.shapes[problem.pod_shape[pod]].gpu, sorted(problem.held_devices.get(pod, ()))
    wish = row_wish(gpu)
    if wish is None or not devices or not problem.devices_known[problem.pod_node[pod]]:
        return False
    return mask_of(devices) in row_masks(devices[-1] + 1, gpu.devices, wish.row)
