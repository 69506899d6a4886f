"""Queues as tables for the kernels of reclaim."""

from collections.abc import Callable
from typing import Any

from kai_solver.fairness.kernels import Tree
from kai_solver.fairness.order import Table
from kai_solver.fairness.tree import QueueTree

Make = Callable[[Any], Any]
"""Makes an array of numbers or nested lists, or keeps the lists."""
NO_ROWS = ((0, 0, 0),)
"""For a cluster without queues: kernels are compiled for tables, and never look at this one."""


def tree_of(queues: QueueTree, share: Table, allocatable: Table, multiplier: float, make: Make) -> Tree:
    """``share``, ``allocatable`` (Q, 3): -1 where unlimited; ``multiplier``: of the reclaimer's saturation."""
    return Tree(
        make(queues.parent.tolist()),
        make([len(path) - 1 for path in queues.path]),
        make(queues.quotas or NO_ROWS),
        make(allocatable or NO_ROWS),
        make(share or NO_ROWS),
        float(max(1.0, multiplier)),
    )
