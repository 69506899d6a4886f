"""The cheapest way to make room for one more pod of a shape on each node."""

from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Rung
from kai_solver.greedy.victims import IMPOSSIBLE, VictimPool
from kai_solver.greedy.zone_room import ZoneRoom, zone_room
from kai_solver.units import GPU, MILLI, PODS

FloatArray = NDArray[np.float64]
Eligible = Callable[[int], bool]
"""May this unit (by index) leave here?"""
BATCH = 512
"""Nodes looked at before the cheapest that offers room is taken; clusters up to this size are looked at whole.

On openb (1,213 nodes, 370 gangs to make room for; 2026-11-21, ladder of one cycle): all nodes 2.7 to 3.1 s, 371 placed,
580,000 GPU-seconds lost; 512 nodes 1.1 to 1.3 s, 368, 1,010,000; 128 nodes 0.6 s, 366, 1,890,000.
"""


class RoomTable:
    """Cheapest sets of units whose leaving lets one more pod of a shape fit each node.

    Valid for one set of eligible gangs; refreshed for the touched nodes only. ``is_exact``: the pod surely fits once
    they are gone; where zones or shared devices' own pod slots count, that is to be asked.
    """

    def __init__(self, pool: VictimPool, shape: int, eligible: Eligible, rung: Rung) -> None:
        self.pool = pool
        self.shape = shape
        self.eligible = eligible
        self._price = pool.move_cost if rung is Rung.CONSOLIDATION else pool.cost
        state = pool.state
        self._need = [(r, a) for r, a in enumerate(state.problem.shapes.shapes[shape].request) if a and r != GPU]
        self._gpu = state.problem.shapes.shapes[shape].gpu
        self._milli: list[int] = state.problem.shapes.milli(shape).tolist()
        self._mask = state.problem.shapes.mask(shape)
        self._zones: ZoneRoom | None = zone_room(pool, shape)
        self.is_exact = self._zones is None and not self._gpu.is_shared
        self.cost: FloatArray = np.full(len(state.problem.nodes), IMPOSSIBLE)
        self.victims: list[list[int]] = [[] for _ in state.problem.nodes]
        self._order = self._nearest_first()
        self._looked_at: set[int] = set()
        self._seen = 0

    def _nearest_first(self) -> list[int]:
        """Nodes that admit the shape, those that lack the least first."""
        state, gpu = self.pool.state, self._gpu
        lack = np.zeros(len(self._mask))
        for resource, amount in self._need:
            lack += np.maximum(amount - state.future[resource], 0) / amount
        if gpu.is_whole:
            lack += np.maximum(gpu.devices - state.whole_later, 0)
        elif gpu.devices:
            best = state.device_future.max(axis=1, initial=0)
            lack += np.maximum(state.problem.shapes.milli(self.shape) - best, 0) / MILLI
        nodes = np.flatnonzero(self._mask)
        return [int(n) for n in nodes[np.argsort(lack[nodes], kind="stable")]]

    def update(self, *, everywhere: bool = False) -> FloatArray:
        """(N,) cost per node for one more pod; 0 where it fits without victims, infinite where it cannot.

        Nodes are looked at in batches, nearest first, until one offers room; ``everywhere`` looks at all.
        """
        touched = self.pool.state.touched
        for node in {n for n in touched[self._seen :] if n in self._looked_at}:
            self._look_at(node)
        self._seen = len(touched)
        while len(self._looked_at) < len(self._order):
            if not everywhere and self._looked_at and np.isfinite(self.cost).any():
                break
            start = len(self._looked_at)
            for node in self._order[start : start + BATCH]:
                self._looked_at.add(node)
                self._look_at(node)
        return self.cost

    def _look_at(self, node: int) -> None:
        found = self._room(node)
        self.victims[node] = found or []
        self.cost[node] = IMPOSSIBLE if found is None else self.price(self.pool.closure(found))

    def price(self, units: Iterable[int]) -> float:
        """Cost of ``units``; where they will only be moved, their pods count, then the victim order, not their work."""
        return sum(self._price[u] for u in units)

    def _room(self, node: int) -> list[int] | None:
        """Units on ``node`` to leave so that one more pod fits; None where even all of them do not suffice."""
        chosen: dict[int, None] = {}
        if not self._free_devices(node, chosen) or not self._free_resources(node, chosen):
            return None
        if self._zones is not None and not self._zones.free(node, chosen, self._candidates):
            return None
        if len(chosen) > 1:
            self._prune(node, chosen)
        return list(chosen)

    def _candidates(self, node: int) -> list[int]:
        pool = self.pool
        return [u for u in pool.on(node) if self.eligible(u) and pool.may_leave(u)]

    def _free_devices(self, node: int, chosen: dict[int, None]) -> bool:
        """Choose units that free enough devices, cheapest device first."""
        count = self._gpu.devices
        if not count:
            return True
        milli = self._milli[node]
        free = self.pool.state.device_future[node].tolist()[: self.pool.state.problem.nodes[node].gpus]
        ready = sum(f >= milli for f in free)
        if ready >= count:
            return True
        sitting: dict[int, list[tuple[float, int, int]]] = {}
        for unit in self._candidates(node):
            for device, held in self.pool.hold(unit, node).devices:
                sitting.setdefault(device, []).append((self._price[unit], unit, held))
        options = [d for d in sitting if free[d] < milli]
        while ready < count:
            best = self._cheapest_device(options, sitting, free, milli, chosen)
            if best is None:
                return False
            device, units = best
            options.remove(device)
            chosen.update(dict.fromkeys(units))
            ready += 1
        return True

    def _cheapest_device(
        self,
        options: list[int],
        sitting: dict[int, list[tuple[float, int, int]]],
        free: list[int],
        milli: int,
        chosen: dict[int, None],
    ) -> tuple[int, list[int]] | None:
        best: tuple[float, int, list[int]] | None = None
        for device in options:
            have = free[device] + sum(held for _, unit, held in sitting[device] if unit in chosen)
            price, units = 0.0, []
            for cost, unit, held in sorted(sitting[device]):
                if have >= milli:
                    break
                if unit not in chosen:
                    have, price = have + held, price + cost
                    units.append(unit)
            if have >= milli and (best is None or (price, device) < best[:2]):
                best = (price, device, units)
        return None if best is None else (best[1], best[2])

    def _lacks(self, node: int, chosen: Iterable[int]) -> bool:
        future, units = self.pool.state.future[:, node], list(chosen)
        holds = [self.pool.hold(unit, node).request for unit in units]
        spare = {PODS: self._slots_spared(node, units)}
        return any(future[r] + sum(h[r] for h in holds) + spare.get(r, 0) < amount for r, amount in self._need)

    def _slots_spared(self, node: int, chosen: list[int]) -> int:
        """Pod slots of reservation pods that go with ``chosen``, less those that must come for one pod more."""
        state = self.pool.state
        if int(state.future[PODS, node]) > self._gpu.devices:
            return 0  # Slots are no question.
        sharers, free = state.sharers_later[node].copy(), state.device_future[node].copy()
        for hold in (self.pool.hold(unit, node) for unit in chosen):
            for device in hold.shares:
                sharers[device] -= 1
            for device, held in hold.devices:
                free[device] += held
        gone = int(((state.sharers_later[node] > 0) & (sharers == 0)).sum())
        if not self._gpu.is_shared:
            return gone
        joined = int(((sharers > 0) & (free >= self._milli[node])).sum())
        return gone - max(0, self._gpu.devices - joined)

    def _free_resources(self, node: int, chosen: dict[int, None]) -> bool:
        """Add cheapest units until CPU, memory, pods and the like suffice."""
        if not self._lacks(node, chosen):
            return True
        for unit in sorted(self._candidates(node), key=self._price.__getitem__):
            if unit not in chosen:
                chosen[unit] = None
                if not self._lacks(node, chosen):
                    return True
        return False

    def _prune(self, node: int, chosen: dict[int, None]) -> None:
        """Keep only units that are needed, dearest tried first."""
        for unit in sorted(chosen, key=self._price.__getitem__, reverse=True):
            rest = [u for u in chosen if u != unit]
            if self._lacks(node, rest) or not self._devices_suffice(node, rest):
                continue
            if self._zones is None or self._zones.suffice(node, rest):
                del chosen[unit]

    def _devices_suffice(self, node: int, chosen: list[int]) -> bool:
        if not self._gpu.devices:
            return True
        free: list[int] = self.pool.state.device_future[node].tolist()
        for unit in chosen:
            for device, held in self.pool.hold(unit, node).devices:
                free[device] += held
        gpus = self.pool.state.problem.nodes[node].gpus
        ready = sum(f >= self._milli[node] for f in free[:gpus])
        return ready >= self._gpu.devices
