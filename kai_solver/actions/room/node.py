"""The cheapest way to make room for one more pod of a shape on one node."""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.victims import Hold, VictimPool
from kai_solver.units import GPU, PODS

BoolArray = NDArray[np.bool_]
Option = tuple[int, float, tuple[int, ...]]
"""Devices that are freed, what that costs, and what leaves for it."""


class NodeRoom:
    """For one shape, at one price list. ``is_exact``: the pod surely fits once they are gone.

    Where optional rules or shared devices' own pod slots count, that is to be asked.
    """

    def __init__(self, pool: VictimPool, shape: int, prices: Sequence[float]) -> None:
        self.pool = pool
        self.state = pool.state
        spec = self.state.problem.shapes.shapes[shape]
        self._prices = prices
        self._need = [(r, a) for r, a in enumerate(spec.request) if a and r != GPU]
        self._gpu = spec.gpu
        self._milli: list[int] = self.state.problem.shapes.parts(shape).tolist()
        asked = [rule.clearing(pool, shape, prices) for rule in self.state.rules]
        clearings = [clearing for clearing in asked if clearing is not None]
        self._by_devices = next((clearing for clearing in clearings if clearing.chooses_devices), None)
        self._clearings = [clearing for clearing in clearings if clearing is not self._by_devices]
        self.is_exact = not self._gpu.is_shared and not clearings

    def find(self, node: int, eligible: BoolArray) -> list[int] | None:
        """Units on ``node`` to leave so that one more pod fits; None where even all of them do not suffice."""
        pool = self.pool
        sitters = {u: pool.hold(u, node) for u in pool.on(node) if eligible[u] and pool.may_leave(u)}
        chosen: dict[int, None] = {}
        if not self._free_devices(node, sitters, chosen) or not self._free_resources(node, sitters, chosen):
            return None
        if not all(clearing.free(node, chosen, list(sitters)) for clearing in self._clearings):
            return None
        if len(chosen) > 1:
            self._prune(node, sitters, chosen)
        return list(chosen)

    def price(self, units: Iterable[int]) -> float:
        """Cost of ``units``."""
        return sum(self._prices[u] for u in units)

    # -- devices -------------------------------------------------------------------------------------------------

    def _free_devices(self, node: int, sitters: Mapping[int, Hold], chosen: dict[int, None]) -> bool:
        """Choose the cheapest units that free enough devices; False where all are not enough."""
        count, milli = self._gpu.devices, self._milli[node]
        if not count:
            return True
        free: list[int] = self.state.device_future[node].tolist()[: self.state.problem.nodes[node].gpus]
        if self._by_devices is not None:
            return self._by_devices.free(node, chosen, list(sitters))
        need = count - sum(f >= milli for f in free)
        if need <= 0:
            return True
        found = self._cover(need, free, milli, sitters)
        if found is None:
            return False
        chosen.update(dict.fromkeys(found))
        return True

    def _cover(self, need: int, free: list[int], milli: int, sitters: Mapping[int, Hold]) -> Iterable[int] | None:
        sitting: dict[int, list[tuple[int, int]]] = {}
        for unit, hold in sitters.items():
            for device, held in hold.devices:
                if free[device] < milli:
                    sitting.setdefault(device, []).append((unit, held))
        if need == 1 and self._gpu.is_whole and (single := self._single(free, milli, sitting)) is not None:
            return single
        groups = self._groups(free, milli, sitters, sitting) if self._gpu.is_whole else None
        return self._by_device(need, free, milli, sitting) if groups is None else cheapest(need, groups)

    def _single(
        self, free: list[int], milli: int, sitting: Mapping[int, list[tuple[int, int]]]
    ) -> tuple[int, ...] | None:
        """The cheapest unit for one device, where every device is one unit's alone, and every unit all of its gang.

        The same as `cheapest` of `_groups`, which need not be listed; None elsewhere. Of equal ones the first.
        """
        of_gang, units, prices = self.pool.of_gang, self.pool.units, self._prices
        best = -1
        for device, here in sitting.items():
            unit, held = here[0]
            if len(here) > 1 or free[device] + held < milli or len(of_gang[units[unit].gang]) > 1:
                return None
            if best < 0 or (prices[unit], unit) < (prices[best], best):
                best = unit
        return (best,) if best >= 0 else None

    def _groups(
        self, free: list[int], milli: int, sitters: Mapping[int, Hold], sitting: Mapping[int, list[tuple[int, int]]]
    ) -> list[list[Option]] | None:
        """Options of each gang, one step more each, and of each shared device; None where these are entangled."""
        pool, devices_of = self.pool, dict.fromkeys(sitters, 0)
        groups: dict[int, list[Option]] = {}
        for device, here in sitting.items():
            if len(here) == 1 and free[device] + here[0][1] >= milli:
                devices_of[here[0][0]] += 1
            elif any(len(sitters[unit].devices) > 1 for unit, _ in here):
                return None
            elif free[device] + sum(held for _, held in here) >= milli:
                units = tuple(dict.fromkeys(unit for unit, _ in here))
                groups[-1 - device] = [(1, self.price(pool.closure(units)), units)]
        for unit, devices in devices_of.items():
            if devices:
                steps = groups.setdefault(pool.units[unit].gang, [])
                before = steps[-1] if steps else (0, 0.0, ())
                units = tuple(pool.closure((unit,)))
                steps.append((before[0] + devices, self.price(units), (*before[2], unit)))
        return list(groups.values())

    def _by_device(
        self, need: int, free: list[int], milli: int, sitting: Mapping[int, list[tuple[int, int]]]
    ) -> list[int] | None:
        """Device by device, the cheapest first, each freed by its cheapest units."""
        chosen: dict[int, None] = {}
        options = list(sitting)
        for _ in range(need):
            best = self._cheapest_device(options, free, milli, sitting, chosen)
            if best is None:
                return None
            options.remove(best[0])
            chosen.update(dict.fromkeys(best[1]))
        return list(chosen)

    def _cheapest_device(
        self,
        options: list[int],
        free: list[int],
        milli: int,
        sitting: Mapping[int, list[tuple[int, int]]],
        chosen: dict[int, None],
    ) -> tuple[int, list[int]] | None:
        best: tuple[float, int, list[int]] | None = None
        for device in options:
            have = free[device] + sum(held for unit, held in sitting[device] if unit in chosen)
            price, units = 0.0, []
            for cost, unit, held in sorted((self._prices[unit], unit, held) for unit, held in sitting[device]):
                if have >= milli:
                    break
                if unit not in chosen:
                    have, price = have + held, price + cost
                    units.append(unit)
            if have >= milli and (best is None or (price, device) < best[:2]):
                best = (price, device, units)
        return None if best is None else (best[1], best[2])

    def _devices_suffice(self, node: int, sitters: Mapping[int, Hold], chosen: Iterable[int]) -> bool:
        if not self._gpu.devices:
            return True
        if self._by_devices is not None:
            return self._by_devices.suffices(node, chosen, list(sitters))
        free: list[int] = self.state.device_future[node].tolist()[: self.state.problem.nodes[node].gpus]
        for unit in chosen:
            for device, held in sitters[unit].devices:
                free[device] += held
        fitting = [device for device, milli in enumerate(free) if milli >= self._milli[node]]
        return len(fitting) >= self._gpu.devices

    # -- other resources -----------------------------------------------------------------------------------------

    def _lacks(self, node: int, sitters: Mapping[int, Hold], chosen: Iterable[int]) -> bool:
        units = list(chosen)
        future = self.state.future[:, node].tolist()
        for resource, amount in self._need:
            have = future[resource]
            if have < amount and units:
                have += sum(sitters[unit].request[resource] for unit in units)
            if resource == PODS and future[PODS] <= self._gpu.devices:
                have += self._slots_spared(node, [sitters[unit] for unit in units])
            if have < amount:
                return True
        return False

    def _slots_spared(self, node: int, holds: Sequence[Hold]) -> int:
        """Pod slots of reservation pods that go with ``holds``, less those that must come for one pod more."""
        state = self.state
        sharers, free = state.sharers_later[node].copy(), state.device_future[node].copy()
        for hold in holds:
            for device in hold.shares:
                sharers[device] -= 1
            for device, held in hold.devices:
                free[device] += held
        gone = int(((state.sharers_later[node] > 0) & (sharers == 0)).sum())
        if not self._gpu.is_shared:
            return gone
        joined = int(((sharers > 0) & (free >= self._milli[node])).sum())
        return gone - max(0, self._gpu.devices - joined)

    def _free_resources(self, node: int, sitters: Mapping[int, Hold], chosen: dict[int, None]) -> bool:
        """Add cheapest units until CPU, memory, pods and the like suffice."""
        if not self._lacks(node, sitters, chosen):
            return True
        for unit in sorted(sitters, key=self._prices.__getitem__):
            if unit not in chosen:
                chosen[unit] = None
                if not self._lacks(node, sitters, chosen):
                    return True
        return False

    def _prune(self, node: int, sitters: Mapping[int, Hold], chosen: dict[int, None]) -> None:
        """Keep only units that are needed, dearest tried first."""
        for unit in sorted(chosen, key=self._prices.__getitem__, reverse=True):
            rest = [u for u in chosen if u != unit]
            if not self._devices_suffice(node, sitters, rest) or self._lacks(node, sitters, rest):
                continue
            if all(clearing.suffices(node, rest, list(sitters)) for clearing in self._clearings):
                del chosen[unit]


def cheapest(need: int, groups: Iterable[Sequence[Option]]) -> tuple[int, ...] | None:
    """Units of the cheapest options, at most one of each group, that free ``need`` devices; None where none do."""
    best: list[tuple[float, tuple[int, ...]] | None] = [(0.0, ()), *[None] * need]
    for group in groups:
        before = list(best)
        for devices, price, units in group:
            for freed, way in enumerate(before[:need]):
                if way is None:
                    continue
                now, cost = min(need, freed + devices), way[0] + price
                other = best[now]
                if other is None or cost < other[0]:
                    best[now] = (cost, way[1] + units)
    found = best[need]
    return None if found is None else found[1]
