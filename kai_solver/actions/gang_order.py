"""The order of gangs: queues level by level, then gangs within the leaf, by KAI's comparators.

Source: docs/kai-behaviour.md#order.
"""

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import chain
from operator import ge
from typing import NamedTuple

from kai_solver.fairness import compare_queues, first_over, gang_order_key, levelled
from kai_solver.fairness.order import QueueKey, Tie
from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits, GangUnits
from kai_solver.planstate.eviction_units import charge_of
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape
from kai_solver.problem.charges import Charge

GangKey = tuple[int, int, float, str]

_Entry = tuple[QueueKey, Tie, int]
"""A queue among its siblings; last its index."""

_TOP = -1
"""Key of the level of the roots."""


def _nothing(_gang: int) -> None:
    """No observer."""


class NextGang(NamedTuple):
    """A gang, what it asks for, and what that costs its queue."""

    gang: int
    allocation_unit: AllocationUnit
    charge: Charge


def gang_key(units_of_gang: AllocationUnits) -> GangKey:
    """Order of a gang inside its queue, in its present state.

    As in KAI, it is below its minimum where any podset is, also one of an optional subgroup.
    """
    gang, lone = units_of_gang.shape.gang, units_of_gang.lone
    active, minimum = -1, 0
    if lone is not None:
        if len(units_of_gang.state.active[0]) >= lone.min_member:
            active, minimum = len(units_of_gang.state.active[0]), lone.min_member
    else:
        held = list(map(len, units_of_gang.state.active))
        needed = [leaf.min_member for leaf in units_of_gang.shape.leaves]
        if all(map(ge, held, needed)):
            active, minimum = sum(held), sum(needed)
    return gang_order_key(gang.priority, active, minimum, gang.created_s, gang.uid or gang.key)


class GangOrder:
    """Hands out (gang, allocation unit) one by one; a queue's place among its siblings moves as it is served.

    The gangs of a leaf queue stand in a sorted line. Every level is a heap of queues. The queue that is served is on
    top of all heaps from the root to its leaf, so that only those tops are compared again. In a slow hour (2026-11-21,
    4,000 gangs) a step costs 13 µs with two queues, 21 µs with 200 in three levels, half of what it costs to look at
    all siblings. ``begins``: called with each gang that has its turn.
    """

    def __init__(
        self,
        state: State,
        gang_units: GangUnits,
        gangs: Iterable[int],
        begins: Callable[[int], None] = _nothing,
    ) -> None:
        self._begins = begins
        self.state = state
        self.gang_units = gang_units
        self.tree = state.problem.queues
        self._waiting: dict[int, deque[tuple[GangKey, int]]] = {}
        self._levels: dict[int, list[_Entry]] = {}
        self._heads: dict[int, NextGang] = {}
        self._served: int | None = None
        self._held: dict[int, list[int]] = {}
        self._paid = 0
        waiting: dict[int, list[tuple[GangKey, int]]] = {}
        for gang in gangs:
            units_of_gang = gang_units[gang]
            if units_of_gang.waits():
                queue = units_of_gang.shape.queue
                if queue not in waiting:
                    waiting[queue] = []
                waiting[queue].append((gang_key(units_of_gang), gang))
        for queue, line in waiting.items():
            self._waiting[queue] = deque(sorted(line))

    def pop(self) -> NextGang | None:
        """The next gang and what it asks for; None if none waits."""
        leaf = self._next_leaf()
        if leaf == _TOP:
            return None
        next_gang = self._heads.pop(leaf)
        self._waiting[leaf].popleft()
        self._served = leaf
        self._begins(next_gang.gang)
        return next_gang

    def peek(self) -> NextGang | None:
        """What ``pop`` would return."""
        return self._heads.get(self._next_leaf())

    def _next_leaf(self) -> int:
        self._catch_up()
        queue = _TOP
        while level := self._levels.get(queue):
            queue = level[0][-1]
        return queue

    @property
    def is_over(self) -> bool:
        """True if no gang waits."""
        self._catch_up()
        return not self._levels[_TOP]

    def rest(self) -> Iterator[int]:
        """All gangs without a turn, queue by queue in order."""
        return (gang for _, gang in chain.from_iterable(self._waiting.values()))

    def lines(self) -> Iterator[tuple[int, Iterator[NextGang]]]:
        """Every leaf queue with its gangs in order, and what each asks for; nothing may be served meanwhile."""
        for leaf, line in self._waiting.items():
            yield leaf, filter(None, map(self._next_gang, [gang for _, gang in line]))

    def were_served(self, gangs: Collection[int]) -> None:
        """``gangs`` had their turns outside of this order, and want no more."""
        for leaf, line in self._waiting.items():
            self._waiting[leaf] = deque([item for item in line if item[1] not in gangs])
        self._levels.clear()

    def again(self, gang: int) -> None:
        """``gang`` was served: its queue's numbers changed, and it may want more."""
        queue = self.state.problem.gangs[gang].queue
        if self.gang_units[gang].waits():
            insort(self._waiting.setdefault(queue, deque()), (gang_key(self.gang_units[gang]), gang))
        if queue != self._served:
            self._levels.clear()

    def refresh(self) -> None:
        """Other queues' numbers may have changed (victims): those that did are compared again, the innermost first.

        On 5,000 nodes (2026-11-21, 2,000 gangs of 200 queues) that is a tenth of what it costs to compare all. Only
        queues of which some work came or went since are looked at: of the greedy's CPU on 20,000 loaded nodes that
        spares 7% (2026-11-23).
        """
        if _TOP not in self._levels:
            return
        allocated, path = self.state.allocated, self.tree.path
        paid = {queue for leaf in set(self.state.paid[self._paid :]) for queue in path[leaf]}
        self._paid = len(self.state.paid)
        others = [queue for queue in paid if queue in self._held and allocated[queue] != self._held[queue]]
        served = [self._served] if self._served is not None else []
        changed = {above for queue in (*others, *served) for above in path[queue]}
        for queue in sorted(changed, key=lambda q: -len(path[q])):
            level = self._levels[path[queue][1] if len(path[queue]) > 1 else _TOP]
            if len(level) == 1 and level[0][-1] == queue and self._head_below(queue) is not None:
                continue
            entry = self._entry(queue)
            level[:] = [other for other in level if other[-1] != queue] + ([entry] if entry is not None else [])
            heapq.heapify(level)
        self._served = None

    def lost(self, leaf: int) -> None:
        """The queue ``leaf`` lost to the one that was served: that matters only below its own part of the tree."""
        served = self.tree.path[self._served] if self._served is not None else ()
        if any(queue in self._held and queue not in served for queue in self.tree.path[leaf]):
            self.refresh()

    def _catch_up(self) -> None:
        if _TOP not in self._levels:
            self._heads.clear()
            self._held.clear()
            self._paid = len(self.state.paid)
            busy = {above for queue, line in self._waiting.items() if line for above in self.tree.path[queue]}
            self._arrange(_TOP, self.tree.roots, busy)
        elif self._served is not None:
            self._renew(self._served)
        self._served = None

    def _arrange(self, parent: int, siblings: Sequence[int], busy: set[int]) -> None:
        """Order ``siblings``, and all below them, by what they hold now."""
        level: list[_Entry] = []
        for queue in busy.intersection(siblings):
            if self.tree.children[queue]:
                self._arrange(queue, self.tree.children[queue], busy)
            entry = self._entry(queue)
            if entry is not None:
                level.append(entry)
        heapq.heapify(level)
        self._levels[parent] = level

    def _renew(self, leaf: int) -> None:
        """Only ``leaf`` and the queues above it changed; each is the first of its siblings."""
        path = self.tree.path[leaf]
        for queue, parent in zip(path, (*path[1:], _TOP), strict=True):
            level = self._levels[parent]
            if len(level) == 1 and self._head_below(queue) is not None:
                continue  # Alone: there is nothing to compare with.
            entry = self._entry(queue)
            if entry is None:
                heapq.heappop(level)
            else:
                heapq.heapreplace(level, entry)

    def _entry(self, queue: int) -> _Entry | None:
        """The queue among its siblings, by what its best gang asks for; None if no gang below it waits."""
        head = self._head_below(queue)
        if head is None:
            return None
        order = self.state.order
        self._held[queue] = list(self.state.allocated[queue])
        return (order.key(queue, self.state.allocated[queue], head.charge), order.tie(queue), queue)

    def _head_below(self, queue: int) -> NextGang | None:
        if not self.tree.children[queue]:
            return self._head(queue)
        while level := self._levels.get(queue):
            queue = level[0][-1]
        return self._heads.get(queue)

    def _head(self, leaf: int) -> NextGang | None:
        """The next gang of a leaf queue; those that turn out to have nothing to ask for leave the line."""
        line = self._waiting.get(leaf)
        while line:
            found = self._next_gang(line[0][1])
            if found is not None:
                self._heads[leaf] = found
                return found
            line.popleft()
        self._heads.pop(leaf, None)
        return None

    def _next_gang(self, gang: int) -> NextGang | None:
        """What a gang asks for now; None where that is nothing."""
        allocation_unit = self.gang_units[gang].next()
        return (
            NextGang(gang, allocation_unit, charge_of(self.state.problem, allocation_unit.pods))
            if allocation_unit is not None
            else None
        )


class SizeOrder:
    """Hands out gangs by priority, then by GPUs asked for, largest first: admission ``max-gpus``.

    Queues bound what may be taken (limits, quotas) but not which gang is next.
    """

    def __init__(
        self,
        state: State,
        gang_units: GangUnits,
        gangs: Iterable[int],
        begins: Callable[[int], None] = _nothing,
    ) -> None:
        self._begins = begins
        self.state = state
        self.gang_units = gang_units
        self._heap: list[tuple[tuple[int, int, int, float, str], int, NextGang]] = []
        for gang in gangs:
            self.again(gang)

    def pop(self) -> NextGang | None:
        """The next gang and what it asks for; None if none waits."""
        if not self._heap:
            return None
        next_gang = heapq.heappop(self._heap)[-1]
        self._begins(next_gang.gang)
        return next_gang

    def peek(self) -> NextGang | None:
        """What ``pop`` would return."""
        return self._heap[0][-1] if self._heap else None

    @property
    def is_over(self) -> bool:
        """True if no gang waits."""
        return not self._heap

    def again(self, gang: int) -> None:
        """``gang`` may want more."""
        allocation_unit = self.gang_units[gang].next()
        if allocation_unit is not None:
            shape = self.gang_units[gang].shape.gang
            charge = charge_of(self.state.problem, allocation_unit.pods)
            key = (-shape.priority, -charge[2], -charge[0], shape.created_s, shape.key)
            heapq.heappush(self._heap, (key, gang, NextGang(gang, allocation_unit, charge)))

    def refresh(self) -> None:
        """Nothing here depends on what queues hold."""

    def lost(self, leaf: int) -> None:
        """As ``refresh``."""

    def rest(self) -> Iterator[int]:
        """All gangs without a turn, in order."""
        return (gang for _, gang, _ in sorted(self._heap))


def key_of(state: State, queue: int, allocated: list[int], job: Charge) -> QueueKey:
    """The queue's key among its siblings if it asked for ``job`` with ``allocated``."""
    return state.order.key(queue, allocated, job)


def goes_before(state: State, first: GangShape, ask: Charge, second: GangShape, other_ask: Charge) -> bool:
    """Would ``first``, waiting for ``ask`` that it now holds, be served before ``second``, which lost its place?

    Both are compared as the next cycle will see them: without ``ask``, and without what the victim lost. So is a gang
    which a limit of its queues then keeps from what it lost.
    """
    if _is_kept_out(state, first, ask, second, other_ask):
        return True
    if first.queue == second.queue:
        return (-first.gang.priority, first.gang.created_s) <= (-second.gang.priority, second.gang.created_s)
    one, other = levelled(state.problem.queues, first.queue, second.queue)
    held = [a - b for a, b in zip(state.allocated[one], ask, strict=True)]
    key = key_of(state, one, held, ask)
    other_key = key_of(state, other, state.allocated[other], other_ask)
    return compare_queues(state.problem.queues, state.problem.allocatable, one, key, other, other_key) <= 0


def _is_kept_out(state: State, first: GangShape, ask: Charge, second: GangShape, other_ask: Charge) -> bool:
    """Whether ``other_ask`` exceeds a limit of the queues of ``second`` while ``first`` does not hold its ``ask``."""
    tree, paying = state.problem.queues, state.problem.queues.path[first.queue]
    asked = [resource for resource, amount in enumerate(other_ask) if amount > 0]
    for queue in tree.path[second.queue]:
        held: Sequence[int] = state.allocated[queue]
        if queue in paying:
            held = [amount - part for amount, part in zip(held, ask, strict=True)]
        if first_over(tree.limits[queue], held, other_ask, asked) >= 0:
            return True
    return False
