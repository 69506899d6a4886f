"""What one more pod of a shape costs on each node, and who leaves for it where it is cheapest."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Rung
from kai_solver.greedy.fit import FitTable
from kai_solver.greedy.node_room import NodeRoom
from kai_solver.greedy.survey import Survey
from kai_solver.greedy.victims import IMPOSSIBLE, VictimPool

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

MOST_LOOKS = 48
"""Nodes that changed which are looked at one by one; for more of them a new survey costs less."""


class RoomTable:
    """Cheapest sets of units whose leaving lets one more pod of a shape fit each node.

    Valid for one set of ``eligible`` (U,) units; refreshed for the touched nodes only. All nodes have a bound from one
    `Survey`; only those that are the cheapest are looked at closely. Where they will only be moved, the pods of units
    count, then the victim order, not their work.

    On openb (1,213 nodes, 366 gangs to make room for; 2026-11-21) victims lost 595,000 GPU-seconds; when the nearest
    nodes were looked at in batches of 512, since a close look at all took twice as long, they lost 987,000.
    """

    def __init__(self, pool: VictimPool, fits: FitTable, shape: int, eligible: BoolArray, rung: Rung) -> None:
        self.pool = pool
        self.shape = shape
        self.eligible = eligible
        self._fits = fits
        prices = pool.move_cost if rung is Rung.CONSOLIDATION else pool.cost
        self._room = NodeRoom(pool, shape, prices)
        self._survey = Survey(pool, shape, np.array(prices))
        self.is_exact = self._room.is_exact
        self._mask = pool.state.problem.shapes.mask(shape)
        self._cost: FloatArray = np.zeros(0)
        self._is_close: BoolArray = np.zeros(0, dtype=np.bool_)
        self._victims: dict[int, list[int]] = {}
        self._seen = 0

    def update(self) -> FloatArray:
        """(N,) least cost per node for one more pod where it does not fit as it is; infinite where it cannot.

        A bound where the node was not looked at closely. Do not write to it.
        """
        touched = self.pool.state.touched
        changed = set(touched[self._seen :])
        if not len(self._cost) or len(changed) > MOST_LOOKS:
            self._cost = self._survey.bounds(self.eligible)
            self._is_close = np.zeros(len(self._cost), dtype=np.bool_)
        else:
            for node in changed:
                if self._mask[node]:
                    self._look_at(node)
        self._seen = len(touched)
        return self._cost

    def cheapest(self, cost: FloatArray) -> int | None:
        """The node of least ``cost`` (N,), a copy of `update` with some nodes taken out; None where none has room.

        ``cost`` is corrected at the nodes looked at.
        """
        while True:
            node = int(cost.argmin())
            if cost[node] == IMPOSSIBLE:
                return None
            if self._is_close[node] and all(map(self.pool.may_leave, self._victims[node])):
                return node
            self._look_at(node)
            cost[node] = self._cost[node]

    def victims(self, node: int) -> list[int]:
        """Who leaves ``node``, with all that must leave before them; it was `cheapest`."""
        return self.pool.closure(self._victims[node])

    def _look_at(self, node: int) -> None:
        found = self._room.find(node, self.eligible)
        self._victims[node] = found or []
        self._cost[node] = IMPOSSIBLE if found is None else self._room.price(self.pool.closure(found))
        self._is_close[node] = True
