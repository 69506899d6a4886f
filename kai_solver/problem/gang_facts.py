"""What gangs are in numbers, written down once for each gang object and kept from one cycle to the next."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import NO_PLACEMENT
from kai_solver.fairness import QueueTree
from kai_solver.problem.gangs import GangShape

IntArray = NDArray[np.int64]

SCATTERED: Final = -1
"""Where the running pods of a gang begin, if they do not come one after the other."""

FACTS: Final = np.dtype(
    [
        ("is_known", np.bool_),
        ("is_placed", np.bool_),
        ("is_flat", np.bool_),
        ("is_lone", np.bool_),
        ("is_bound", np.bool_),
        ("is_stale", np.bool_),
        ("waits", np.bool_),
        ("preemptible", np.bool_),
        ("queue", np.int64),
        ("priority", np.int64),
        ("minimum", np.int64),
        ("pending", np.int64),
        ("active", np.int64),
        ("first_active", np.int64),
        ("created_s", np.float64),
        ("started_s", np.float64),
    ]
)
"""Of one gang.

``is_known``: its shape is that of this cycle, but for its numbers. ``is_placed``: it has a placement of its own or of
its queues. ``is_flat``: as `GangShape.is_flat`. ``is_lone``: it has one leaf. ``is_bound``: it has several leaves, or
asks for domains of a topology, or has a family. ``is_stale``: since some time. ``minimum``: pods that its leaves need
in all. ``pending``, ``active``: how many of its pods may be placed, and run. ``first_active``: offset of the first pod
that runs, if they come one after the other (`SCATTERED`: they do not). ``started_s``: NaN where it never did.
"""

_FEW = 1024


class GangFacts:
    """Of the gangs of one cluster, each in a slot of its own. The slot of a gang that left is given to another."""

    def __init__(self) -> None:
        self._table: NDArray[Any] = np.zeros(0, dtype=FACTS)
        self._free: list[int] = []
        self._tree: QueueTree | None = None

    def enter(self) -> int:
        """A slot for a gang that came."""
        if not self._free:
            size = len(self._table)
            self._table = np.concatenate([self._table, np.zeros(max(_FEW, size), dtype=FACTS)])
            self._free = list(range(len(self._table) - 1, size - 1, -1))
        return self._free.pop()

    def leave(self, slot: int) -> None:
        """The gang of ``slot`` left."""
        self._table["is_known"][slot] = False
        self._free.append(slot)

    def serve(self, tree: QueueTree) -> None:
        """From now on gangs stand in the queues of ``tree``: with other queues no shape is that of this cycle."""
        if self._tree is not tree:
            self._table["is_known"] = False
            self._tree = tree

    def write(self, slots: Sequence[int], shapes: Sequence[GangShape]) -> None:
        """The gangs of ``slots`` have these ``shapes``."""
        if slots:
            self._table[np.array(slots)] = np.array([_facts(shape) for shape in shapes], dtype=FACTS)

    def of(self, slots: IntArray) -> NDArray[Any]:
        """(K,) `FACTS` of gangs by their slots, as they are now."""
        found: NDArray[Any] = self._table[slots]
        return found


def _facts(shape: GangShape) -> tuple[bool | int | float, ...]:
    gang, leaves, root = shape.gang, shape.leaves, shape.root
    is_lone, leaf = len(leaves) == 1, leaves[0] if leaves else None
    if is_lone and leaf is not None:  # As in most gangs.
        active, pending, minimum = leaf.active, len(leaf.pending), leaf.min_member
        waits, asks = bool(pending or leaf.gated or leaf.blocked), leaf.topology is not None
    else:
        active, pending, minimum = shape.active, len(shape.pending), sum([one.min_member for one in leaves])
        waits, asks = shape.waits, True
    first = active[0] - shape.first if active else 0
    if active and (not is_lone or active[-1] - active[0] != len(active) - 1):
        first = SCATTERED
    return (
        shape.family < 0,
        shape.placement is not NO_PLACEMENT,
        shape.is_flat,
        is_lone,
        asks or root.topology is not None or shape.family >= 0,
        gang.stale_since_s is not None,
        waits,
        gang.preemptible,
        shape.queue,
        gang.priority,
        minimum,
        pending,
        len(active),
        first,
        gang.created_s,
        np.nan if gang.last_start_s is None else gang.last_start_s,
    )
