"""Work below a queue that holds all it may: where there is room, a limit can still ask for victims.

Source: docs/kai-behaviour.md#limits. KAI tests limits with the victims gone.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.fairness import exceeded
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.units import UNLIMITED

BoolArray = NDArray[np.bool_]


def passed_limit(state: State, leaf: int, asked: Sequence[int]) -> tuple[int, list[int]] | None:
    """The first queue from ``leaf`` up that holds more than its limit, and of which of the resources ``asked``."""
    tree = state.problem.queues
    queue = exceeded(tree, tree.limits, state.allocated, leaf, asked)
    if queue is None:
        return None
    limits, held = tree.limits[queue], state.allocated[queue]
    return queue, [resource for resource in asked if held[resource] > limits[resource] != UNLIMITED]


def sets_below(pool: VictimPool, eligible: BoolArray, queue: int, resources: Sequence[int]) -> Iterator[list[int]]:
    """Units that leave together, of those ``eligible`` (U,) that hold some of ``resources`` below ``queue``.

    The cheapest unit first, each with those of its gang that have to leave with it.
    """
    tree = pool.state.problem.queues
    is_below = np.zeros(tree.size, dtype=np.bool_)
    is_below[list(tree.leaves[queue])] = True
    may_go = eligible & ~pool.is_pinned
    is_here = may_go & is_below[pool.queue_of] & ~pool.are_disturbed()
    units = np.flatnonzero(is_here & (pool.charges[:, list(resources)] > 0).any(axis=1))
    for unit in units[np.argsort(np.array(pool.cost)[units], kind="stable")].tolist():
        together = pool.closure((unit,))
        if may_go[together].all():
            yield together
