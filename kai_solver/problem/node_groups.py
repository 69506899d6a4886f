"""Nodes that nothing in question tells apart, and sums over them."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem.problem import Problem

IntArray = NDArray[np.int64]


def looks(problem: Problem, shapes: Sequence[int], partitions: Sequence[IntArray]) -> list[IntArray]:
    """Columns (N,) that tell nodes apart beside what is free: what they admit, how shares count, their domains."""
    table = problem.shapes
    bits = np.packbits([table.mask(shape) for shape in shapes], axis=0) if shapes else np.zeros((0, 0), np.uint8)
    by_memory = [table.parts(shape) for shape in shapes if table.shapes[shape].gpu.memory_mib]
    gpus = np.array([node.gpus for node in problem.nodes], dtype=np.int64)
    return [gpus, *(row.astype(np.int64) for row in bits), *by_memory, *(p.astype(np.int64) for p in partitions)]


def grouped(columns: Sequence[IntArray]) -> IntArray:
    """(N,) group of each node: those that agree in all ``columns``, numbered as they are met."""
    table = np.ascontiguousarray(np.stack(columns, axis=1).astype(np.int64))
    group: dict[bytes, int] = {}
    return np.array([group.setdefault(row.tobytes(), len(group)) for row in table], dtype=np.int64)


def sums(values: IntArray, of_node: IntArray, count: int) -> IntArray:
    """(count,) sums of ``values`` (N,) over the nodes of each group."""
    total = np.zeros(count, dtype=np.int64)
    np.add.at(total, of_node, values)
    return total
