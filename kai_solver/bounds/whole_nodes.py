"""The fewest pods that must be evicted or moved, where newcomers need most of a node each."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.residents import Residents
from kai_solver.problem import Problem
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]


def fewest_leaving(problem: Problem, newcomers: Iterable[int]) -> int:
    """The fewest pods that must leave, so that each of ``newcomers`` (pods) can have its GPUs.

    Two pods that each take more than half of the largest node's GPUs are never on the same node. So of ``k`` such pods
    with ``d`` GPUs or more, each needs a node of its own on which ``d`` GPUs are free, or are freed by the pods there
    that hold most. CPU, memory, racks and where the others go are not counted: it may take more.
    """
    most = int(problem.gpus.max(initial=0))
    wanted: dict[int, int] = {}
    for shape, count in problem.by_shape(newcomers).items():
        gpu = problem.shapes.shapes[shape].gpu
        if gpu.is_whole and 2 * gpu.devices > most:
            wanted[gpu.devices] = wanted.get(gpu.devices, 0) + count
    if not wanted:
        return 0
    found, pods, steps = 0, 0, _freed_by_step(problem)
    for devices in sorted(wanted, reverse=True):
        pods += wanted[devices]
        enough = steps >= devices
        needed = np.where(enough.any(axis=1), enough.argmax(axis=1), steps.shape[1])[problem.gpus >= devices]
        found = max(found, int(np.sort(needed)[:pods].sum()))
    return found


def _freed_by_step(problem: Problem) -> IntArray:
    """(N, 1 + the most pods of a node) devices that are free once so many pods have left, those that hold most first.

    A pod that shares a device counts as if it freed the whole device.
    """
    parts = np.maximum(problem.device_free + problem.device_releasing, 0)
    free = np.where(problem.devices_known, (parts >= WHOLE).sum(axis=1), parts.sum(axis=1) // WHOLE)
    residents = Residents(problem)
    held = np.array([shape.gpu.devices for shape in problem.shapes.shapes], dtype=np.int64)[residents.shape]
    node, held = residents.node[held > 0], held[held > 0]
    order = np.lexsort((-held, node))
    node, held = node[order], held[order]
    step = 1 + np.arange(len(node)) - np.searchsorted(node, node)
    freed = np.zeros((len(problem.nodes), 1 + int(step.max(initial=0))), dtype=np.int64)
    freed[:, 0] = free
    freed[node, step] = held
    return np.cumsum(freed, axis=1)
