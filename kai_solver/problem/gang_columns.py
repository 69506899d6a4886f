"""The gangs of a problem by number: their shapes, each made when it is asked for, and what they are as arrays."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem.gang_facts import SCATTERED
from kai_solver.problem.gangs import GangShape, renumbered
from kai_solver.problem.rows import GangRow

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]


class GangShapes:
    """Shapes of the G gangs. One of an earlier cycle gets its new number when it is first asked for.

    Of 9,400 gangs that run on 5,000 nodes a cycle asks for a part: to number all took 0.023 s (2026-11-29).
    """

    __slots__ = ("_first", "_known", "_made", "_rows")

    def __init__(self, rows: Sequence[GangRow], shapes: Sequence[GangShape], first: Sequence[int]) -> None:
        """``rows``, ``shapes``: of the gangs in order, as last numbered; ``first``: the first pod of each."""
        self._rows = rows
        self._known = shapes
        self._first = first
        self._made: list[GangShape | None] = [None] * len(rows)

    def __len__(self) -> int:
        return len(self._made)

    def __getitem__(self, index: int) -> GangShape:
        found = self._made[index]
        return self._numbered(index) if found is None else found

    def __iter__(self) -> Iterator[GangShape]:
        return map(self.__getitem__, range(len(self._made)))

    def whatever_number(self, index: int) -> GangShape:
        """The shape with its number and those of its pods in this cycle, or in an earlier one."""
        return self._made[index] or self._known[index]

    def _numbered(self, index: int) -> GangShape:
        index %= len(self._made)
        row, known = self._rows[index], self._known[index]
        shape = self._made[index] = renumbered(known, index, self._first[index])
        if row.shape is known:  # Else a later problem has it otherwise.
            row.shape = shape
        return shape


class GangColumns:
    """Of the G gangs of a problem. Do not write to the arrays; what is not named here is as in `gang_facts.FACTS`.

    Attributes
    ----------
    first
        (G,) the first of each gang's pods.
    is_ready
        (G,) gangs with pods that may be placed, enough for their minimum, with one leaf and no topology; others may be
        ready, too.
    waiting, pending, stale, with_leaves
        Gangs that wait, that have pods which may be placed, that are stale, and that have not exactly one leaf.
    has_families
        Whether any has a family (`GangShape.family`).
    """

    def __init__(self, facts: NDArray[Any], first: IntArray, shapes: GangShapes, pod_node: IntArray) -> None:
        """``facts``: (G,) `FACTS`; ``pod_node``: (P,) the node of each pod."""
        self.first = first
        self.queue: IntArray = facts["queue"].copy()
        self.priority: IntArray = facts["priority"].copy()
        self.minimum: IntArray = facts["minimum"].copy()
        self.active: IntArray = facts["active"].copy()
        self.preemptible: BoolArray = facts["preemptible"].copy()
        self.is_flat: BoolArray = facts["is_flat"].copy()
        self.is_bound: BoolArray = facts["is_bound"].copy()
        asks_all = facts["is_flat"] & ~facts["is_bound"]
        self.is_ready: BoolArray = asks_all & (facts["pending"] > 0) & (facts["pending"] + self.active >= self.minimum)
        self.created_s: FloatArray = facts["created_s"].copy()
        self.started_s: FloatArray = facts["started_s"].copy()
        self.first_active: IntArray = facts["first_active"].copy()
        self.waiting: list[int] = np.flatnonzero(facts["waits"]).tolist()
        self.pending: list[int] = np.flatnonzero(facts["pending"]).tolist()
        self.stale: list[int] = np.flatnonzero(facts["is_stale"]).tolist()
        self.with_leaves: list[int] = np.flatnonzero(~facts["is_lone"]).tolist()
        self.has_families = not bool(facts["is_known"].all())  # A family has another number in each cycle.
        self._shapes = shapes
        self._pod_node = pod_node

    @cached_property
    def start_s(self) -> FloatArray:
        """(G,) when each gang started; where it never did, when it was created."""
        found: FloatArray = np.where(np.isnan(self.started_s), self.created_s, self.started_s)
        return found

    @cached_property
    def active_pods(self) -> tuple[IntArray, IntArray]:
        """Pods that run, gang by gang and leaf by leaf, and the gang of each."""
        owner = np.repeat(np.arange(len(self.active)), self.active)
        pods = stretches(self.first + np.maximum(self.first_active, 0), self.active)
        ends = np.cumsum(self.active)
        for gang in np.flatnonzero(self.first_active == SCATTERED).tolist():
            pods[ends[gang] - self.active[gang] : ends[gang]] = self._shapes[gang].active
        return pods, owner

    @cached_property
    def lies(self) -> BoolArray:
        """(G,) gangs that run, with all running pods on nodes of the problem."""
        pods, owner = self.active_pods
        found: BoolArray = self.active > 0
        found[owner[self._pod_node[pods] < 0]] = False
        return found


def stretches(first: IntArray, count: IntArray) -> IntArray:
    """The numbers ``first[k], first[k] + 1, ...``, so many as ``count[k]`` says, for each k in turn."""
    ends = np.cumsum(count)
    found: IntArray = np.arange(int(ends[-1]) if len(ends) else 0) + np.repeat(first - ends + count, count)
    return found
