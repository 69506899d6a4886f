"""Order in which units leave: KAI's victim queue (docs/kai-behaviour.md#victim-order).

Queues level by level and gangs within the leaf in reverse of the order in which they are served, with each victim
picked before taken off its queue. Of equal victims the policy's own is the one that users expect.

A queue that loses holds less, so its key among its siblings never rises, and nor does that of a gang in its queue: the
order in which they lose one after the other is that of all their keys, sorted.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.eviction_units import UnitTable
from kai_solver.planstate.state import State

IntArray = NDArray[np.int64]


def victim_ranks(state: State, table: UnitTable) -> IntArray:
    """(U,) position of every unit in the order in which KAI would take them, 0 first."""
    rank = np.empty(len(table.gang), dtype=np.int64)
    if len(rank):
        rank[_merged(state, table, _by_leaf(state, table))] = np.arange(len(rank))
    return rank


def _by_leaf(state: State, table: UnitTable) -> IntArray:
    """(U,) units by leaf queue, in the order in which they leave it: that of `fairness.gang_order_key`, reversed."""
    columns = state.problem.gang_columns
    numbers, first, own = np.unique(table.gang, return_index=True, return_inverse=True)
    queue, priority, created_s = columns.queue[numbers], columns.priority[numbers], columns.created_s[numbers]
    by_name = _by_name(state, numbers, queue, priority, created_s)
    # The pods of a gang that run when its unit leaves: those of the unit and of the units after it.
    ends = np.append(table.starts[first[1:]], len(table.pods))
    elastic = np.sign(ends[own] - table.starts - columns.minimum[table.gang])
    # Where all that is equal, gangs come in their order, and units in theirs: the sort keeps it.
    return np.lexsort((by_name[own], -created_s[own], -elastic, priority[own], queue[own]))


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


def _merged(state: State, table: UnitTable, order: IntArray) -> IntArray:
    """(U,) units, first to leave first; ``order``: the same leaf by leaf.

    From the deepest queues up, the units of all siblings become one line, that of their parent.
    """
    tree = state.problem.queues
    depth = np.array([len(path) for path in tree.path], dtype=np.int64)
    parent, held = np.array(tree.parent, dtype=np.int64), np.array(state.allocated, dtype=np.int64)
    queue = state.problem.gang_columns.queue[table.gang[order]]
    busy = sorted({above for leaf in np.unique(queue).tolist() for above in tree.path[leaf]})
    place, height = _places(state, busy), _heights(state, busy)
    for level in range(int(depth[queue].max()), 0, -1):
        line = np.flatnonzero(depth[queue] == level)
        line = line[np.argsort(place[queue[line]], kind="stable")]
        own, lost = queue[line], table.charge[order[line]]
        before = np.cumsum(lost, axis=0) - lost
        is_first = np.diff(own, prepend=-1) != 0
        before -= before[is_first][np.cumsum(is_first) - 1]
        shares = state.order.shares_behind(own, held[own] - before)
        merged = line[np.lexsort((-shares, -height[own], parent[own]))]
        line = np.sort(line)
        order[line], queue[line] = order[merged], parent[queue[merged]]
    return order


def _places(state: State, busy: Sequence[int]) -> IntArray:
    """(Q,) of the ``busy`` queues, where each comes among equal siblings: the one served last comes first."""
    siblings: dict[int, list[int]] = {}
    for queue in busy:
        siblings.setdefault(int(state.problem.queues.parent[queue]), []).append(queue)
    found = np.zeros(state.problem.queues.size, dtype=np.int64)
    in_order = [queue for own in siblings.values() for queue in sorted(own, key=state.order.tie, reverse=True)]
    found[in_order] = np.arange(len(in_order))
    return found


def _heights(state: State, busy: Sequence[int]) -> IntArray:
    """(Q,) numbers that order the ``busy`` queues as their `QueueOrder.flags` do."""
    flags = [state.order.flags(queue, state.allocated[queue]) for queue in busy]
    number = {own: at for at, own in enumerate(sorted(set(flags)))}
    found = np.zeros(state.problem.queues.size, dtype=np.int64)
    found[list(busy)] = [number[own] for own in flags]
    return found
