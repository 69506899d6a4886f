"""Running pods that ask for the same as one that waits, in the order in which they would be its cheapest victims."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.actions.room.table import RoomTable
from kai_solver.planstate.holdings import HoldRows
from kai_solver.planstate.victims import IMPOSSIBLE, VictimPool
from kai_solver.problem.charges import Charge
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]


class IdenticalPods:
    """Units of one pod that are all of their gang, where they run."""

    def __init__(self, pool: VictimPool) -> None:
        self.pool = pool
        self.state = pool.state
        table, gangs, ruled = pool.table, pool.state.problem.gangs, pool.state.problem.ruled
        self._cost = np.array(pool.cost)
        self._charge: IntArray = table.charge
        self._first: IntArray = table.first_pod
        self._is_ruled: BoolArray = np.array([pod in ruled for pod in self._first.tolist()], dtype=np.bool_)
        alone = np.array([gangs[gang].family < 0 for gang in table.gang.tolist()], dtype=np.bool_)
        self._is_lone: BoolArray = alone & (table.sizes == 1) & ~pool.is_elastic

    def in_order(self, table: RoomTable, charge: Charge) -> list[int]:
        """Units that leave one after the other for pods of the table's shape, which fits nowhere, and ``charge``.

        As far as each is its node's cheapest victim, and surely the cheapest of all: by price, then node, then unit.
        What a node that is not plain would cost is known from below only, and what a device that pods share.
        """
        bounds = table.update()
        rows = self.pool.rows(table.eligible, np.arange(len(bounds)))
        devices = self.state.problem.shapes.shapes[table.shape].gpu.devices
        is_identical = self._are_identical_pods(rows, table.shape, charge)
        is_other = self._rough_nodes(rows, devices, is_identical)
        mask = self.state.problem.shapes.mask(table.shape)
        limit = min(bounds[is_other & mask].min(initial=IMPOSSIBLE), self._least_of_sharers(rows, mask, devices))
        kept = (mask & ~is_other)[rows.node] & (
            (rows.whole > 0) if devices else np.ones(len(rows.unit), dtype=np.bool_)
        )
        unit, node, is_identical = rows.unit[kept], rows.node[kept], is_identical[kept]
        price = self._cost[unit]
        order = np.lexsort((unit, node, price))
        is_over = ~is_identical[order] | (price[order] >= limit)
        end = int(is_over.argmax()) if is_over.any() else len(order)
        found: list[int] = unit[order[:end]].tolist()
        return found

    def _are_identical_pods(self, rows: HoldRows, shape: int, charge: Charge) -> BoolArray:
        """(H,) rows of lone units at their origin that hold, and cost their queue, what a pod of ``shape`` asks for.

        No rule between pods is about them: it makes no difference to where others may be that they leave.
        """
        spec, state = self.state.problem.shapes.shapes[shape], self.state
        asked = np.array(spec.request, dtype=np.int64)[:, None]
        same: BoolArray = (rows.request == asked).all(axis=0) & (rows.whole == spec.gpu.devices)
        same &= self._is_lone[rows.unit] & (self._charge[rows.unit] == np.array(charge, dtype=np.int64)).all(axis=1)
        same &= ~self._is_ruled[rows.unit] & ~state.is_gone[self._first[rows.unit]]
        for rule in state.granting.values():
            found = [rule.gives_back(pod, shape) for pod in self._first[rows.unit[same]].tolist()]
            same[same] = np.array(found, dtype=np.bool_)
        return same

    def _rough_nodes(self, rows: HoldRows, devices: int, is_identical: BoolArray) -> BoolArray:
        """(N,) nodes where it takes a closer look to know what leaves first."""
        state = self.state
        rough: BoolArray = np.logical_or((state.future < 0).any(axis=0), (state.device_future < 0).any(axis=1))
        rough[rows.node[~self._is_lone[rows.unit]]] = True
        if not devices:
            rough[rows.shared_node] = True
        if devices:
            rough |= state.whole_later > 0
        if devices > 1:
            rough[rows.node[(rows.whole > 0) & ~is_identical]] = True
            rough[rows.shared_node] = True
        return rough

    def _least_of_sharers(self, rows: HoldRows, mask: BoolArray, devices: int) -> float:
        """Least cost of all units that share one device, of those that would be free whole without them."""
        here = mask[rows.shared_node]
        if devices != 1 or not here.any():
            return IMPOSSIBLE
        free = self.state.device_future
        at = rows.shared_node[here] * free.shape[1] + rows.shared_device[here]
        parts = np.bincount(at, rows.shared_parts[here], free.size) + free.ravel()
        costs = np.bincount(at, self._cost[rows.shared_unit[here]], free.size)
        is_cleared = np.zeros(free.size, dtype=np.bool_)
        is_cleared[at] = parts[at] >= WHOLE
        return float(costs[is_cleared].min(initial=IMPOSSIBLE))
