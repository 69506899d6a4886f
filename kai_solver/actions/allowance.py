"""What one reclaimer may still take from each queue, asked while victims are chosen.

Source: docs/kai-behaviour.md#reclaim-parts.

`eligibility.reclaim_allowed` finally judges the whole set, pod by pod; this steers the choice towards what it allows.
"""

from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.fairness import QueueAllowance, levelled, levelled_above
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

Spent = tuple[Charge, Charge]
"""What was taken from a queue in all, and the largest unit of it, which may come last."""
_NOTHING: Spent = ((0, 0, 0), (0, 0, 0))


class Allowance:
    """For one question, by the numbers from before it. Queues are the levelled ones: siblings of the taker's."""

    def __init__(self, state: State, pool: VictimPool, taker: int, request: Charge, leaves: Iterable[int]) -> None:
        problem = state.problem
        self._pool = pool
        self._tree = problem.queues
        self._gangs = problem.gangs
        self._taker = taker
        self._leaves = frozenset(leaves)
        self._of_leaf: dict[int, int] = {}
        right = problem.reclaim_right(state.allocated, taker, request)
        self._allowances: dict[int, QueueAllowance] = {
            queue: right.allowance(leaf) for queue, leaf in levelled_above(self._tree, taker, self._leaves).items()
        }

    def spent(self, units: Iterable[int], before: Mapping[int, Spent] | None = None) -> dict[int, Spent]:
        """What is taken by levelled queue once ``units`` are gone for good, beside what was taken ``before``."""
        spent: dict[int, Spent] = dict(before or {})
        for unit in units:
            queue = self._queue_of(unit)
            if queue >= 0:
                spent[queue] = _with(spent.get(queue, _NOTHING), self._pool.units[unit].charge)
        return spent

    def allows(self, spent: Mapping[int, Spent], units: Iterable[int]) -> bool:
        """May ``units`` go too, in some order? All but the largest must leave their queue above what it may keep."""
        after = dict(spent)
        for unit in units:
            queue = self._queue_of(unit)
            after[queue] = _with(after.get(queue, _NOTHING), self._pool.units[unit].charge)
        return all(
            queue >= 0 and self._allowances[queue].permits(*after[queue])
            for queue in after
            if after[queue] != spent.get(queue)
        )

    def exhausted(self, spent: Mapping[int, Spent]) -> frozenset[int]:
        """Levelled queues from which nothing more may be taken, however small."""
        return frozenset(
            queue
            for queue, allowance in self._allowances.items()
            if not allowance.permits(*_with(spent.get(queue, _NOTHING), (1, 1, 1)))
        )

    def open_units(self, exhausted: frozenset[int]) -> BoolArray:
        """(U,) units of queues other than the ``exhausted`` ones."""
        is_open = np.ones(self._tree.size, dtype=np.bool_)
        for queue in exhausted:
            is_open[list(self._tree.leaves[queue] & self._leaves)] = False
        mask: BoolArray = is_open[self._pool.queue_of]
        return mask

    def _queue_of(self, unit: int) -> int:
        leaf = self._gangs[self._pool.units[unit].gang].queue
        found = self._of_leaf.get(leaf)
        if found is None:
            found = levelled(self._tree, self._taker, leaf)[1] if leaf in self._leaves else -1
            self._of_leaf[leaf] = found
        return found


def _with(spent: Spent, charge: Charge) -> Spent:
    total, last = spent
    added = (total[0] + charge[0], total[1] + charge[1], total[2] + charge[2])
    return added, last if last[::-1] >= charge[::-1] else charge
