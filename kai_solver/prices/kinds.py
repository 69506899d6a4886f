"""Nodes folded into kinds: nodes that admit the same shapes, in the same domains. What they have free is summed.

A sum over nodes is a relaxation: what fits them one by one fits the sum. Nodes that also have the same free are told
apart from others as long as that makes no more than `MOST_PLACES` kinds times shapes.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem
from kai_solver.problem.capacity import fitting
from kai_solver.problem.node_groups import grouped, looks, sums
from kai_solver.units import GPU
from kai_solver.units.shares import WHOLE, floor_milli

Ints = NDArray[np.int64]

MOST_PLACES = 3_000


@dataclass(frozen=True, slots=True)
class Kinds:
    """K kinds of nodes, for S shapes.

    Attributes
    ----------
    shapes
        Numbers of the shapes, ascending.
    of_node
        (N,) kind of each node.
    most
        (S, K) pods of each shape that the nodes of a kind take, each shape alone.
    free
        (R, K) free by resource, summed.
    whole
        Slots: by number of devices that a pod takes, (K,) how many such pods wholly free devices hold, node by node.
    milli
        (S, K) thousandths of each of its devices that a pod takes; 0: none.
    levels
        By kind, (thousandths free, devices) of all its devices that are free in part or wholly.
    """

    shapes: tuple[int, ...]
    of_node: Ints
    most: Ints
    free: Ints
    whole: dict[int, Ints]
    milli: Ints
    levels: tuple[tuple[tuple[int, int], ...], ...]

    @property
    def count(self) -> int:
        """K."""
        return int(self.most.shape[1])

    def domain_of(self, partition: Ints) -> Ints:
        """(K,) domain of each kind, given that of each node (N,)."""
        found = np.full(self.count, -1, dtype=np.int64)
        found[self.of_node] = partition
        return found


def kinds_of(
    problem: Problem, free: Ints, device_free: Ints, shapes: Sequence[int], partitions: Sequence[Ints]
) -> Kinds:
    """Fold the nodes, given (R, N) and (N, D) what is free; no kind lies in two domains of one of ``partitions``."""
    shapes = tuple(sorted(shapes))
    free, device_free = np.maximum(free, 0), np.clip(device_free, 0, WHOLE)
    fits = np.array([fitting(problem, free, device_free, shape) for shape in shapes]).reshape(len(shapes), -1)
    columns = looks(problem, shapes, partitions)
    columns += [problem.capacity[resource] for resource in range(len(problem.capacity)) if resource != GPU]
    of_node = grouped([*columns, *free, *np.sort(device_free, axis=1).T])
    if (int(of_node.max(initial=-1)) + 1) * len(shapes) > MOST_PLACES:
        of_node = grouped(columns)
    count = int(of_node.max(initial=-1)) + 1
    most = np.array([sums(fit, of_node, count) for fit in fits], dtype=np.int64).reshape(len(shapes), count)
    specs = [problem.shapes.shapes[shape].gpu for shape in shapes]
    is_whole = (device_free >= WHOLE).sum(axis=1)
    milli = np.zeros(most.shape, dtype=np.int64)
    for row, shape in zip(milli, shapes, strict=True):
        row[of_node] = floor_milli(problem.shapes.parts(shape))  # The same on all nodes of one kind.
    return Kinds(
        shapes,
        of_node,
        most,
        np.array([sums(row, of_node, count) for row in free]),
        {size: sums(is_whole // size, of_node, count) for size in {s.devices for s in specs if s.is_whole}},
        milli,
        _levels(floor_milli(device_free), of_node, count),
    )


def _levels(milli: Ints, of_node: Ints, count: int) -> tuple[tuple[tuple[int, int], ...], ...]:
    found: list[tuple[tuple[int, int], ...]] = []
    kind = np.repeat(of_node, milli.shape[1])
    for number in range(count):
        level, devices = np.unique(milli.ravel()[kind == number], return_counts=True)
        pairs = zip(level.tolist(), devices.tolist(), strict=True)
        found.append(tuple((free, there) for free, there in pairs if free))
    return tuple(found)
