"""Making room for a row of GPUs: the cheapest victims on a node whose GPUs, with those that are free, form one."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.links import gpus_of, mask_of, row_masks, tightest_row
from kai_solver.planstate.victims import Hold, VictimPool
from kai_solver.problem.rules import Clearing
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]


class RowClearing(Clearing):
    """For pods that need ``count`` GPUs in a ``row``. ``staying``: (N,) pods that keep a node's GPUs unidentified."""

    chooses_devices = True

    def __init__(
        self,
        pool: VictimPool,
        prices: Sequence[float],
        count: int,
        row: str,
        unidentified: frozenset[int],
        staying: IntArray,
    ) -> None:
        self.pool = pool
        self.state = pool.state
        self._prices = prices
        self._count = count
        self._row = row
        self._unidentified = unidentified
        self._staying = staying

    def free(self, node: int, chosen: dict[int, None], candidates: Sequence[int], /) -> bool:
        """Choose the cheapest units that free a row of devices which is then known to be free."""
        holds = {unit: self.pool.hold(unit, node) for unit in candidates}
        blocking = self._blocking(node, holds)
        if blocking is None:
            return False
        free = self._free_devices(node)
        for unit in blocking:
            for device, held in holds[unit].devices:
                free[device] += held
        on_device: dict[int, list[int]] = {}
        freed = list(free)
        for unit, hold in holds.items():
            if unit not in blocking:
                for device, held in hold.devices:
                    freed[device] += held
                    on_device.setdefault(device, []).append(unit)
        options: list[tuple[float, tuple[int, ...]]] = []
        for mask in row_masks(len(free), self._count, self._row):
            busy = [device for device in gpus_of(mask) if free[device] < WHOLE]
            if all(freed[device] >= WHOLE for device in busy):
                units = tuple(dict.fromkeys((*blocking, *(unit for device in busy for unit in on_device[device]))))
                options.append((sum(self._prices[unit] for unit in self.pool.closure(units)), units))
        if options:
            chosen.update(dict.fromkeys(min(options)[1]))
        return bool(options)

    def suffices(self, node: int, units: Iterable[int], candidates: Sequence[int], /) -> bool:
        """True where a row is known to be free once ``units`` have left."""
        leaving = list(units)
        blocking = self._blocking(node, {unit: self.pool.hold(unit, node) for unit in candidates})
        if blocking is None or not set(blocking) <= set(leaving):
            return False
        free = self._free_devices(node)
        for unit in leaving:
            for device, held in self.pool.hold(unit, node).devices:
                free[device] += held
        whole = [device for device, parts in enumerate(free) if parts >= WHOLE]
        return bool(tightest_row(mask_of(whole), self._count, self._row))

    def _free_devices(self, node: int) -> list[int]:
        free: list[int] = self.state.device_future[node].tolist()[: self.state.problem.nodes[node].gpus]
        return free

    def _blocking(self, node: int, holds: Mapping[int, Hold]) -> tuple[int, ...] | None:
        """Units with unidentified GPUs on ``node``, all of which must leave; None where such a pod stays."""
        staying = int(self._staying[node])
        if not staying:
            return ()
        origin, gone = self.state.problem.pod_node, self.state.gone
        counts = {u: sum(p in self._unidentified and origin[p] == node for p in self.pool.units[u].pods) for u in holds}
        found = tuple(u for u, pods in counts.items() if pods and self.pool.units[u].pods[0] not in gone)
        return found if sum(counts[u] for u in found) == staying else None
