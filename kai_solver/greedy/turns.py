"""Whose turn it is: queues level by level, then gangs within the leaf, by KAI's comparators (reference 3.2)."""

import heapq
from collections.abc import Iterable
from functools import cmp_to_key, partial

from kai_solver.fairness import compare_queues, gang_order_key, levelled, queue_key
from kai_solver.fairness.order import QueueKey
from kai_solver.greedy.chunks import Chunk, Chunker
from kai_solver.greedy.state import State
from kai_solver.greedy.units import charge_of
from kai_solver.reduction import GangShape
from kai_solver.reduction.charges import Charge

GangKey = tuple[int, int, float, str]


def gang_key(chunker: Chunker) -> GangKey:
    """Order of a gang inside its queue, in its present state."""
    gang = chunker.shape.gang
    active = sum(len(pods) for pods in chunker.state.active)
    if not chunker.is_satisfied(chunker.shape.root):
        active = -1
    minimum = sum(leaf.min_member for leaf in chunker.shape.leaves)
    return gang_order_key(gang.priority, active, minimum if active >= 0 else 0, gang.created_s, gang.uid or gang.key)


class Turns:
    """Hands out (gang, chunk) one by one; a queue's place among its siblings moves as it is served.

    Only queues whose numbers changed are compared anew, so that a turn costs microseconds.
    """

    def __init__(self, state: State, chunkers: list[Chunker], gangs: Iterable[int]) -> None:
        self.state = state
        self.chunkers = chunkers
        self.tree = state.problem.queues
        self._waiting: dict[int, list[tuple[GangKey, int]]] = {}
        self._chunks: dict[int, Chunk] = {}
        self._best: dict[int, int | None] = {}
        self._keys: dict[int, QueueKey] = {}
        self._seen = len(state.journal)
        for gang in gangs:
            self._enter(gang)
        for heap in self._waiting.values():
            heapq.heapify(heap)

    def pop(self) -> tuple[int, Chunk] | None:
        """The next gang and what it asks for; None when nobody waits."""
        gang = self._best_among(self.tree.roots)
        if gang is None:
            return None
        queue = self.state.problem.gangs[gang].queue
        heapq.heappop(self._waiting[queue])
        self._forget(queue)
        return gang, self._chunks.pop(gang)

    @property
    def is_over(self) -> bool:
        """True where nobody waits."""
        return not any(self._waiting.values())

    def again(self, gang: int) -> None:
        """``gang`` was served: its queue's numbers changed, and it may want more."""
        self._enter(gang, push=True)
        self._forget(self.state.problem.gangs[gang].queue)

    def refresh(self) -> None:
        """Many queues' numbers changed (victims): compare all anew."""
        self._best.clear()
        self._keys.clear()

    def _enter(self, gang: int, *, push: bool = False) -> None:
        chunk = self.chunkers[gang].next()
        if chunk is None:
            return
        self._chunks[gang] = chunk
        heap = self._waiting.setdefault(self.state.problem.gangs[gang].queue, [])
        item = (gang_key(self.chunkers[gang]), gang)
        if push:
            heapq.heappush(heap, item)
        else:
            heap.append(item)

    def _forget(self, queue: int) -> None:
        for ancestor in self.tree.path[queue]:
            self._best.pop(ancestor, None)
            self._keys.pop(ancestor, None)

    def _best_below(self, queue: int) -> int | None:
        """Best gang of the subtree of ``queue``."""
        if queue not in self._best:
            if self.tree.children[queue]:
                self._best[queue] = self._best_among(self.tree.children[queue])
            else:
                heap = self._waiting.get(queue)
                self._best[queue] = heap[0][1] if heap else None
        return self._best[queue]

    def _best_among(self, siblings: tuple[int, ...]) -> int | None:
        waiting = [queue for queue in siblings if self._best_below(queue) is not None]
        if not waiting:
            return None
        keys = {queue: self._key(queue) for queue in waiting}
        least = min(keys.values())
        first = [queue for queue in waiting if keys[queue] == least]
        if len(first) > 1:
            first.sort(key=cmp_to_key(partial(self._compare_equal, least)))
        return self._best_below(first[0])

    def _compare_equal(self, key: QueueKey, one: int, other: int) -> int:
        """Order of two queues whose keys are the same."""
        return compare_queues(self.tree, self.state.problem.allocatable, one, key, other, key)

    def _key(self, queue: int) -> QueueKey:
        found = self._keys.get(queue)
        if found is None:
            gang = self._best_below(queue)
            chunk = self._chunks[gang] if gang is not None else None
            job = charge_of(self.state.problem, chunk.pods) if chunk is not None else (0, 0, 0)
            found = self._keys[queue] = key_of(self.state, queue, self.state.allocated[queue], job)
        return found


class SizeTurns:
    """Hands out gangs by priority, then by GPUs asked for, largest first: admission ``max-gpus``.

    Queues bound what may be taken (limits, quotas) but not whose turn it is.
    """

    def __init__(self, state: State, chunkers: list[Chunker], gangs: Iterable[int]) -> None:
        self.state = state
        self.chunkers = chunkers
        self._heap: list[tuple[tuple[int, int, int, float, str], int, Chunk]] = []
        for gang in gangs:
            self.again(gang)

    def pop(self) -> tuple[int, Chunk] | None:
        """The next gang and what it asks for; None when nobody waits."""
        if not self._heap:
            return None
        _, gang, chunk = heapq.heappop(self._heap)
        return gang, chunk

    @property
    def is_over(self) -> bool:
        """True where nobody waits."""
        return not self._heap

    def again(self, gang: int) -> None:
        """``gang`` may want more."""
        chunk = self.chunkers[gang].next()
        if chunk is not None:
            shape = self.chunkers[gang].shape.gang
            cpu, _, gpu = charge_of(self.state.problem, chunk.pods)
            heapq.heappush(self._heap, ((-shape.priority, -gpu, -cpu, shape.created_s, shape.key), gang, chunk))

    def refresh(self) -> None:
        """Nothing here depends on what queues hold."""


def key_of(state: State, queue: int, allocated: list[int], job: Charge) -> QueueKey:
    """The queue's key among its siblings if it asked for ``job`` with ``allocated``."""
    problem = state.problem
    return queue_key(problem.queues, problem.share, problem.allocatable, problem.total, queue, allocated, job)


def goes_before(state: State, first: GangShape, ask: Charge, second: GangShape, other_ask: Charge) -> bool:
    """Would ``first``, waiting for ``ask`` that it now holds, be served before ``second``, who lost its place?

    Both are compared as the next cycle will see them: without ``ask``, and without what the victim lost.
    """
    if first.queue == second.queue:
        return (-first.gang.priority, first.gang.created_s) <= (-second.gang.priority, second.gang.created_s)
    one, other = levelled(state.problem.queues, first.queue, second.queue)
    held = [a - b for a, b in zip(state.allocated[one], ask, strict=True)]
    key = key_of(state, one, held, ask)
    other_key = key_of(state, other, state.allocated[other], other_ask)
    return compare_queues(state.problem.queues, state.problem.allocatable, one, key, other, other_key) <= 0
