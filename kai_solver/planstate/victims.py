"""Units that could leave, what that would cost, and where they are now."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.allocation_units import Part
from kai_solver.planstate.eviction_units import Unit, units_of
from kai_solver.planstate.holdings import HoldRows
from kai_solver.planstate.releases import UnitReleases
from kai_solver.planstate.saving import free_milli, savings
from kai_solver.planstate.state import State
from kai_solver.planstate.victim_order import victim_ranks
from kai_solver.problem import GangShape, Leaf, TreeNode
from kai_solver.units import GPU
from kai_solver.units.shares import PARTS_OF_MILLI

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

IMPOSSIBLE = float("inf")


@dataclass(frozen=True, slots=True)
class Hold:
    """What one unit holds on one node: resources, (device, milli) pairs, a device for each share, grants by rule."""

    request: tuple[int, ...]
    devices: tuple[tuple[int, int], ...]
    shares: tuple[int, ...]
    grants: Mapping[str, Sequence[Any]]


class UnitsOfGangs(Mapping[int, list[int]]):
    """By gang, its units in the order in which they may leave; gangs without units are not in it."""

    def __init__(self, gang_of: IntArray) -> None:
        """``gang_of`` (U,): the gang of each unit, ascending."""
        self._gangs: list[int] = np.unique(gang_of).tolist()
        self._starts: list[int] = np.searchsorted(gang_of, np.arange(int(gang_of.max(initial=-1)) + 2)).tolist()

    def __getitem__(self, gang: int) -> list[int]:
        own = range(self._starts[gang], self._starts[gang + 1]) if 0 <= gang < len(self._starts) - 1 else range(0)
        if not own:
            raise KeyError(gang)
        return list(own)

    def __iter__(self) -> Iterator[int]:
        return iter(self._gangs)

    def __len__(self) -> int:
        return len(self._gangs)


class VictimPool:
    """Units of all gangs that may ever leave, and where their pods are now (moved ones at their new place).

    ``cost``, ``move_cost``: by unit, of its eviction and of its move.
    ``gang_of``, ``queue_of``: (U,) gang and leaf queue by unit.
    ``may_move``: (U,) True where every pod is made again by its controller.
    ``charges``: (U, 3) what its queue pays. ``cost_kind``: (U,) one number for all of one queue and one charge.
    ``is_elastic``: (U,) True where its gang has other units. ``shares``: by unit, whether it shares devices.
    ``rank``: by unit, its place in the policy's victim order, 0 first to leave.
    ``pinned``: gangs for which others were disturbed in this cycle; their core stays, or that was for nothing.
    ``releases``: which units may leave, alone and together, by optional rules.
    ``took_places``: some core that left took places with it that its gang got in this cycle.
    """

    @classmethod
    def of_running(cls, state: State) -> "VictimPool":
        """Units of all preemptible gangs that run."""
        gangs = state.problem.gang_columns
        return cls(state, np.flatnonzero(gangs.preemptible & gangs.lies))

    def __init__(self, state: State, candidates: IntArray) -> None:
        """``candidates``: gangs, in ascending order."""
        self.state = state
        self.table = units_of(state, candidates)
        self.units, self.gang_of, self.charges = self.table.units, self.table.gang, self.table.charge
        self.of_gang = UnitsOfGangs(self.gang_of)
        problem = state.problem
        self.queue_of: IntArray = problem.gang_columns.queue[self.gang_of]
        self.shares = self.table.any(problem.columns.shares)
        self.may_move = self.table.all(problem.columns.is_replaced)
        self.is_elastic: BoolArray = np.bincount(self.gang_of, minlength=1)[self.gang_of] > 1
        self._first_pod = self.table.first_pod
        self._first: list[int] = self._first_pod.tolist()
        self.releases = UnitReleases(state, self.units)
        self._rank = victim_ranks(state, self.table)
        self.rank: list[int] = self._rank.tolist()
        self.cost: list[float] = self._costs().tolist()
        tie = 0.5 / (len(self.units) ** 2 + 1)
        self.move_cost: list[float] = (self.table.sizes + self._rank * tie).tolist()
        self.pinned: set[int] = set()
        self._is_pinned: BoolArray = np.zeros(len(self.units), dtype=np.bool_)
        self.took_places = False
        self._guests: dict[int, dict[int, None]] = {}
        self._seated: list[tuple[int, int]] = []
        self._held_devices: IntArray = np.zeros((0, 2), dtype=np.int64)
        self._holds: dict[tuple[int, int], Hold] = {}
        self._stakes: dict[bool, dict[int, int]] = {}
        self._reaches: dict[frozenset[int], BoolArray] = {}

    @cached_property
    def cost_kind(self) -> IntArray:
        """(U,) a number that units of one leaf queue and one charge share."""
        kinds = np.column_stack([self.queue_of, self.charges])
        found: IntArray = np.unique(kinds, axis=0, return_inverse=True)[1].reshape(-1)
        return found

    def disturbed_units(self) -> list[Unit]:
        """Units of which some pod is not where it ran, in their order. Of 6,000 they are few (openb: 1 ms, not 20)."""
        return [self.units[index] for index in np.flatnonzero(self.are_disturbed()).tolist()]

    def stakes(self, *, by_gpus: bool) -> dict[int, int]:
        """By priority, the work of all units, rounded one by one; ``by_gpus``: thousandths of their GPUs."""
        if by_gpus not in self._stakes:
            strata, own = np.unique(self.state.problem.gang_columns.priority[self.gang_of], return_inverse=True)
            stakes = np.zeros(len(strata), dtype=np.int64)
            np.add.at(
                stakes, own.reshape(-1), self.charges[:, GPU] if by_gpus else np.rint(self.table.work).astype(int)
            )
            self._stakes[by_gpus] = dict(zip(strata.tolist(), stakes.tolist(), strict=True))
        return self._stakes[by_gpus]

    def pin(self, gangs: Iterable[int]) -> None:
        """The cores of ``gangs`` stay: others were disturbed for them."""
        for gang in gangs:
            self.pinned.add(gang)
            for unit in self.of_gang.get(gang, ())[-1:]:
                self._is_pinned[unit] = self.table.is_core[unit]

    def unpin(self, gangs: Iterable[int]) -> None:
        """The cores of ``gangs`` may leave again."""
        for gang in gangs:
            self.pinned.discard(gang)
            for unit in self.of_gang.get(gang, ())[-1:]:
                self._is_pinned[unit] = False

    @property
    def is_pinned(self) -> BoolArray:
        """(U,) cores that stay, as others were disturbed for their gangs. Do not write to it."""
        return self._is_pinned

    def pin_only(self, gangs: Iterable[int]) -> None:
        """The cores of ``gangs`` stay, and no others."""
        self.unpin(list(self.pinned))
        self.pin(gangs)

    def note_places(self, unit: int) -> None:
        """Remember that the unit's pods are, or may be, where they have places now."""
        for pod in self.units[unit].pods:
            place = self.state.places.get(pod)
            if place is not None:
                here = self._guests.setdefault(place.node, {})
                if unit not in here:
                    here[unit] = None
                    self._seated.append((place.node, unit))

    def node_of(self, pod: int) -> int:
        """Node where the pod runs, or is to run after a move."""
        place = self.state.places.get(pod)
        return place.node if place is not None else self.state.problem.pod_node[pod]

    def _costs(self) -> FloatArray:
        """(U,) cost of each unit: work lost, far more in a higher priority stratum, with the victim order as tie.

        Up to four strata lie 1e4 apart, more share the same span, as doubles would lose the ties: a greedy may be
        rough, the stages compare exactly.
        """
        priority = self.state.problem.gang_columns.priority[self.gang_of]
        strata, height = np.unique(priority, return_inverse=True)
        step = min(1e4, 1e12 ** (1 / max(1, len(strata) - 1)))
        worth = np.array([step**number for number in range(len(strata))], dtype=np.float64)[height.reshape(-1)]
        cost: FloatArray = (
            self.table.work * worth + self.table.sizes * 1e-3 + self._rank * (1e-6 / max(1, len(self.units)))
        )
        return cost

    # -- state of units ------------------------------------------------------------------------------------------
    # All of it is read from the state, so that a rollback of the state is a rollback of this.

    def has_left(self, unit: int) -> bool:
        """True where the unit's pods left and have no new place."""
        pod = self._first[unit]
        return pod in self.state.gone and pod not in self.state.places

    def is_moved(self, unit: int) -> bool:
        """True where the unit's pods left and have a new place."""
        pod = self._first[unit]
        return pod in self.state.gone and pod in self.state.places

    def is_disturbed(self, unit: int) -> bool:
        """True where the unit's pods are not where they ran: they left, or moved."""
        return self._first[unit] in self.state.gone

    def has_left_after(self, unit: int) -> bool:
        """True where units of the gang that stay longer have left too: surplus has no place without its core."""
        u = self.units[unit]
        own = self.of_gang[u.gang]
        return u.step + 1 < len(own) and any(self.has_left(later) for later in own[u.step + 1 :])

    def dearest_first(self, units: Iterable[int]) -> list[int]:
        """Order in which to bring back: gangs by what they cost, the core of each before its surplus."""
        chosen = list(units)
        if len(chosen) < 2:
            return chosen
        dear: dict[int, float] = {}
        for unit in chosen:
            gang = self.units[unit].gang
            dear[gang] = max(dear.get(gang, 0.0), self.cost[unit])
        return sorted(chosen, key=lambda i: (-dear[self.units[i].gang], self.units[i].gang, -self.units[i].step))

    def may_leave(self, unit: int) -> bool:
        """False for the core of a gang for which others were disturbed in this cycle."""
        u = self.units[unit]
        return not (u.is_core and u.gang in self.pinned)

    def on(self, node: int) -> list[int]:
        """Units with a pod on ``node`` now, by index."""
        gone, places, units, first = self.state.gone, self.state.places, self.units, self._first
        at_home = self.origins.unit[self._starts[node] : self._starts[node + 1]].tolist()
        here = [unit for unit in at_home if first[unit] not in gone]
        if node not in self._guests:
            return here
        guests = [
            unit
            for unit in self._guests[node]
            if first[unit] in gone and any(pod in places and places[pod].node == node for pod in units[unit].pods)
        ]
        return sorted(here + guests) if guests else here

    # -- all units at once ---------------------------------------------------------------------------------------

    @cached_property
    def origins(self) -> HoldRows:
        """What all units hold where they run."""
        return HoldRows.at_origin(self.state.problem, self.table)

    @cached_property
    def _starts(self) -> IntArray:
        return self.origins.starts(len(self.state.problem.nodes))

    def rows(self, eligible: BoolArray, nodes: IntArray) -> HoldRows:
        """What those of the ``eligible`` (U,) units that may leave hold on ``nodes`` (M,), ascending.

        ``node`` of the rows is a position in ``nodes``.
        """
        fast = self._is_pinned

        def stay(units: IntArray) -> BoolArray:
            kept: BoolArray = eligible[units] & ~self.state.is_gone[self._first_pod[units]] & ~fast[units]
            return kept

        rows = self.origins.on(nodes, self._starts, stay)
        moved = [self.units[unit] for unit in self._guests_on(nodes, eligible) if not fast[unit]]
        return rows.beside(HoldRows.moved(self.state, moved).within(nodes)) if moved else rows

    def guests(self, nodes: IntArray) -> IntArray:
        """Units that were ever given places on ``nodes``, whether they are there now or not."""
        node, unit = self._guest_rows()
        here = np.zeros(len(self.state.problem.nodes), dtype=np.bool_)
        here[nodes] = True
        found: IntArray = np.unique(unit[here[node]])
        return found

    def _guests_on(self, nodes: IntArray, eligible: BoolArray) -> list[int]:
        """Those of the ``eligible`` (U,) units that moved, as far as they were ever given places on ``nodes``."""
        found = self.guests(nodes)
        found = found[eligible[found]]
        first = self._first_pod[found]
        moved: list[int] = found[self.state.is_gone[first] & ~self.state.is_out[first]].tolist()
        return moved

    def _guest_rows(self) -> tuple[IntArray, IntArray]:
        """Nodes, and units that were ever given places there."""
        known = len(self._held_devices)
        if known != len(self._seated):
            come = np.array(self._seated[known:], dtype=np.int64)
            self._held_devices = np.concatenate([self._held_devices, come])
        return self._held_devices[:, 0], self._held_devices[:, 1]

    def have_left(self) -> BoolArray:
        """(U,) units that left and have no new place."""
        left: BoolArray = self.state.is_out[self._first_pod]
        return left

    def are_disturbed(self) -> BoolArray:
        """(U,) units of which some pod is not where it ran."""
        found = np.zeros(len(self.units) + 1, dtype=np.bool_)  # The last one stands for pods of no unit.
        found[self._unit_of[self.state.is_gone]] = True
        return found[:-1]

    @cached_property
    def _unit_of(self) -> IntArray:
        """By pod, its unit; -1 where it has none."""
        found = np.full(len(self.state.is_gone), -1, dtype=np.int64)
        found[self.table.pods] = self.table.unit_of_row
        return found

    def most_devices(self, eligible: BoolArray, rows: IntArray) -> IntArray:
        """(N,) wholly free devices with all ``eligible`` (U,) units gone; no less than there would be.

        ``rows`` of `origins` are theirs. A pod that shares devices counts as if it had them alone, and a moved one as
        if it had all of the node.
        """
        origins, state = self.origins, self.state
        rows = rows[~state.is_gone[self._first_pod[origins.unit[rows]]]]
        most = state.whole_later.astype(np.int64)
        np.add.at(most, origins.node[rows], origins.whole[rows])
        np.add.at(most, origins.shared_node, eligible[origins.shared_unit])
        node, unit = self._guest_rows()
        most[node[eligible[unit]]] = state.device_future.shape[1]
        for pod in self._may_join & state.places.keys():
            most[state.places[pod].node] += len(state.places[pod].devices)
        return most

    def most_free_milli(self) -> int:
        """Thousandths of devices that can be free without evictions: moves, and places that go with a core."""
        state = self.state
        joined = [state.places[pod] for pod in self._may_join & state.places.keys()]
        held = sum(len(place.devices) * place.parts for place in joined)
        return free_milli(state).reached + savings(state).total + -(-held // PARTS_OF_MILLI)

    def devices_free(self, shapes: Iterable[int]) -> int:
        """Devices that are free whole where pods of ``shapes`` or of any unit may be, and those that go with a core."""
        return int(self.state.whole_later[self._reach_with(frozenset(shapes))].sum()) + self.devices_joined()

    def _reach_with(self, shapes: frozenset[int]) -> BoolArray:
        """(N,) where pods of ``shapes`` or of any unit may be."""
        if shapes not in self._reaches:
            masks = map(self.state.problem.shapes.mask, shapes)
            self._reaches[shapes] = np.logical_or.reduce([self.reach, *masks])
        return self._reaches[shapes]

    @cached_property
    def gains(self) -> IntArray:
        """(U,) devices that each unit leaves, and that it need not take elsewhere, at most: shares may join others."""
        problem, pods = self.state.problem, self.table.pods
        shapes, held = problem.columns.shape[pods], problem.columns.devices[pods]
        asked = np.array([shape.gpu.devices for shape in problem.shapes.shapes], dtype=np.int64)[shapes]
        is_whole = np.array([shape.gpu.is_whole for shape in problem.shapes.shapes], dtype=np.bool_)[shapes]
        gained = np.where(is_whole, np.maximum(held - asked, 0), np.maximum(held, asked))
        return np.bincount(self.table.unit_of_row, weights=gained, minlength=len(self.units)).astype(np.int64)

    def devices_joined(self) -> int:
        """Devices of places that go with a core: of waiting pods of gangs that run."""
        places = self.state.places
        return sum(len(places[pod].devices) for pod in self._may_join & places.keys())

    @cached_property
    def reach(self) -> BoolArray:
        """(N,) nodes that the pods of some unit may be on."""
        problem = self.state.problem
        return problem.shapes.reach(np.unique(problem.columns.shape[self.table.pods]).tolist())

    @cached_property
    def _may_join(self) -> frozenset[int]:
        """Waiting pods of gangs that run: places that they get go with the core."""
        gangs, pending = self.state.problem.gangs, self.state.problem.gang_columns.pending
        return frozenset(pod for gang in pending if gang in self.of_gang for pod in gangs[gang].pending)

    def nodes_of(self, units: BoolArray) -> IntArray:
        """Nodes where any of ``units`` (U,) ran, or was ever given a place."""
        origins, (node, unit) = self.origins, self._guest_rows()
        return np.concatenate([origins.node[units[origins.unit]], node[units[unit]]])

    def relatives(self, units: BoolArray) -> BoolArray:
        """(U,) all units of the gangs of ``units`` (U,)."""
        gangs = np.zeros(len(self.state.problem.gangs), dtype=np.bool_)
        gangs[self.gang_of[units]] = True
        found: BoolArray = gangs[self.gang_of]
        return found

    def closure_prices(self, prices: FloatArray, units: IntArray) -> FloatArray:
        """What each of ``units``, which have not left, costs with those of its gang that must leave before it."""
        if not self.is_elastic[units].any():
            return prices[units]
        owed = np.where(self.have_left(), 0.0, prices)
        total = np.cumsum(owed)
        first = np.ones(len(owed), dtype=np.bool_)
        first[1:] = self.gang_of[1:] != self.gang_of[:-1]
        # Prices are not negative: the running sum before a gang is the largest of those before the gangs so far.
        before = np.maximum.accumulate(np.where(first, total - owed, 0.0))
        closures: FloatArray = np.where(first, owed, total - before)
        return closures[units]

    def with_earlier(self, unit: int) -> list[int]:
        """``unit`` and those of its gang that must leave before it and have not.

        Where the core has left already, surplus that stayed is the minimum now: it leaves as a whole.
        """
        u = self.units[unit]
        own = self.of_gang[u.gang]
        return [i for i in (own if self.has_left_after(unit) else own[: u.step + 1]) if not self.has_left(i)]

    def closure(self, units: Iterable[int]) -> list[int]:
        """Those of ``units`` that have not left, with all that must leave before them.

        Surplus may sit on other nodes than its core, so this is asked at the time of leaving, not kept per node.
        """
        found: dict[int, None] = {}
        for unit in units:
            if self.has_left(unit):
                continue
            if len(self.of_gang[self.units[unit].gang]) == 1:
                found[unit] = None
            else:
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
                    self.took_places = True
        for pod in u.pods:
            if pod in self.state.places:
                self.state.lift(pod)
            else:
                self.state.evict(pod)

    def hold(self, unit: int, node: int) -> Hold:
        """What ``unit`` holds on ``node`` now."""
        if self.is_moved(unit):
            return self._measure(unit, node)
        found = self._holds.get((unit, node))
        if found is None:
            found = self._holds[unit, node] = self._measure(unit, node)
        return found

    def _measure(self, unit: int, node: int) -> Hold:
        problem, places = self.state.problem, self.state.places
        request = [0] * problem.snapshot.schema.size
        devices: list[tuple[int, int]] = []
        grants: dict[str, list[Any]] = {}
        shares: list[int] = []
        for pod in self.units[unit].pods:
            if self.node_of(pod) != node:
                continue
            shape = problem.pod_shape[pod]
            for r, amount in enumerate(problem.shapes.shapes[shape].request):
                request[r] += amount
            place = places.get(pod)
            held_devices = place.devices if place is not None else problem.held_devices.get(pod, ())
            parts = place.parts if place is not None else int(problem.shapes.parts(shape)[node])
            devices.extend((device, parts) for device in held_devices)
            shares.extend(held_devices if problem.pods[pod].gpu.is_shared else ())
            for name, rule in self.state.granting.items():
                grant = place.grants.get(name) if place is not None else rule.held(pod)
                if grant is not None:
                    grants.setdefault(name, []).append(grant)
        return Hold(tuple(request), tuple(devices), tuple(shares), grants)


def part_of_unit(gang: GangShape, pods: tuple[int, ...], active: list[list[int]]) -> Part:
    """The gang's tree cut down to ``pods``, with those that stay as anchors: what a move has to place."""
    return _cut(gang.root, set(pods), {id(leaf): stay for leaf, stay in zip(gang.leaves, active, strict=True)})


def _cut(node: TreeNode | Leaf, moving: set[int], active: Mapping[int, list[int]]) -> Part:
    """``node`` with ``moving`` alone; ``active``: by identity of a leaf, its pods that run and stay."""
    if isinstance(node, Leaf):
        mine = tuple(pod for pod in (*node.active, *node.pending) if pod in moving)
        return Part(node.name, node.topology, mine, (), tuple(active[id(node)]))
    parts = [_cut(child, moving, active) for child in node.children]
    anchors = tuple(pod for part in parts for pod in part.anchors)
    return Part(node.name, node.topology, (), tuple(p for p in parts if any(True for _ in p.all_pods())), anchors)
