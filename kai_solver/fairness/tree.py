"""The queues of a snapshot as a tree with integer indices (docs/kai-behaviour.md#queues)."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Policy, Queue
from kai_solver.domain.object_limits import MOST_QUEUE_LEVELS
from kai_solver.errors import InputError
from kai_solver.units import UNLIMITED

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
Triple = tuple[int, int, int]
"""(cpu milli, memory bytes, gpu milli)."""

DEFAULT_PARENT = "(default)"
"""Name of the one parent in a flattened tree; no object in Kubernetes can bear it (KAI: ``default``)."""


@dataclass(frozen=True, slots=True, eq=False)
class QueueTree:
    """Q queues; an index is a queue's identity in everything below.

    Attributes
    ----------
    parent
        (Q,) index of the parent, -1 at a root.
    path
        Per queue, indices from itself up to its root, both included.
    leaves
        Per queue, the leaf queues below it; of a leaf, itself.
    quota, limit
        (Q, 3), -1 unlimited. ``quotas`` and ``limits`` are the same as tuples of Python integers, for hot paths.
    weight, usage
        (Q, 3) over-quota weight, and past use as a share of capacity.
    dropped
        Queues that take no part, with a sentence that says why.
    """

    queues: tuple[Queue, ...]
    names: tuple[str, ...]
    index: dict[str, int]
    parent: NDArray[np.int32]
    children: tuple[tuple[int, ...], ...]
    roots: tuple[int, ...]
    path: tuple[tuple[int, ...], ...]
    is_leaf: tuple[bool, ...]
    leaves: tuple[frozenset[int], ...]
    quota: IntArray
    limit: IntArray
    quotas: tuple[Triple, ...]
    limits: tuple[Triple, ...]
    weight: FloatArray
    usage: FloatArray
    priority: tuple[int, ...]
    created: tuple[float, ...]
    dropped: dict[str, str]

    @classmethod
    def from_queues(cls, queues: Sequence[Queue], policy: Policy) -> "QueueTree":
        """Arrange ``queues``; a queue without a way up to a root is dropped with all below it.

        Where ``policy.full_hierarchy`` is False, roots are dropped and all others hang under one unlimited parent
        (KAI: ``cache/cluster_info/queue.go``).

        Raises
        ------
        InputError
            Two queues of one name.
        """
        _refuse_identical_names(queues)
        kept, dropped = _rooted(queues) if policy.full_hierarchy else _flattened(queues)
        index = {queue.name: i for i, queue in enumerate(kept)}
        parent = [index[queue.parent] if queue.parent else -1 for queue in kept]
        children: list[list[int]] = [[] for _ in kept]
        for child, above in enumerate(parent):
            if above >= 0:
                children[above].append(child)
        path = tuple(_path(i, parent) for i in range(len(kept)))
        leaves: list[set[int]] = [set() for _ in kept]
        for queue, below in enumerate(children):
            for above in path[queue] if not below else ():
                leaves[above].add(queue)
        return cls(
            queues=tuple(kept),
            names=tuple(index),
            index=index,
            parent=np.array(parent, dtype=np.int32),
            children=tuple(tuple(below) for below in children),
            roots=tuple(i for i, above in enumerate(parent) if above < 0),
            path=path,
            is_leaf=tuple(not below for below in children),
            leaves=tuple(map(frozenset, leaves)),
            quota=np.array([queue.quota for queue in kept], dtype=np.int64).reshape(-1, 3),
            limit=np.array([queue.limit for queue in kept], dtype=np.int64).reshape(-1, 3),
            quotas=tuple(queue.quota for queue in kept),
            limits=tuple(queue.limit for queue in kept),
            weight=np.array([queue.weight for queue in kept], dtype=np.float64).reshape(-1, 3),
            usage=np.array([queue.usage for queue in kept], dtype=np.float64).reshape(-1, 3),
            priority=tuple(queue.priority for queue in kept),
            created=tuple(queue.created_s for queue in kept),
            dropped=dropped,
        )

    @property
    def size(self) -> int:
        """Number of queues, Q."""
        return len(self.names)

    def title(self, queue: int) -> str:
        """The queue's name in messages."""
        return self.queues[queue].title


def roll_up(tree: QueueTree, leaf_amounts: IntArray) -> IntArray:
    """(Q, 3) amounts of every queue with all below it, from (Q, 3) amounts of the queues alone."""
    total = np.zeros_like(leaf_amounts)
    for queue, path in enumerate(tree.path):
        for ancestor in path:
            total[ancestor] += leaf_amounts[queue]
    return total


def _path(queue: int, parent: Sequence[int]) -> tuple[int, ...]:
    path = [queue]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    return tuple(path)


def _refuse_identical_names(queues: Iterable[Queue]) -> None:
    seen: set[str] = set()
    for queue in queues:
        if queue.name in seen:
            raise InputError(f'there are two queues named "{queue.name}"', field="queues", cure="Rename one of them")
        seen.add(queue.name)


def _rooted(queues: Sequence[Queue]) -> tuple[list[Queue], dict[str, str]]:
    """Queues that reach a root, in order, and why the others do not."""
    by_name = {queue.name: queue for queue in queues}
    faults = {queue.name: _fault(queue, by_name) for queue in queues}
    kept = [queue for queue in queues if not faults[queue.name]]
    return kept, {name: f'Queue "{name}" takes no part: {fault}' for name, fault in faults.items() if fault}


def _fault(queue: Queue, by_name: Mapping[str, Queue]) -> str:
    seen = {queue.name}
    while queue.parent:
        above = by_name.get(queue.parent)
        if above is None:
            return f'the parent queue "{queue.parent}" of "{queue.name}" does not exist'
        if above.name in seen:
            return f'the parents of queue "{above.name}" form a cycle'
        if len(seen) >= MOST_QUEUE_LEVELS:
            return f"it lies deeper than {MOST_QUEUE_LEVELS} queues"
        seen.add(above.name)
        queue = above
    return ""


def _flattened(queues: Sequence[Queue]) -> tuple[list[Queue], dict[str, str]]:
    """All queues that name a parent, under one unlimited queue; roots are dropped."""
    free = (UNLIMITED, UNLIMITED, UNLIMITED)
    top = Queue(DEFAULT_PARENT, quota=free, limit=free, weight=(1.0, 1.0, 1.0), display_name="default")
    below = [replace(queue, parent=DEFAULT_PARENT) for queue in queues if queue.parent]
    dropped = {
        queue.name: f'Queue "{queue.name}" takes no part: without full hierarchy fairness root queues are left out'
        for queue in queues
        if not queue.parent
    }
    return [top, *below], dropped
