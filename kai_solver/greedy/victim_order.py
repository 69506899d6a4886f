"""Whose turn it is to leave: KAI's victim queue (reference 3.2, 3.8).

Queues level by level and gangs within the leaf in reverse of the order in which they are served, with each victim
picked before taken off its queue. Of equal victims the policy's own is the one that users expect.
"""

import heapq
from bisect import insort
from collections.abc import Mapping, Sequence

from kai_solver.fairness import gang_order_key, queue_key
from kai_solver.fairness.order import QueueKey, Tie
from kai_solver.greedy.state import State
from kai_solver.greedy.units import Unit
from kai_solver.units import QUEUE_RESOURCES

_TOP = -1
"""Parent of the roots."""
_Entry = tuple[QueueKey, Tie, int]
_Reverse = tuple[int, int, float, "_ReverseText"]


def victim_ranks(state: State, units: Sequence[Unit], of_gang: Mapping[int, Sequence[int]]) -> list[int]:
    """Position of every unit in the order in which KAI would take them, 0 first; by unit index.

    Cost: about 12 µs a unit with two queues (4,000 units), 40 µs with 200 in three levels (2026-11-21).
    """
    order = _VictimOrder(state, units, of_gang)
    rank = [0] * len(units)
    for position in range(len(units)):
        rank[order.pop()] = position
    return rank


class _VictimOrder:
    """Hands out units; a queue's place among its siblings moves as it loses."""

    def __init__(self, state: State, units: Sequence[Unit], of_gang: Mapping[int, Sequence[int]]) -> None:
        self._state = state
        self._tree = state.problem.queues
        self._units = units
        self._left = {gang: list(reversed(own)) for gang, own in of_gang.items() if own}
        self._active = {gang: sum(len(units[u].pods) for u in own) for gang, own in of_gang.items()}
        self._lost = [[0] * len(QUEUE_RESOURCES) for _ in self._tree.names]
        self._heaps: dict[int, list[tuple[_Reverse, int]]] = {}
        self._waiting = [0] * len(self._tree.names)
        for gang, own in self._left.items():
            queue = state.problem.gangs[gang].queue
            self._heaps.setdefault(queue, []).append((self._gang_key(gang), gang))
            for ancestor in self._tree.path[queue]:
                self._waiting[ancestor] += len(own)
        for heap in self._heaps.values():
            heapq.heapify(heap)
        self._levels: dict[int, list[_Entry]] = {}
        for queue, waiting in enumerate(self._waiting):
            if waiting:
                parent = self._tree.path[queue][1] if len(self._tree.path[queue]) > 1 else _TOP
                self._levels.setdefault(parent, []).append(self._entry(queue))
        for level in self._levels.values():
            level.sort()

    def pop(self) -> int:
        """The next unit."""
        queue = _TOP
        while level := self._levels.get(queue):
            queue = level[-1][-1]
        unit = self._pop_from(queue)
        for ancestor, parent in zip(self._tree.path[queue], (*self._tree.path[queue][1:], _TOP), strict=True):
            level = self._levels[parent]
            level.pop()
            if self._waiting[ancestor]:
                insort(level, self._entry(ancestor))
        return unit

    def _entry(self, queue: int) -> _Entry:
        """The queue among its siblings; the greatest loses next."""
        problem = self._state.problem
        key = queue_key(
            problem.queues,
            problem.share,
            problem.allocatable,
            problem.total,
            queue,
            self._state.allocated[queue],
            (0, 0, 0),
            self._lost[queue],
        )
        return key, self._state.order.tie(queue), queue

    def _pop_from(self, queue: int) -> int:
        heap = self._heaps[queue]
        gang = heap[0][1]
        unit = self._left[gang].pop()
        self._active[gang] -= len(self._units[unit].pods)
        if self._left[gang]:
            heapq.heapreplace(heap, (self._gang_key(gang), gang))
        else:
            heapq.heappop(heap)
        for ancestor in self._tree.path[queue]:
            self._waiting[ancestor] -= 1
            self._lost[ancestor] = [a + c for a, c in zip(self._lost[ancestor], self._units[unit].charge, strict=True)]
        return unit

    def _gang_key(self, gang: int) -> _Reverse:
        shape = self._state.problem.gangs[gang]
        minimum = sum(leaf.min_member for leaf in shape.leaves)
        g = shape.gang
        priority, elastic, created_s, uid = gang_order_key(
            g.priority, self._active[gang], minimum, g.created_s, g.uid or g.key
        )
        return (-priority, -elastic, -created_s, _ReverseText(uid))


class _ReverseText(str):
    """Text that sorts in reverse."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)
