"""Who could leave, where they sit, and the cheapest way to make room for one more pod on a node."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Rung
from kai_solver.greedy.chunks import Part
from kai_solver.greedy.state import State
from kai_solver.greedy.units import Unit, units_of
from kai_solver.reduction import GangShape, Leaf, TreeNode
from kai_solver.units import GPU, MILLI

FloatArray = NDArray[np.float64]
Eligible = Callable[[int], bool]
"""May this unit (by index) leave here?"""

IMPOSSIBLE = float("inf")
BATCH = 512
"""Nodes looked at before the first that offers room is taken. All 1,213 nodes of openb for each of its 97 shapes of
pending pods cost 4.1 s, in batches of 128 the same shapes 1.1 s (2026-11-21)."""


@dataclass(frozen=True, slots=True)
class _Hold:
    """What one unit holds on one node: resources, and (device, milli) pairs."""

    request: tuple[int, ...]
    devices: tuple[tuple[int, int], ...]


class VictimPool:
    """Units of all gangs that may ever leave, and where their pods are now (moved ones at their new place)."""

    def __init__(self, state: State, candidates: Iterable[GangShape]) -> None:
        self.state = state
        self.units: list[Unit] = []
        self.of_gang: dict[int, list[int]] = {}
        for gang in candidates:
            units = units_of(state.problem, state, gang, len(self.units))
            self.of_gang[gang.index] = [u.index for u in units]
            self.units.extend(units)
        self._at: list[dict[int, None]] = [{} for _ in state.problem.nodes]
        for unit in self.units:
            self.seat(unit.index)
        self.cost = self._costs()
        self._holds: dict[tuple[int, int], _Hold] = {}

    def seat(self, unit: int) -> None:
        """Remember that the unit's pods are, or may be, where they are now."""
        for pod in self.units[unit].pods:
            node = self.node_of(pod)
            if node >= 0:
                self._at[node][unit] = None

    def node_of(self, pod: int) -> int:
        """Node where the pod runs, or is to run after a move."""
        place = self.state.places.get(pod)
        return place.node if place is not None else self.state.problem.pod_node[pod]

    def _costs(self) -> list[float]:
        """Cost of each unit: work lost, far more in a higher priority stratum, with the victim order as tie.

        The sums of one stratum stay below one unit of the next for up to 1e4 units, which a greedy may assume: the
        stages compare exactly.
        """
        gangs = self.state.problem.gangs
        strata = {p: i for i, p in enumerate(sorted({gangs[u.gang].gang.priority for u in self.units}))}
        order = sorted(self.units, key=self._victim_key)
        tie = 1e-6 / max(1, len(order))
        cost = [0.0] * len(self.units)
        for rank, unit in enumerate(order):
            stratum = min(strata[gangs[unit.gang].gang.priority], 3)
            cost[unit.index] = unit.work * 1e4**stratum + len(unit.pods) * 1e-3 + rank * tie
        return cost

    def _victim_key(self, unit: Unit) -> tuple[float, int, int, float, str]:
        """First victim first: the most over-used queue, lowest priority, surplus before core, youngest."""
        problem = self.state.problem
        gang = problem.gangs[unit.gang]
        share = problem.allocatable[gang.queue]
        allocated = problem.allocated[gang.queue]
        ratios = [a / s if s > 0 else a * 1000.0 for a, s in zip(allocated, share, strict=True)]
        return (-max(ratios), gang.gang.priority, unit.step, -gang.gang.created_s, gang.gang.key)

    # -- state of units ------------------------------------------------------------------------------------------
    # All of it is read from the state, so that a rollback of the state is a rollback of this.

    def has_left(self, unit: int) -> bool:
        """True where the unit's pods left and have no new place."""
        pod = self.units[unit].pods[0]
        return pod in self.state.gone and pod not in self.state.places

    def is_moved(self, unit: int) -> bool:
        """True where the unit's pods left and have a new place."""
        pod = self.units[unit].pods[0]
        return pod in self.state.gone and pod in self.state.places

    def on(self, node: int) -> list[int]:
        """Units with a pod on ``node`` now."""
        gone, places, home = self.state.gone, self.state.places, self.state.problem.pod_node
        here = []
        for unit in self._at[node]:
            for pod in self.units[unit].pods:
                if pod not in gone:
                    at = home[pod]
                else:
                    place = places.get(pod)
                    at = place.node if place is not None else -1
                if at == node:
                    here.append(unit)
                    break
        return here

    def with_earlier(self, unit: int) -> list[int]:
        """``unit`` and those of its gang that must leave before it and have not."""
        u = self.units[unit]
        return [i for i in self.of_gang[u.gang][: u.step + 1] if not self.has_left(i)]

    def closure(self, units: Iterable[int]) -> list[int]:
        """Those of ``units`` that have not left, with all that must leave before them.

        Surplus may sit on other nodes than its core, so this is asked at the time of leaving, not kept per node.
        """
        found: dict[int, None] = {}
        for unit in units:
            if not self.has_left(unit):
                found.update(dict.fromkeys(self.with_earlier(unit)))
        return list(found)

    def leave(self, unit: int) -> None:
        """The unit's pods leave where they are (running, or placed by a move).

        With a core go the places that its gang got in this cycle: surplus cannot run without it.
        """
        u = self.units[unit]
        if u.is_core:
            for pod in [p for leaf in self.state.gangs[u.gang].active for p in leaf]:
                if pod in self.state.places and pod not in self.state.gone:
                    self.state.lift(pod)
        for pod in u.pods:
            if pod in self.state.places:
                self.state.lift(pod)
            else:
                self.state.evict(pod)

    def hold(self, unit: int, node: int) -> _Hold:
        """What ``unit`` holds on ``node`` now."""
        if self.is_moved(unit):
            return self._measure(unit, node)
        found = self._holds.get((unit, node))
        if found is None:
            found = self._holds[unit, node] = self._measure(unit, node)
        return found

    def _measure(self, unit: int, node: int) -> _Hold:
        problem, places = self.state.problem, self.state.places
        request = [0] * problem.snapshot.schema.size
        devices: list[tuple[int, int]] = []
        for pod in self.units[unit].pods:
            if self.node_of(pod) != node:
                continue
            shape = problem.pod_shape[pod]
            for r, amount in enumerate(problem.shapes.shapes[shape].request):
                request[r] += amount
            place = places.get(pod)
            seats = place.devices if place is not None else problem.seats.get(pod, ())
            milli = place.milli if place is not None else int(problem.shapes.milli(shape)[node])
            devices.extend((device, milli) for device in seats)
        return _Hold(tuple(request), tuple(devices))


def part_of_unit(gang: GangShape, pods: tuple[int, ...], active: list[list[int]]) -> Part:
    """The gang's tree cut down to ``pods``, with those that stay as anchors: what a move has to place."""
    moving = set(pods)
    position = {id(leaf): i for i, leaf in enumerate(gang.leaves)}

    def cut(node: TreeNode | Leaf) -> Part:
        if isinstance(node, Leaf):
            stay = tuple(active[position[id(node)]])
            mine = tuple(pod for pod in (*node.active, *node.pending) if pod in moving)
            return Part(node.name, node.topology, mine, (), stay)
        parts = [cut(child) for child in node.children]
        anchors = tuple(pod for part in parts for pod in part.anchors)
        return Part(node.name, node.topology, (), tuple(p for p in parts if any(True for _ in p.all_pods())), anchors)

    return cut(gang.root)


class RoomTable:
    """Cheapest sets of units whose leaving lets one more pod of a shape fit each node.

    Valid for one set of eligible gangs; refreshed for the touched nodes only.
    """

    def __init__(self, pool: VictimPool, shape: int, eligible: Eligible, rung: Rung) -> None:
        self.pool = pool
        self.shape = shape
        self.eligible = eligible
        self.by_moves = rung is Rung.CONSOLIDATION
        state = pool.state
        self._need = [(r, a) for r, a in enumerate(state.problem.shapes.shapes[shape].request) if a and r != GPU]
        self._gpu = state.problem.shapes.shapes[shape].gpu
        self._milli: list[int] = state.problem.shapes.milli(shape).tolist()
        self._mask = state.problem.shapes.mask(shape)
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
        """Cost of ``units``; where they will only be moved, their pods count and not their work."""
        pool = self.pool
        if self.by_moves:
            return sum(len(pool.units[u].pods) + pool.units[u].charge[2] * 1e-6 + pool.cost[u] * 1e-9 for u in units)
        return sum(pool.cost[u] for u in units)

    def _room(self, node: int) -> list[int] | None:
        """Units on ``node`` to leave so that one more pod fits; None where even all of them do not suffice."""
        chosen: dict[int, None] = {}
        if not self._free_devices(node, chosen) or not self._free_resources(node, chosen):
            return None
        if len(chosen) > 1:
            self._prune(node, chosen)
        return list(chosen)

    def _candidates(self, node: int) -> list[int]:
        pool = self.pool
        return [u for u in pool.on(node) if self.eligible(u)]

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
                sitting.setdefault(device, []).append((self.pool.cost[unit], unit, held))
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
        future = self.pool.state.future[:, node]
        holds = [self.pool.hold(unit, node).request for unit in chosen]
        return any(future[r] + sum(h[r] for h in holds) < amount for r, amount in self._need)

    def _free_resources(self, node: int, chosen: dict[int, None]) -> bool:
        """Add cheapest units until CPU, memory, pods and the like suffice."""
        if not self._lacks(node, chosen):
            return True
        for unit in sorted(self._candidates(node), key=self.pool.cost.__getitem__):
            if unit not in chosen:
                chosen[unit] = None
                if not self._lacks(node, chosen):
                    return True
        return False

    def _prune(self, node: int, chosen: dict[int, None]) -> None:
        """Keep only units that are needed, dearest tried first."""
        for unit in sorted(chosen, key=self.pool.cost.__getitem__, reverse=True):
            rest = [u for u in chosen if u != unit]
            if not self._lacks(node, rest) and self._devices_suffice(node, rest):
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
