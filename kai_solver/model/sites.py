"""Nodes folded into sites: equal for every shape in question, in the same domains; what a site takes is summed.

Rows of a site are relaxations: each holds for every way to place pods on its nodes, so a "no" of them is a proof. With
``x[s]`` pods of shape s on the site, all of them read ``sum_s weight[s] x[s] <= capacity``:

- resource r: ``request[s, r]`` against what is free of r in all;
- slots of k GPUs: ``floor(devices[s] / k)`` against ``sum_n floor(whole[n] / k)``; exact for sizes that divide each
  other (docs/formulation.md#capacity);
- devices, where shares are in question: ``devices[s] f(milli[s])`` against ``sum_d f(free[d])`` for superadditive f
  (dual feasible functions: Fekete and Schepers, "New classes of fast lower bounds for bin packing problems", 2001).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem
from kai_solver.problem.capacity import fitting
from kai_solver.problem.node_groups import grouped, looks, sums
from kai_solver.units import GPU, MILLI
from kai_solver.units.shares import WHOLE, floor_milli

IntArray = NDArray[np.int64]

MOST_THRESHOLDS = 12
"""Dual feasible functions by threshold, for the shares that are asked for most often."""
LARGEST = 1 << 40
"""Capacities are scaled below this, so that no sum leaves 64 bits."""


@dataclass(frozen=True, slots=True)
class SiteRow:
    """One row for every site: (S, G) weights and (G,) capacities."""

    weight: IntArray
    capacity: IntArray


@dataclass(frozen=True, slots=True)
class Sites:
    """G sites for S shapes.

    Attributes
    ----------
    shapes
        Shapes in question, ascending.
    of_node
        (N,) site of each node.
    most
        (S, G) most pods of each shape that the site's nodes take, each shape alone.
    rows
        What shapes take from each other.
    """

    shapes: tuple[int, ...]
    of_node: IntArray
    most: IntArray
    rows: tuple[SiteRow, ...]

    def domain_of(self, partition: IntArray) -> IntArray:
        """(G,) domain of each site, given that of each node (N,); no site lies in two."""
        found = np.full(self.most.shape[1], -1, dtype=np.int64)
        found[self.of_node] = partition
        return found


def fold(
    problem: Problem,
    free: IntArray,
    device_free: IntArray,
    shapes: Sequence[int],
    partitions: Sequence[IntArray],
    most_places: int,
) -> Sites:
    """Fold the nodes, given (R, N) and (N, D) what is free of them.

    Parameters
    ----------
    partitions
        (N,) domains each: no site lies in two domains of one.
    most_places
        Where equal nodes make more sites times shapes than this, nodes that differ only in what is free share one.
    """
    shapes = tuple(sorted(shapes))
    free, device_free = np.maximum(free, 0), np.clip(device_free, 0, WHOLE)
    columns = looks(problem, shapes, partitions)
    of_node = grouped([*columns, *free, *np.sort(device_free, axis=1).T])
    if (int(of_node.max(initial=-1)) + 1) * len(shapes) > most_places:
        of_node = grouped(columns)
    count = int(of_node.max(initial=-1)) + 1
    fits = [fitting(problem, free, device_free, shape) for shape in shapes]
    most = np.array([sums(fit, of_node, count) for fit in fits], dtype=np.int64).reshape(len(shapes), count)
    rows = tuple(
        SiteRow(weight, capacity)
        for weight, offer in _row_parts(problem, free, device_free, shapes, of_node, count)
        for capacity in (sums(offer, of_node, count),)
        if ((weight * most).sum(axis=0) > capacity).any()
    )
    return Sites(shapes, of_node, most, rows)


def _row_parts(
    problem: Problem,
    free: IntArray,
    device_free: IntArray,
    shapes: Sequence[int],
    of_node: IntArray,
    count: int,
) -> Iterator[tuple[IntArray, IntArray]]:
    """(S, G) weights and (N,) offers of every kind of row."""
    specs = [problem.shapes.shapes[shape] for shape in shapes]
    for resource in range(free.shape[0]):
        asked = np.array([spec.request[resource] for spec in specs], dtype=np.int64)
        if resource != GPU and asked.any():
            scale = 1 + int(free[resource].astype(np.float64).sum()) // LARGEST
            yield np.repeat((asked // scale)[:, None], count, axis=1), free[resource] // scale
    devices = np.array([spec.gpu.devices for spec in specs], dtype=np.int64)
    whole = np.array([spec.gpu.is_whole for spec in specs], dtype=np.bool_)
    free_whole = (device_free >= WHOLE).sum(axis=1)
    shared = [spec for spec in specs if spec.gpu.is_shared]
    for size in sorted({int(d) for d in devices[whole]} | ({1} if whole.any() and not shared else set())):
        if size > 1 or not shared:
            yield np.repeat(np.where(whole, devices // size, 0)[:, None], count, axis=1), free_whole // size
    if shared:
        milli = _least_milli(problem, shapes, of_node, count)
        for f in _functions(milli[[spec.gpu.is_shared for spec in specs]]):
            yield devices[:, None] * f(milli), f(floor_milli(device_free)).sum(axis=1)


def _least_milli(problem: Problem, shapes: Sequence[int], of_node: IntArray, count: int) -> IntArray:
    """(S, G) thousandths of each device that a pod takes, rounded down as what is free; 0 for shapes without GPUs."""
    rows = np.full((len(shapes), count), MILLI, dtype=np.int64)
    for row, shape in zip(rows, shapes, strict=True):
        np.minimum.at(row, of_node, floor_milli(problem.shapes.parts(shape)))
    return rows


def _functions(shares: IntArray) -> Iterator[Callable[[IntArray], IntArray]]:
    """Superadditive functions on [0, 1000] with f(1000) = 1000, chosen for the ``shares`` that are asked for."""
    values, counts = np.unique(shares[(shares > 0) & (shares < MILLI)], return_counts=True)
    often = values[np.argsort(-counts, kind="stable")]
    thresholds = dict.fromkeys(int(m) if 2 * m <= MILLI else MILLI + 1 - int(m) for m in often)
    for threshold in (0, *list(thresholds)[:MOST_THRESHOLDS], MILLI // 2):
        yield lambda x, t=threshold: np.where(x > MILLI - t, MILLI, np.where(x < t, 0, x))  # type: ignore[misc]
    for k in (1, 2, 3, 4):
        yield lambda x, k=k: _stepped(x, k)  # type: ignore[misc]


def _stepped(x: IntArray, k: int) -> IntArray:
    """``floor((k + 1) x) / k`` in thousandths times k, where ``(k + 1) x`` is no integer; ``x`` where it is."""
    grown = (k + 1) * x
    return np.where(grown % MILLI == 0, k * x, grown // MILLI * MILLI)
