"""Order in which units leave: KAI's victim queue (docs/kai-behaviour.md#victim-order).

Queues level by level and gangs within the leaf in reverse of the order in which they are served, with each victim
picked before taken off its queue. Of equal victims the policy's own is the one that users expect.

A queue that loses holds less, so its key among its siblings never rises, and nor does that of a gang in its queue: the
order in which they lose one after the other is that of all their keys, sorted.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.fairness import gang_order_key
from kai_solver.planstate.eviction_units import Unit
from kai_solver.planstate.state import State

IntArray = NDArray[np.int64]


def victim_ranks(state: State, units: Sequence[Unit], of_gang: Mapping[int, Sequence[int]]) -> list[int]:
    """Position of every unit in the order in which KAI would take them, 0 first; by unit index."""
    if not units:
        return []
    merger = _Merger(state, units, _lines(state, units, of_gang))
    rank = np.empty(len(units), dtype=np.int64)
    rank[merger.below(state.problem.queues.roots)] = np.arange(len(units))
    found: list[int] = rank.tolist()
    return found


def _lines(state: State, units: Sequence[Unit], of_gang: Mapping[int, Sequence[int]]) -> dict[int, IntArray]:
    """By leaf queue, its units in the order in which they leave it."""
    keys, names = [], []
    for gang, own in of_gang.items():
        shape = state.problem.gangs[gang]
        g, name = shape.gang, shape.gang.uid or shape.gang.key
        minimum = sum(leaf.min_member for leaf in shape.leaves)
        active = sum(len(units[unit].pods) for unit in own)
        for unit in own:
            priority, elastic, created_s, _ = gang_order_key(g.priority, active, minimum, g.created_s, name)
            keys.append((units[unit].step, gang, 0, -created_s, -elastic, -priority, shape.queue, unit))
            names.append(name)
            active -= len(units[unit].pods)
    place = {name: position for position, name in enumerate(sorted(set(names), reverse=True))}
    columns = np.array(keys, dtype=np.float64).T
    columns[2] = [place[name] for name in names]
    order = np.lexsort(columns[:-1])
    queues, chosen = columns[-2][order].astype(np.int64), columns[-1][order].astype(np.int64)
    leaves, starts = np.unique(queues, return_index=True)
    return dict(zip(leaves.tolist(), np.split(chosen, starts[1:]), strict=True))


class _Merger:
    def __init__(self, state: State, units: Sequence[Unit], lines: Mapping[int, IntArray]) -> None:
        self.state = state
        self.lines = lines
        self.charges: IntArray = np.array([unit.charge for unit in units], dtype=np.int64).reshape(-1, 3)
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
