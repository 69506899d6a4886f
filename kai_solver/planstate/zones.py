"""NUMA zones while a cycle is planned: what is free in each, now and later, and which ones a pod takes."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.errors import InternalError
from kai_solver.problem import Problem
from kai_solver.problem.alignment import Alignment
from kai_solver.problem.zones import MANY, ZoneTable, ZoneTake

IntArray = NDArray[np.int64]

BEST = 100
"""Score of a node that aligns the pod in one zone; n zones: a hundred by n, none: 0 (docs/kai-behaviour.md#scoring)."""


class ZoneLedger:
    """``idle`` and ``future`` (M, Z, R): what is free now, and once all leaving pods have left."""

    def __init__(self, problem: Problem, table: ZoneTable) -> None:
        self.table = table
        self.idle: IntArray = table.free.copy()
        self.future: IntArray = table.free + table.releasing
        self._alignments = [shape.alignment for shape in problem.shapes.shapes]
        self._shape = problem.pod_shape
        self._node = problem.pod_node

    def row(self, node: int) -> int:
        """Row of the node; -1 where its zones do not count."""
        return int(self.table.row_of[node])

    def present(self, row: int) -> IntArray:
        """(Z, R) what is free now and promised to no pod."""
        found: IntArray = np.minimum(self.idle[row], self.future[row])
        return found

    def choose(self, pod: int, node: int, wanted: ZoneTake, *, now: bool) -> ZoneTake:
        """Zones for ``pod``: ``wanted`` where free, its own where it comes back, else the first that serve."""
        row, alignment = self.row(node), self._alignments[self._shape[pod]]
        if row < 0 or alignment is None:
            return ()
        free = self.present(row) if now else self.future[row]
        origin = self.table.held.get(pod, ()) if self._node[pod] == node else ()
        for take in (wanted, origin):
            if take and self.table.holds(take, free):
                return take
        found = self.table.align(alignment, row, free)
        if found is None:
            raise InternalError(f"no NUMA zones for pod {pod} on node {node}")
        return found

    def are_free(self, node: int, take: ZoneTake) -> bool:
        """True where ``take`` could be had now; so could nothing at all."""
        return not take or self.table.holds(take, self.present(self.row(node)))

    def shift(self, node: int, take: ZoneTake, sign: int, *, now: bool) -> None:
        """Take (-1) or give back (+1) in the future, and where it is about now in the present too."""
        row = self.row(node)
        for zone, amounts in take:
            self.future[row, zone] += sign * np.array(amounts, dtype=np.int64)
            if now:
                self.idle[row, zone] += sign * np.array(amounts, dtype=np.int64)

    def held(self, pod: int) -> ZoneTake:
        """What a running pod holds, as far as known."""
        return self.table.held.get(pod, ())

    def has_room_at_origin(self, pod: int) -> bool:
        """True where a pod that left finds its zones as it left them."""
        take = self.held(pod)
        return not take or self.table.holds(take, self.future[self.row(self._node[pod])])

    def limit(self, shape: int, nodes: IntArray, now: IntArray, later: IntArray) -> None:
        """Cut counts (len(nodes),) of pods that fit ``nodes`` to those that find zones."""
        alignment = self._alignments[shape]
        rows = self.table.row_of[nodes]
        at = np.flatnonzero(rows >= 0)
        if alignment is None or not len(at):
            return
        rows, most = rows[at], np.minimum(later[at], MANY)
        later[at] = np.minimum(later[at], self.table.counts(alignment, rows, self.future, most))
        present = np.minimum(self.idle, self.future)
        now[at] = np.minimum(now[at], self.table.counts(alignment, rows, present, np.minimum(now[at], most)))

    def is_aligned(self, shape: int) -> bool:
        """True where zones may count for pods of ``shape``."""
        return self._alignments[shape] is not None

    def scores(self, shape: int, nodes: IntArray) -> IntArray:
        """(len(nodes),) 100 by the zones that one more pod would lie in; 0 where it is not aligned."""
        alignment = self._alignments[shape]
        if alignment is None:
            return np.zeros(len(nodes), dtype=np.int64)
        spans = self.table.spans(alignment, self.future, nodes)
        found: IntArray = np.where(spans > 0, BEST // np.maximum(spans, 1), 0)
        return found

    def aligns(self, alignment: Alignment, row: int, extra: IntArray) -> bool:
        """True where a pod finds zones in the future with ``extra`` (Z, R) more."""
        return self.table.align(alignment, row, self.future[row] + extra) is not None
