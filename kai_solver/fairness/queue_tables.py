"""Queues as tables for the kernels of reclaim."""

from collections.abc import Callable
from typing import Any

from kai_solver.fairness.kernels import Tree
from kai_solver.fairness.order import Table
from kai_solver.fairness.tree import QueueTree

Make = Callable[[Any], Any]
"""Makes an array of numbers or nested lists, or keeps the lists."""


def tree_of(queues: QueueTree, share: Table, allocatable: Table, multiplier: float, make: Make) -> Tree:
    """``share``, ``allocatable`` (Q, 3): -1 where unlimited; ``multiplier``: of the reclaimer's saturation."""
    return Tree(
        make(queues.parent.tolist()),
        make([len(path) - 1 for path in queues.path]),
        make(queues.quotas),
        make(allocatable),
        make(share),
        max(1.0, multiplier),
    )
