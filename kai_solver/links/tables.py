"""What every set of a node's GPUs is worth, and what is left when it is taken: tables by state (`classes`).

The worth of a set is the grade of the weakest link of its best ring (of its pair, where it has two GPUs), then the sum
over its pairs. The ring is found exactly, by the dynamic programme of Held and Karp over counts instead of sets:

    path(s, c) = max over d of min(path(s - c, d), grade(d, c))

is the weakest link of the best path over the GPUs of state ``s`` that begins in its first class and ends in class
``c``.

The *leftover* of a state says what can still come there: for each size of pods the best grade among the sets of that
size, relative to the same node when it is empty, weighted by how usual the size is.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kai_solver.links.classes import MOST_STATES, Classes, classes_of
from kai_solver.links.graph import Ints, LinkGraph

Int64s = NDArray[np.int64]

FULL = 1000
"""Leftover of one size, times its weight, where nothing is lost."""

_NO_PATH = -1
_NOT_YET = -2


def usual_sizes(gpus: int) -> dict[int, int]:
    """Default weights of pods' sizes: 4 for powers of two, 1 for what is between.

    A size counts where it leaves a GPU. Weights hardly matter: on a fleet of DGX-1 V100 (`experiment nvlink`, policy
    `devices`, 10 seeds, 2026-11-22) these give 95.10% of the ceiling, 2 and 4 alone 95.15%, equal weights 94.87%.
    """
    return {size: 4 if size & (size - 1) == 0 else 1 for size in range(2, gpus)}


@dataclass(frozen=True, slots=True, eq=False)
class LinkTable:
    """Worth of every state of a graph, and choices as they are asked for.

    Attributes
    ----------
    counts, total
        GPUs of each class, shape (S, C), and of all, shape (S,).
    path
        Weakest link of the best path by its last class, shape (S, C); -1: none.
    grade
        Grade of the weakest link of the best ring or the pair, shape (S,); 0 below two GPUs.
    sums
        Sum of the grades of all pairs, shape (S,).
    leftover, most_leftover
        Leftover of free GPUs, shape (S,), and that of all GPUs.
    """

    graph: LinkGraph
    classes: Classes
    counts: NDArray[np.int16]
    total: NDArray[np.int16]
    path: Ints
    grade: Ints
    sums: Int64s
    leftover: Int64s
    _of_size: dict[int, Int64s] = field(default_factory=dict, init=False)
    _chosen: dict[int, Int64s] = field(default_factory=dict, init=False)
    _best: dict[int, int] = field(default_factory=dict, init=False)

    @classmethod
    def of(
        cls, graph: LinkGraph, sizes: Mapping[int, int] | None = None, most_states: int = MOST_STATES
    ) -> "LinkTable":
        """Tables of a graph; ``sizes``: weight of each size of pods, default `usual_sizes`.

        ``most_states``: beyond it links are told less finely.
        """
        classes = classes_of(graph, most_states)
        counts = classes.counts()
        total = counts.sum(axis=1, dtype=np.int16)
        layers = [np.flatnonzero(total == size) for size in range(graph.gpus + 1)]
        path = _paths(counts, layers, classes)
        grade = _rings(path, counts, total, classes)
        weights = usual_sizes(graph.gpus) if sizes is None else sizes
        leftover = _leftover(grade, total, classes, weights)
        if classes.notice:
            graph = graph.noting(classes.notice)
        return cls(graph, classes, counts, total, path, grade, _sums(counts, classes), leftover)

    @property
    def most_leftover(self) -> int:
        """Leftover of the empty node."""
        return int(self.leftover[-1])

    def best_grade(self, count: int) -> int:
        """Grade of the best ``count`` GPUs of the empty node; 0 for one GPU, or where there are not so many."""
        if count not in self._best:
            whole = np.array([len(self.grade) - 1])
            found = int(self.grade[self.chosen(whole, count)[0]]) if count <= self.graph.gpus else 0
            self._best[count] = found
        return self._best[count]

    def candidates(self, free: int, count: int) -> Int64s:
        """States of all sets of ``count`` of the GPUs of state ``free``, shape (N,)."""
        if count not in self._of_size:
            self._of_size[count] = np.flatnonzero(self.total == count)
        states = self._of_size[count]
        fits: Int64s = states[(self.counts[states] <= self.counts[free]).all(axis=1)]
        return fits

    def ranked(self, free: int, states: Int64s) -> Int64s:
        """``states``, the best first: weakest link, then leftover, then sum; among equals the lowest GPUs."""
        order = np.lexsort((states, self.sums[states], self.leftover[free - states], self.grade[states]))
        best_first: Int64s = states[order[::-1]]
        return best_first

    def chosen(self, free: Int64s, count: int) -> Int64s:
        """The best state of ``count`` GPUs within each of ``free``, shape (N,); -1 where so many are not free."""
        table = self._chosen.get(count)
        if table is None:
            table = self._chosen[count] = np.where(self.total < count, -1, _NOT_YET).astype(np.int64)
        found: Int64s = table[free]
        if (found == _NOT_YET).any():
            for state in np.unique(free[found == _NOT_YET]).tolist():
                table[state] = self.ranked(state, self.candidates(state, count))[0]
            found = table[free]
        return found


def _paths(counts: NDArray[np.int16], layers: list[Int64s], classes: Classes) -> Ints:
    """Weakest link of the best path by its last class, shape (S, C); a single GPU has no link that could be weak."""
    path = np.full(counts.shape, _NO_PATH, dtype=np.int32)
    first = (counts > 0).argmax(axis=1)
    path[layers[1], first[layers[1]]] = np.iinfo(np.int32).max
    for states in layers[2:]:
        for last, radix in enumerate(classes.radix.tolist()):
            here = states[counts[states, last] > (first[states] == last)]
            reached = np.minimum(path[here - radix], classes.between[:, last])
            path[here, last] = reached.max(axis=1, initial=_NO_PATH)
    return path


def _rings(path: Ints, counts: NDArray[np.int16], total: NDArray[np.int16], classes: Classes) -> Ints:
    """Weakest link of the best ring, of the pair where there are two GPUs, shape (S,)."""
    first = (counts > 0).argmax(axis=1)
    closed = np.minimum(path, classes.between[first]).max(axis=1)
    return np.where(total < 2, 0, closed).astype(np.int32)


def _sums(counts: NDArray[np.int16], classes: Classes) -> Int64s:
    between, wide = classes.between.astype(np.int64), counts.astype(np.int64)
    both = np.einsum("sc,cd,sd->s", wide, between, wide, optimize=True) - wide @ np.diag(between)
    sums: Int64s = both // 2
    return sums


def _leftover(grade: Ints, total: NDArray[np.int16], classes: Classes, sizes: Mapping[int, int]) -> Int64s:
    """Weighted sum over sizes of the best grade among sets of that size, relative to that of the empty node.

    The best set within a state is a maximum over all vectors of counts that are nowhere larger: one class at a time.
    """
    axes = [len(own) + 1 for own in classes.members]
    leftover = np.zeros(len(grade), dtype=np.int64)
    for size, weight in sizes.items():
        if not 2 <= size <= total[-1]:
            continue
        best = np.where(total == size, grade, _NO_PATH).reshape(axes)
        for axis in range(len(axes)):
            np.maximum.accumulate(best, axis=axis, out=best)
        own = best.ravel().astype(np.int64)
        relative = own * FULL // own[-1] if own[-1] > 0 else np.full_like(own, FULL)
        leftover += weight * np.where(own < 0, 0, relative)
    return leftover
