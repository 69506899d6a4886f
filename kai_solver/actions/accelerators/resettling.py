"""Whether units that would leave could all be placed again, counted before any of them does.

Where a rack has to be emptied most attempts fail, since there is no room for the segments that run there. To let a gang
of 48 pods leave, and to bring it back, costs a hundred times what the count does.
"""

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.placement.fit import FitTable
from kai_solver.placement.placing import domains_at, hosts
from kai_solver.planstate.allocation_units import Part
from kai_solver.planstate.victims import VictimPool, part_of_unit
from kai_solver.units.shares import WHOLE

IntArray = NDArray[np.int64]
Level = tuple[str, str]
"""A topology and its required level."""


class Resettling:
    """Counts on the state as it is. Only pods of one shape can be counted whose room adds up; else nothing is said.

    Optional rules only take from what is counted.
    """

    def __init__(self, pool: VictimPool, fits: FitTable) -> None:
        self.pool = pool
        self.state = pool.state
        self.fits = fits
        self._bound: dict[int, dict[Level, list[int]]] = {}
        self._free: dict[int, tuple[int, int]] = {}

    def lacks_devices(self, units: list[int], pod: int, node: int) -> bool:
        """True where too few whole devices are free for ``pod`` even if ``units`` leave for it and all come back.

        A unit takes as many whole devices elsewhere as it leaves: only pods that share devices, which may join others,
        gain one. With many nodes cordoned or tainted, GPUs are free, and none of them is of use to what would move. A
        ``pod`` that shares takes a whole device of ``node`` where none that is shared has room: on 5,000 loaded nodes
        a consolidation for a gang of such pods takes 20 ms so, and took 70 ms (2026-11-29).
        """
        shape = self.state.problem.pod_shape[pod]
        missing = self.state.problem.shapes.shapes[shape].gpu.devices - self._devices_free(shape)
        missing -= int(self.pool.gains[units].sum()) if missing > 0 else 0
        return missing > 0 and missing > self._joinable(shape, units, node)

    def _joinable(self, shape: int, units: list[int], node: int) -> int:
        """Devices of ``node`` that a pod of ``shape`` may share with others once ``units`` have left."""
        problem = self.state.problem
        if problem.shapes.shapes[shape].gpu.is_whole:
            return 0
        free = self.state.device_future[node].tolist()
        for unit in units:
            for device, held in self.pool.hold(unit, node).devices:
                free[device] += held
        parts = int(problem.shapes.parts(shape)[node])
        return sum(parts <= amount < WHOLE for amount in free)

    def _devices_free(self, shape: int) -> int:
        """Devices that are free whole where ``shape`` or any unit may be, and those that go with a core."""
        touched = len(self.state.touched)
        seen, free = self._free.get(shape, (-1, 0))
        if seen != touched:
            free = self.pool.devices_free([shape])
            self._free[shape] = touched, free
        return free

    def is_hopeless(self, units: list[int], pod: int, node: int) -> bool:
        """True where domains lack room for the parts of ``units`` that need one, with ``pod`` on ``node`` instead."""
        bound, shape = self._together(units)
        if shape is None or not self.state.adds_up(shape):
            return False
        room = self.fits.counts(shape)[1].copy()
        np.add.at(room, list(self._vacated(units)), 1)
        if self.state.problem.pod_shape[pod] == shape:
            room[node] -= 1
        return any(_is_short(domain_of, room, sizes) for domain_of, sizes in self._by_domain(bound))

    def lacks_room(self, units: list[int]) -> bool:
        """The same once ``units`` have left, by optional rules as well: one alone, or all."""
        return any(self._lacks_room([unit]) for unit in units) or (len(units) > 1 and self._lacks_room(units))

    def _lacks_room(self, units: list[int]) -> bool:
        bound, shape = self._together(units)
        if shape is None:
            return False
        room = self.fits.counts(shape)[1]
        for domain_of, sizes in self._by_domain(bound):
            rooms = [room, *(one for rule in self.state.rules for one in rule.room(room, shape, domain_of))]
            if any(_is_short(domain_of, one, sizes) for one in rooms):
                return True
        return False

    def _together(self, units: list[int]) -> tuple[dict[Level, list[int]], int | None]:
        """Pods of every part of ``units`` that must be in one domain, by level; their shape, None where of several."""
        bound: dict[Level, list[int]] = {}
        for unit in units:
            for level, sizes in self._bound_of(unit).items():
                bound.setdefault(level, []).extend(sizes)
        shape_of = self.state.problem.pod_shape
        shapes = {shape_of[p] for unit in units for p in self.pool.units[unit].pods} if bound else set()
        return bound, shapes.pop() if len(shapes) == 1 else None

    def _by_domain(self, bound: Mapping[Level, list[int]]) -> Iterator[tuple[IntArray, list[int]]]:
        """(N,) domain of each node at every level, and the sizes of what is bound to one of them."""
        for level, sizes in bound.items():
            domain_of = domains_at(self.state.problem.domains, *level)
            if domain_of is not None:
                yield domain_of, sizes

    def _bound_of(self, unit: int) -> dict[Level, list[int]]:
        """Pods of every part of the unit that must be in one domain, by level."""
        found = self._bound.get(unit)
        if found is None:
            u = self.pool.units[unit]
            gang = self.state.problem.gangs[u.gang]
            found = self._bound[unit] = {}
            for level, size in _parts_bound(part_of_unit(gang, u.pods, [[] for _ in gang.leaves])):
                found.setdefault(level, []).append(size)
        return found

    def _vacated(self, units: Iterable[int]) -> Iterator[int]:
        """The nodes of all that leave with ``units``, pod by pod: a core takes along what its gang placed meanwhile."""
        places = self.state.places
        for unit in (self.pool.units[number] for number in units):
            beside = (
                [p for leaf in self.state.gangs[unit.gang].active for p in leaf if p in places] if unit.is_core else []
            )
            yield from (self.pool.node_of(pod) for pod in dict.fromkeys((*unit.pods, *beside)))


def _is_short(domain_of: IntArray, room: IntArray, sizes: list[int]) -> bool:
    """True where for some size there are fewer places of that many pods in one domain than parts as large."""
    ordered = sorted(sizes, reverse=True)
    return any(hosts(domain_of, room, size) < len(ordered) - ordered[::-1].index(size) for size in set(sizes))


def _parts_bound(part: Part) -> Iterator[tuple[Level, int]]:
    if part.topology is not None and part.topology.required:
        yield (part.topology.topology, part.topology.required), sum(1 for _ in part.all_pods())
    for child in part.parts:
        yield from _parts_bound(child)
