"""Order in which units leave: KAI's victim queue (docs/kai-behaviour.md#victim-order).

Queues level by level and gangs within the leaf in reverse of the order in which they are served, with each victim
picked before taken off its queue. Of equal victims the policy's own is the one that users expect.

A queue that loses holds less, so its key among its siblings never rises, and nor does that of a gang in its queue: the
order in which they lose one after the other is that of all their keys, sorted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.eviction_units import UnitTable
from kai_solver.planstate.state import State

IntArray = NDArray[np.int64]


def victim_ranks(state: State, table: UnitTable) -> IntArray:
    """(U,) position of every unit in the order in which KAI would take them, 0 first."""
    rank = np.empty(len(table.units), dtype=np.int64)
    if table.units:
        merger = _Merger(state, table, _lines(state, table))
        rank[merger.below(state.problem.queues.roots)] = np.arange(len(rank))
    return rank


def _lines(state: State, table: UnitTable) -> dict[int, IntArray]:
    """By leaf queue, its units in the order in which they leave it: that of `fairness.gang_order_key`, reversed."""
    numbers, first, own = np.unique(table.gang, return_index=True, return_inverse=True)
    shapes = [state.problem.gangs[number] for number in numbers.tolist()]
    gangs = [shape.gang for shape in shapes]
    names = [gang.uid or gang.key for gang in gangs]
    by_name = np.empty(len(names), dtype=np.int64)
    by_name[sorted(range(len(names)), key=names.__getitem__, reverse=True)] = np.arange(len(names))
    minimum = np.array([sum(leaf.min_member for leaf in shape.leaves) for shape in shapes], dtype=np.int64)
    created_s = np.array([gang.created_s for gang in gangs], dtype=np.float64)
    priority = np.array([gang.priority for gang in gangs], dtype=np.int64)
    queue = np.array([shape.queue for shape in shapes], dtype=np.int64)[own]
    # The pods of a gang that run when its unit leaves: those of the unit and of the units after it.
    ends = np.append(table.starts[first[1:]], len(table.pods))
    elastic = np.sign(ends[own] - table.starts - minimum[own])
    step = np.arange(len(own)) - first[own]
    order = np.lexsort((step, numbers[own], by_name[own], -created_s[own], -elastic, priority[own], queue))
    leaves, starts = np.unique(queue[order], return_index=True)
    return dict(zip(leaves.tolist(), np.split(order, starts[1:]), strict=True))


class _Merger:
    def __init__(self, state: State, table: UnitTable, lines: Mapping[int, IntArray]) -> None:
        self.state = state
        self.lines = lines
        self.charges = table.charge
        self.busy = {above for leaf in lines for above in state.problem.queues.path[leaf]}

    def below(self, siblings: Sequence[int]) -> IntArray:
        """Units of ``siblings`` and below, first to leave first; of equal queues the one served last."""
        order, allocated = self.state.order, self.state.allocated
        queues = sorted(self.busy.intersection(siblings), key=order.tie, reverse=True)
        found = [self._of(queue) for queue in queues]
        if len(found) == 1:
            return found[0]
        keys = [
            order.keys_behind(queue, allocated[queue], self.charges[line])
            for queue, line in zip(queues, found, strict=True)
        ]
        level = {flags: number for number, flags in enumerate(sorted({flags for flags, _ in keys}))}
        levels = np.repeat([level[flags] for flags, _ in keys], [len(line) for line in found])
        every: IntArray = np.concatenate(found)
        return every[np.lexsort((-np.concatenate([shares for _, shares in keys]), -levels))]

    def _of(self, queue: int) -> IntArray:
        children = self.state.problem.queues.children[queue]
        return self.below(children) if children else self.lines[queue]
