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
    rank = np.empty(len(table.gang), dtype=np.int64)
    if len(rank):
        merger = _Merger(state, table, _lines(state, table))
        rank[merger.below(state.problem.queues.roots)] = np.arange(len(rank))
    return rank


def _lines(state: State, table: UnitTable) -> dict[int, IntArray]:
    """By leaf queue, its units in the order in which they leave it: that of `fairness.gang_order_key`, reversed."""
    columns = state.problem.gang_columns
    numbers, first, own = np.unique(table.gang, return_index=True, return_inverse=True)
    queue, priority, created_s = columns.queue[numbers], columns.priority[numbers], columns.created_s[numbers]
    by_name = _by_name(state, numbers, queue, priority, created_s)
    # The pods of a gang that run when its unit leaves: those of the unit and of the units after it.
    ends = np.append(table.starts[first[1:]], len(table.pods))
    elastic = np.sign(ends[own] - table.starts - columns.minimum[table.gang])
    # Where all that is equal, gangs come in their order, and units in theirs: the sort keeps it.
    order = np.lexsort((by_name[own], -created_s[own], -elastic, priority[own], queue[own]))
    leaves, starts = np.unique(queue[own][order], return_index=True)
    return dict(zip(leaves.tolist(), np.split(order, starts[1:]), strict=True))


def _by_name(
    state: State, gangs: IntArray, queue: IntArray, priority: IntArray, created_s: NDArray[np.float64]
) -> IntArray:
    """(K,) numbers of ``gangs`` by name, the last name first; 0 where a gang is told apart by the other arrays."""
    order = np.lexsort((created_s, priority, queue))
    like_next = np.ones(max(0, len(order) - 1), dtype=np.bool_)
    for row in (created_s[order], priority[order], queue[order]):
        like_next &= row[1:] == row[:-1]
    tied = order[np.append(like_next, False) | np.append(False, like_next)].tolist() if len(order) else []
    names = {at: state.problem.gangs[int(gangs[at])].gang for at in tied}
    found = np.zeros(len(gangs), dtype=np.int64)
    found[sorted(tied, key=lambda at: names[at].uid or names[at].key, reverse=True)] = np.arange(len(tied))
    return found


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
