"""What one more pod of a shape costs on each node, and what leaves for it where it is cheapest."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.room.node import NodeRoom
from kai_solver.actions.room.survey import Survey
from kai_solver.domain import Action
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.victims import IMPOSSIBLE, VictimPool

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

FEW_LOOKS = 6
"""Nodes up to which a close look at each costs less than a survey of them all: 30 µs each, against 0.2 ms."""


class RoomTable:
    """Cheapest sets of units whose leaving lets one more pod of a shape fit each node.

    Serves one set of ``eligible`` (U,) units at a time. What a node says is kept until something there is touched, or
    units of it become eligible or are so no more, and is computed only where it is asked for. All nodes have a
    bound from a `Survey`; only those that are the cheapest are looked at closely. Where they will only be moved, the
    pods of units count, then the victim order, not their work.

    On openb (1,213 nodes, 366 gangs to make room for; 2026-11-21) victims lost 595,000 GPU-seconds; when the nearest
    nodes were looked at in batches of 512, since a close look at all took twice as long, they lost 987,000.
    """

    def __init__(self, pool: VictimPool, fits: FitTable, shape: int, eligible: BoolArray, action: Action) -> None:
        self.pool = pool
        self.shape = shape
        self.eligible = eligible
        self._fits = fits
        prices = pool.move_cost if action is Action.CONSOLIDATION else pool.cost
        self._room = NodeRoom(pool, shape, prices)
        self._survey = Survey(pool, shape, np.array(prices))
        self.is_exact = self._room.is_exact
        self._mask = pool.state.problem.shapes.mask(shape)
        self._cost: FloatArray = np.full(len(self._mask), IMPOSSIBLE)
        self._is_stale: BoolArray = self._mask.copy()
        self._is_close: BoolArray = np.zeros(len(self._cost), dtype=np.bool_)
        self._victims: dict[int, list[int]] = {}
        self._seen = len(pool.state.touched)
        self._left = pool.have_left()

    def serve(self, eligible: BoolArray) -> None:
        """From now on only ``eligible`` (U,) units may leave."""
        if eligible is not self.eligible:
            self._forget(self.pool.nodes_of(eligible != self.eligible))
            self.eligible = eligible

    def update(self, wanted: BoolArray | None = None) -> FloatArray:
        """(N,) least cost per node for one more pod where it does not fit as it is; infinite where it cannot.

        A bound where the node was not looked at closely; right on the ``wanted`` (N,) nodes only. Do not write to it.
        """
        self._catch_up()
        nodes = np.flatnonzero(self._is_stale if wanted is None else self._is_stale & wanted)
        if len(nodes) <= FEW_LOOKS:
            for node in nodes.tolist():
                self._look_at(node)
        else:
            self._cost[nodes] = self._survey.bounds(self.eligible, nodes)
            self._is_close[nodes] = False
        self._is_stale[nodes] = False
        return self._cost

    def _catch_up(self) -> None:
        """Forget what was said of nodes that were touched, and of those of gangs of which a part left or came back."""
        touched = self.pool.state.touched
        if self._seen == len(touched):
            return
        self._forget(np.array(touched[self._seen :], dtype=np.int64))
        self._seen = len(touched)
        if self.pool.is_elastic.any():
            left = self.pool.have_left()
            changed = (left != self._left) & self.pool.is_elastic
            if changed.any():
                self._forget(self.pool.nodes_of(self.pool.relatives(changed)))
            self._left = left

    def _forget(self, nodes: IntArray) -> None:
        self._is_stale[nodes] = self._mask[nodes]

    def cheapest(self, nodes: IntArray, cost: FloatArray) -> int | None:
        """Position in ``nodes`` (M,) of the one of least ``cost`` (M,), by `update`; None where none has room.

        ``cost`` is corrected at the nodes looked at.
        """
        while len(nodes):
            at = int(cost.argmin())
            if cost[at] == IMPOSSIBLE:
                break
            node = int(nodes[at])
            if self._is_close[node] and all(map(self.pool.may_leave, self._victims[node])):
                return at
            self._look_at(node)
            cost[at] = self._cost[node]
        return None

    def victims(self, node: int) -> list[int]:
        """Units that leave ``node``, with all that must leave before them; it was `cheapest`."""
        return self.pool.closure(self._victims[node])

    def _look_at(self, node: int) -> None:
        found = self._room.find(node, self.eligible)
        self._victims[node] = found or []
        self._cost[node] = IMPOSSIBLE if found is None else self._room.price(self.pool.closure(found))
        self._is_close[node] = True
