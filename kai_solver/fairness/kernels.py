"""The rules of `fairness.reclaim` as kernels, over tables by queue: arrays, or lists where nothing is compiled."""

from collections.abc import MutableSequence, Sequence
from math import inf
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.compiled import kernel

NONE: Final = -1
UNLIMITED: Final = -1
UNBOUND: Final = -1.0
"""No saturation that a queue must stay above."""

Row = Sequence[int] | NDArray[np.int64]
Table = Sequence[Row] | NDArray[np.int64]
"""(Q, 3) amounts by queue."""
Holdings = Sequence[MutableSequence[int]] | NDArray[np.int64]
"""The same, where they change."""


class Tree(NamedTuple):
    """Attributes
    ----------
    parent, depth
        (Q,) queue above, `NONE` at a root; how many are above it.
    quota, allocatable, share
        (Q, 3) -1 where unlimited.
    multiplier
        Of the reclaimer's saturation, at least 1.
    """

    parent: Row
    depth: Row
    quota: Table
    allocatable: Table
    share: Table
    multiplier: float


@kernel
def levelled(tree: Tree, taker: int, victim: int) -> tuple[int, int]:
    """`reclaim.levelled` of two leaf queues."""
    mine, theirs = taker, victim
    while tree.depth[mine] > tree.depth[theirs]:
        mine = tree.parent[mine]
    while tree.depth[theirs] > tree.depth[mine]:
        theirs = tree.parent[theirs]
    while mine != theirs and tree.parent[mine] != tree.parent[theirs]:
        mine, theirs = tree.parent[mine], tree.parent[theirs]
    return mine, theirs


@kernel
def add(tree: Tree, held: Holdings, leaf: int, charge: Row, sign: int) -> None:
    """``sign`` times ``charge`` for a leaf queue and all above it."""
    queue = leaf
    while queue != NONE:
        for at in range(3):
            held[queue][at] += sign * charge[at]
        queue = tree.parent[queue]


@kernel
def has_right(tree: Tree, held: Table, fixed: Table, leaf: int, asked: Row, is_fixed: bool) -> bool:
    """Rule 1; ``is_fixed``: what asks is not preemptible, of which queues hold ``fixed``."""
    for at in range(3):
        if tree.share[leaf][at] != UNLIMITED and held[leaf][at] + asked[at] > tree.share[leaf][at]:
            return False
    queue = leaf
    while is_fixed and queue != NONE:
        for at in range(3):
            if tree.quota[queue][at] != UNLIMITED and fixed[queue][at] + asked[at] > tree.quota[queue][at]:
                return False
        queue = tree.parent[queue]
    return True


@kernel
def is_guaranteed(tree: Tree, queue: int, holds: Row, asked: Row) -> bool:
    """Whether ``queue``, which ``holds`` so much, stays within its quota with what is ``asked``."""
    for at in range(3):
        if tree.quota[queue][at] != UNLIMITED and holds[at] + asked[at] > tree.quota[queue][at]:
            return False
    return True


@kernel
def may_look_at(tree: Tree, theirs: int, holds: Row, asked: Row, guaranteed: bool) -> bool:
    """Rule 2, of the levelled queue ``theirs``, which ``holds`` so much."""
    is_below = False
    for at in range(3):
        bound = tree.quota[theirs][at] if guaranteed else tree.allocatable[theirs][at]
        if bound != UNLIMITED and holds[at] > bound and (not guaranteed or asked[at] > 0):
            return True
        is_below = is_below or (bound != UNLIMITED and holds[at] < bound)
    return guaranteed and not is_below


@kernel
def kept(tree: Tree, theirs: int, at: int, guaranteed: bool) -> int:
    """What a victim queue keeps of a resource (rule 3); -1 where it gives no right."""
    bound, quota = tree.allocatable[theirs][at], tree.quota[theirs][at]
    if guaranteed and quota != UNLIMITED and (bound == UNLIMITED or quota < bound):
        return quota
    return bound


@kernel
def exceeds(tree: Tree, theirs: int, holds: Row, guaranteed: bool) -> bool:
    """Rule 3: whether the levelled queue ``theirs`` may lose one more part if it ``holds`` so much."""
    for at in range(3):
        least = kept(tree, theirs, at, guaranteed)
        if least != UNLIMITED and holds[at] > least:
            return True
    return False


@kernel
def is_fair(tree: Tree, mine: int, theirs: int, at: int, ours: int, left: int) -> bool:
    """Rule 4 of a resource, of which the levelled queues hold ``ours`` and ``left`` at last."""
    least = least_saturation(tree, mine, theirs, at, ours)
    return least == UNBOUND or left / tree.share[theirs][at] > least


@kernel
def least_saturation(tree: Tree, mine: int, theirs: int, at: int, ours: int) -> float:
    """What ``theirs`` must stay more saturated than if the reclaimer's levelled queue holds ``ours``, or `UNBOUND`."""
    fair = tree.share[mine][at]
    if fair == UNLIMITED or tree.share[theirs][at] <= 0:
        return UNBOUND
    ratio = inf if ours > 0 else 0.0
    if fair != 0:
        ratio = ours / fair
    return ratio * tree.multiplier if ratio > 1 else UNBOUND


@kernel
def is_larger(one: Row, other: Row) -> bool:
    """By GPUs, then memory, then CPU."""
    for at in range(2, -1, -1):
        if one[at] != other[at]:
            return bool(one[at] > other[at])
    return False
