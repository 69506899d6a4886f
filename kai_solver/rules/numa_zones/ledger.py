"""NUMA zones while a plan is made: what is free in each, now and later, and which ones a pod takes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.errors import InternalError
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import Problem
from kai_solver.problem.rules import Compartments, Ledger
from kai_solver.rules.numa_zones.alignment import NAME, Alignment, alignment_in
from kai_solver.rules.numa_zones.clearing import ZoneClearing
from kai_solver.rules.numa_zones.table import MANY, ZoneTable, ZoneTake
from kai_solver.rules.numa_zones.words import NOT_ALIGNED
from kai_solver.units import Vector

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

BEST = 100
"""Score of a node that aligns the pod in one zone; n zones: a hundred by n, none: 0 (docs/kai-behaviour.md#scoring)."""


class ZoneLedger(Ledger):
    """``idle`` and ``future`` (M, Z, R): what is free now, and once everything has left that is leaving."""

    kind = NAME
    grants = True

    def __init__(self, problem: Problem, table: ZoneTable) -> None:
        self.table = table
        self.idle: IntArray = table.free.copy()
        self.future: IntArray = table.free + table.releasing
        self._alignments: list[Alignment | None] = [alignment_in(shape) for shape in problem.shapes.shapes]
        self._shapes = problem.shapes
        self._limits: dict[int, bool] = {}
        self._counts_alike: dict[int, bool] = {}
        self._in_compartments: dict[tuple[Alignment, int], tuple[Sequence[int], IntArray] | None] = {}
        self._shape = problem.pod_shape
        self._node = problem.pod_node
        self._zoned: BoolArray = table.row_of >= 0

    # -- nodes and counts --------------------------------------------------------------------------------------------

    def is_plain(self, shape: int, /) -> bool:
        """True for pods that are not aligned."""
        return self._alignments[shape] is None

    def counts_alike(self, shape: int, /) -> bool:
        """True where each pod takes the room of one zone on all nodes with zones."""
        if shape not in self._counts_alike:
            alignment, nodes = self._alignments[shape], self._shapes.mask(shape)
            self._counts_alike[shape] = alignment is None or self.table.adds_up(alignment, nodes)
        return self._counts_alike[shape]

    def adds_up(self, shape: int, /) -> bool:
        """Other pods may leave room in one zone and not in another."""
        return self.counts_alike(shape)

    def limits(self, shape: int, /) -> bool:
        """True where zones count for pods of ``shape`` on some node that admits them."""
        if shape not in self._limits:
            admits = self._shapes.mask(shape) & (self.table.row_of >= 0)
            self._limits[shape] = self._alignments[shape] is not None and bool(admits.any())
        return self._limits[shape]

    def limited_nodes(self, shape: int, /) -> BoolArray:
        """Those with zones."""
        return self._zoned

    def limit(self, shape: int, nodes: IntArray, now: IntArray, later: IntArray, /) -> None:
        """To the pods that find zones."""
        alignment = self._alignments[shape]
        rows = self.table.row_of[nodes]
        at = np.flatnonzero(rows >= 0)
        if alignment is None or not len(at):
            return
        rows, most = rows[at], np.minimum(later[at], MANY)
        later[at] = np.minimum(later[at], self.table.counts(alignment, rows, self.future, most))
        present = np.minimum(self.idle, self.future)
        now[at] = np.minimum(now[at], self.table.counts(alignment, rows, present, np.minimum(now[at], most)))

    def compartments(self) -> Compartments:
        """The zones."""
        return Compartments(self.table.row_of, self.table.aware, self.idle, self.future)

    def in_compartments(self, shape: int, /) -> tuple[Sequence[int], IntArray] | None:
        """Where each pod is one request, the same on all nodes with zones, that takes one zone or all of them."""
        alignment, table = self._alignments[shape], self.table
        if alignment is None:
            return (0,) * table.schema.size, np.zeros(len(table.nodes), dtype=np.int64)
        key = alignment, self._shapes.same_room(shape)
        if key not in self._in_compartments:
            self._in_compartments[key] = self._counted_in(alignment, shape)
        return self._in_compartments[key]

    def _counted_in(self, alignment: Alignment, shape: int) -> tuple[Sequence[int], IntArray] | None:
        table = self.table
        width = np.zeros(len(table.nodes), dtype=np.int64)
        widths, asked = table.widths(alignment), set[Vector]()
        for row in np.flatnonzero(self._shapes.mask(shape)[table.nodes] & table.binding).tolist():
            together = widths.together[row]
            if len(together) != 1 or widths.before[row] or together[0] not in (0, 1, len(table.names[row])):
                return None
            width[row] = together[0]
            asked.update(alignment.units(by_container=table.by_container[row]) if together[0] else ())
        return (asked.pop() if asked else (0,) * table.schema.size, width) if len(asked) < 2 else None

    def score(self, shape: int, nodes: IntArray, /) -> IntArray | None:
        """100 by the zones that one more pod would lie in; 0 where it is not aligned."""
        alignment = self._alignments[shape]
        if alignment is None:
            return None
        spans = self.table.spans(alignment, self.future, nodes)
        found: IntArray = np.where(spans > 0, BEST // np.maximum(spans, 1), 0)
        return found

    # -- steps -------------------------------------------------------------------------------------------------------

    def take(self, node: int, grant: ZoneTake, sign: int, *, now: bool) -> None:
        """In the future, and where the pod starts at once in the present too."""
        row = self.row(node)
        for zone, amounts in grant:
            self.future[row, zone] -= sign * np.array(amounts, dtype=np.int64)
            if now:
                self.idle[row, zone] -= sign * np.array(amounts, dtype=np.int64)

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """What one pod is known to hold is free in the future."""
        self.take(node, self.held(pod) or (), -sign, now=False)

    def has_room_at_origin(self, pod: int, /) -> bool:
        """True where a pod that left finds its zones as it left them."""
        take = self.held(pod)
        return take is None or self.table.holds(take, self.future[self.row(self._node[pod])])

    def may_return(self, pod: int, /) -> bool:
        """``has_room_at_origin`` says it."""
        return True

    # -- zones -------------------------------------------------------------------------------------------------------

    def row(self, node: int) -> int:
        """Row of the node; -1 where its zones do not count."""
        return int(self.table.row_of[node])

    def _present(self, row: int) -> IntArray:
        """(Z, R) what is free now and promised to no pod."""
        found: IntArray = np.minimum(self.idle[row], self.future[row])
        return found

    def grant(self, pod: int, node: int, wanted: ZoneTake | None, *, now: bool) -> ZoneTake | None:
        """``wanted`` where free, its own where it comes back, else the first zones that fit."""
        row, alignment = self.row(node), self._alignments[self._shape[pod]]
        if row < 0 or alignment is None:
            return None
        free = self._present(row) if now else self.future[row]
        own = self.held(pod) if self._node[pod] == node else None
        for take in (wanted, own):
            if take and self.table.holds(take, free):
                return take
        found = self.table.align(alignment, row, free)
        if found is None:
            raise InternalError(f"no NUMA zones for pod {pod} on node {node}")
        return found or None

    def grants_at(self, node: int, /) -> bool:
        """Where it has zones."""
        return self.row(node) >= 0

    def is_free(self, node: int, grant: ZoneTake | None, /) -> bool:
        """So could nothing at all."""
        return not grant or self.table.holds(grant, self._present(self.row(node)))

    def held(self, pod: int, /) -> ZoneTake | None:
        """As of the start of the cycle."""
        return self.table.held.get(pod)

    def gives_back(self, pod: int, shape: int, /) -> bool:
        """True where it is known to hold of one zone what a pod of ``shape`` takes."""
        row, alignment, take = self.row(self._node[pod]), self._alignments[shape], self.held(pod)
        if row < 0 or alignment is None:
            return not take
        [unit] = alignment.units(by_container=self.table.by_container[row])
        asked = tuple(amount if aware else 0 for amount, aware in zip(unit, self.table.aware[row], strict=True))
        return [amounts for _, amounts in take or ()] == [asked]

    def free(self) -> IntArray:
        """(M, Z, R) in the future."""
        return self.future.copy()

    def clearing(self, pool: VictimPool, shape: int, prices: Sequence[float], /) -> ZoneClearing | None:
        """For pods that are aligned."""
        alignment = self._alignments[shape]
        return None if alignment is None else ZoneClearing(pool, self.table, self.future, alignment)

    # -- words -------------------------------------------------------------------------------------------------------

    def closed(self, shape: int, pod: int, nodes: BoolArray, /) -> BoolArray | None:
        """Nodes that have enough in all, but in no zones that their Topology Manager would take the pod into."""
        alignment = self._alignments[shape]
        if alignment is None:
            return None
        found = np.zeros_like(nodes)
        for row, node in enumerate(self.table.nodes):
            if nodes[node] and self.table.binding[row]:
                found[node] = self.table.align(alignment, row, self.future[row]) is None
        return found

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> dict[str, int]:
        """KAI's words."""
        return {NOT_ALIGNED: int(nodes.sum())}
