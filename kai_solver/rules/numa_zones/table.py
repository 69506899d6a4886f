"""NUMA zones of all nodes in arrays, and where in them a pod may be aligned (docs/kai-behaviour.md#numa).

Policies are the kubelet's. ``single-numa-node``: every unit of a pod lies in one zone. ``restricted``: in the fewest
zones that could hold it on the empty node, which must be as many for every resource. ``best-effort``: in few zones
where that is possible, and anyhow if not. Of zones that fit equally well the first are taken, as the kubelet does.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node, Pod, PodStatus, ZoneShare
from kai_solver.problem.charges import BEYOND
from kai_solver.problem.rules import Survey
from kai_solver.rules.numa_zones.alignment import Alignment, alignment_of
from kai_solver.units import ResourceSchema, Vector

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

ZoneTake = tuple[tuple[int, Vector], ...]
"""What one pod takes of its node's zones: (zone, amounts), ascending; empty: nothing that counts by zone."""

MANY = 1 << 30
_NEVER = -1
_MODELLED = ("single-numa-node", "restricted", "best-effort")


@dataclass(frozen=True, slots=True)
class _Widths:
    """Of one alignment, by row: zones that each of its units needs, 0: none, -1: the node can never align it."""

    together: list[tuple[int, ...]]
    before: list[tuple[int, ...]]

    def refused(self, row: int) -> bool:
        return _NEVER in self.together[row] or _NEVER in self.before[row]


class ZoneTable(Survey):
    """Nodes whose zones count, by row (M of them), padded to Z zones.

    Attributes
    ----------
    row_of
        (N,) row of each node, -1 where its zones do not count. ``nodes``: the node of each row.
    binding
        (M,) True where the kubelet turns a pod away that it cannot align; elsewhere zones only rank nodes.
    capacity
        (M, Z, R) allocatable; ``BEYOND`` where a resource is not counted by zone, 0 beyond the node's zones.
    free, releasing
        (M, Z, R) free at the start of the cycle, and what pods hold there that are leaving.
    held
        What running pods are known to hold, by pod index.
    """

    def __init__(self, nodes: Sequence[Node], schema: ResourceSchema) -> None:
        self.schema = schema
        rows = [i for i, node in enumerate(nodes) if node.numa is not None and node.numa.policy in _MODELLED]
        topologies = [topology for i in rows if (topology := nodes[i].numa) is not None]
        self.nodes = rows
        self.row_of: IntArray = np.full(len(nodes), -1, dtype=np.int64)
        self.row_of[rows] = np.arange(len(rows))
        self.names = [tuple(zone.name for zone in t.zones) for t in topologies]
        self.policies = [t.policy for t in topologies]
        self.by_container = [t.scope == "container" for t in topologies]
        self.binding: BoolArray = np.array([t.policy != "best-effort" for t in topologies], dtype=np.bool_)
        self.aware: BoolArray = np.zeros((len(rows), schema.size), dtype=np.bool_)
        width = max((len(names) for names in self.names), default=0)
        self.capacity: IntArray = np.zeros((len(rows), width, schema.size), dtype=np.int64)
        reported = np.zeros((len(rows), width), dtype=np.bool_)
        self.free = self.capacity.copy()
        for row, topology in enumerate(topologies):
            self.aware[row, list(topology.resources)] = True
            for z, zone in enumerate(topology.zones):
                counted = len(zone.allocatable)  # resources that claims add, at the end, are the whole node's
                self.capacity[row, z, :counted] = zone.allocatable
                self.free[row, z, :counted] = zone.allocatable if zone.available is None else zone.available
                reported[row, z] = zone.available is not None
            self.capacity[row, : len(topology.zones), ~self.aware[row]] = BEYOND
        self.free = np.where(self.aware[:, None, :], np.minimum(self.free, self.capacity), self.capacity)
        self.releasing: IntArray = np.zeros_like(self.capacity)
        self.held: dict[int, ZoneTake] = {}
        self._reported = reported
        self._widths: dict[Alignment, _Widths] = {}
        self._refuses: dict[Alignment, BoolArray] = {}
        self._spans: dict[Alignment, tuple[IntArray, BoolArray]] = {}

    def trait(self, pod: Pod, /) -> Alignment | None:
        """What of ``pod`` is aligned."""
        return alignment_of(pod, self.schema)

    def occupy(self, pods: Sequence[Pod], pod_node: IntArray) -> None:
        """Take what pods hold off ``free``. Where a zone's free amounts were reported, theirs are off already.

        ``pod_node``: (P,) the node of each pod; -1: none.
        """
        rows = np.append(self.row_of, -1)[pod_node]  # The last one is for pods without a node.
        for index in np.flatnonzero(rows >= 0).tolist():
            pod, row = pods[index], int(rows[index])
            if not pod.zones or not pod.status.holds_resources:
                continue
            take = self._known(row, pod.zones)
            if not take:
                continue
            self.held[index] = take
            for zone, amounts in take:
                if not self._reported[row, zone]:
                    self.free[row, zone] -= amounts
                if pod.status is PodStatus.RELEASING:
                    self.releasing[row, zone] += amounts

    def _known(self, row: int, shares: Iterable[ZoneShare]) -> ZoneTake:
        """The record in indices; empty where it names a zone that the node does not have: then nothing is known."""
        names, resources = self.names[row], self.schema.names
        take: dict[int, list[int]] = {}
        for share in shares:
            if share.zone not in names:
                return ()
            amounts = take.setdefault(names.index(share.zone), [0] * len(resources))
            for name, amount in share.amounts:
                if name in resources and self.aware[row, resources.index(name)]:
                    amounts[resources.index(name)] += min(amount, BEYOND)
        return tuple((zone, tuple(amounts)) for zone, amounts in sorted(take.items()) if any(amounts))

    def shares(self, row: int, take: ZoneTake) -> tuple[ZoneShare, ...]:
        """``take`` by name."""
        names = self.names[row]
        return tuple(ZoneShare(names[z], tuple(self.schema.mapping(amounts).items())) for z, amounts in take)

    # -- what a unit needs ---------------------------------------------------------------------------------------

    def widths(self, alignment: Alignment) -> _Widths:
        """Zones that every unit of ``alignment`` needs on every row."""
        found = self._widths.get(alignment)
        if found is None:
            pod = self._unit_widths(alignment.pod)
            containers = [self._unit_widths(unit) for unit in alignment.containers]
            before = [self._unit_widths(unit) for unit in alignment.init]
            rows = range(len(self.nodes))
            found = self._widths[alignment] = _Widths(
                [tuple(int(c[m]) for c in (containers if self.by_container[m] else [pod])) for m in rows],
                [tuple(int(c[m]) for c in before) if self.by_container[m] else () for m in rows],
            )
        return found

    def adds_up(self, alignment: Alignment, nodes: BoolArray) -> bool:
        """True where each pod of ``alignment`` takes one zone's room on every row of ``nodes`` (N,).

        Then a row has room for as many pods as its zones together, and what is free does not change the rank of a node.
        """
        widths = self.widths(alignment)
        rows = self.row_of[nodes & (self.row_of >= 0)].tolist()
        return all(self.binding[row] and widths.together[row] == (1,) and not widths.before[row] for row in rows)

    def _unit_widths(self, unit: Vector) -> IntArray:
        """(M,) for one unit."""
        need = np.array(unit, dtype=np.int64)
        asks = self.aware & (need > 0)
        fits_one: BoolArray = np.any(np.all(self.capacity >= need, axis=2), axis=1)
        single = np.where(fits_one, 1, _NEVER)
        sums = np.cumsum(-np.sort(-self.capacity, axis=1), axis=1)
        fewest = np.where((sums < need).all(axis=1), MANY, (sums < need).sum(axis=1) + 1)
        least = np.where(asks, fewest, MANY).min(axis=1, initial=MANY)
        most = np.where(asks, fewest, 0).max(axis=1, initial=0)
        restricted = np.where((least == most) & (most < MANY), least, _NEVER)
        restricted = np.where((restricted == 1) & ~fits_one, _NEVER, restricted)
        is_single = np.array([policy == "single-numa-node" for policy in self.policies], dtype=np.bool_)
        found: IntArray = np.where(is_single, single, restricted).astype(np.int64)
        found[~self.binding] = 0
        found[~asks.any(axis=1)] = 0
        return found

    def refuses(self, alignment: Alignment, /) -> BoolArray:
        """(N,) True where the node could not align the pod even if it were empty."""
        found = self._refuses.get(alignment)
        if found is None:
            widths = self.widths(alignment)
            found = np.zeros(len(self.row_of), dtype=np.bool_)
            found[[node for row, node in enumerate(self.nodes) if widths.refused(row)]] = True
            self._refuses[alignment] = found
        return found

    # -- where it fits -------------------------------------------------------------------------------------------

    def align(self, alignment: Alignment, row: int, free: IntArray) -> ZoneTake | None:
        """What one pod takes of ``free`` (Z, R), first zones first; None where the kubelet would turn it away."""
        widths = self.widths(alignment)
        if widths.refused(row):
            return None
        room: list[list[int]] = free.tolist()
        taken: dict[int, list[int]] = {}
        units = alignment.units(by_container=self.by_container[row])
        for unit, width in zip(units, widths.together[row], strict=True):
            zones = self._choose(row, unit, width, room)
            if zones is None:
                return None if self.binding[row] else ()
            self._draw(row, unit, zones, room, taken)
        room = free.tolist()
        for unit, width in zip(alignment.init, widths.before[row], strict=False):
            if self._choose(row, unit, width, room) is None:
                return None
        return tuple((zone, tuple(amounts)) for zone, amounts in sorted(taken.items()))

    def _asked(self, row: int, unit: Vector) -> list[tuple[int, int]]:
        return [(r, amount) for r, amount in enumerate(unit) if amount and self.aware[row, r]]

    def _choose(self, row: int, unit: Vector, width: int, room: list[list[int]]) -> tuple[int, ...] | None:
        """The first zones, ``width`` of them, that hold ``unit`` together."""
        asked = self._asked(row, unit)
        count = len(self.names[row])
        widths = range(1, count + 1) if not self.binding[row] and asked else (width,)
        for size in widths:
            for zones in combinations(range(count), size):
                if all(sum(room[z][r] for z in zones if room[z][r] > 0) >= amount for r, amount in asked):
                    return zones
        return None

    def _draw(
        self, row: int, unit: Vector, zones: tuple[int, ...], room: list[list[int]], taken: dict[int, list[int]]
    ) -> None:
        for r, amount in self._asked(row, unit):
            left = amount
            for zone in zones:
                part = max(0, min(left, room[zone][r]))
                if part:
                    room[zone][r] -= part
                    taken.setdefault(zone, [0] * len(unit))[r] += part
                    left -= part

    def holds(self, take: ZoneTake, free: IntArray) -> bool:
        """True where ``free`` (Z, R) has room for ``take``, in what it takes."""
        return all(
            have >= want for zone, amounts in take for have, want in zip(free[zone], amounts, strict=True) if want
        )

    def counts(self, alignment: Alignment, rows: IntArray, free: IntArray, most: IntArray) -> IntArray:
        """(len(rows),) pods that find zones in ``free`` (M, Z, R); where only trying tells, counted up to ``most``."""
        widths = self.widths(alignment)
        found = np.full(len(rows), MANY, dtype=np.int64)
        simple: dict[Vector, list[int]] = {}
        for at, row in enumerate(rows.tolist()):
            units = alignment.units(by_container=self.by_container[row])
            if widths.refused(row):
                found[at] = 0
            elif not self.binding[row] or not any(widths.together[row] + widths.before[row]):
                continue
            elif widths.together[row] == (1,) and not widths.before[row]:
                simple.setdefault(units[0], []).append(at)
            else:
                found[at] = self._tried(alignment, row, free[row].copy(), int(most[at]))
        for unit, places in simple.items():
            need = np.array(unit, dtype=np.int64)
            asks = need > 0
            each = (free[rows[places]][:, :, asks] // need[asks]).min(axis=2)
            found[places] = np.maximum(each, 0).sum(axis=1)
        return found

    def count(self, alignment: Alignment, row: int, free: IntArray, most: int) -> int:
        """Pods, up to ``most``, that find zones in ``free`` (Z, R) of one row."""
        return most if not self.binding[row] else self._tried(alignment, row, free.copy(), most)

    def _tried(self, alignment: Alignment, row: int, free: IntArray, most: int) -> int:
        for count in range(most):
            take = self.align(alignment, row, free)
            if take is None:
                return count
            for zone, amounts in take:
                free[zone] -= amounts
        return most

    def spans(self, alignment: Alignment, free: IntArray, nodes: IntArray) -> IntArray:
        """(len(nodes),) zones that one pod would take in ``free`` (M, Z, R); 0 where it is not aligned."""
        if alignment not in self._spans:
            self._spans[alignment] = self._fixed_spans(alignment)
        fixed, is_open = self._spans[alignment]
        found: IntArray = fixed[nodes]
        for at in np.flatnonzero(is_open[nodes]).tolist():
            row = int(self.row_of[nodes[at]])
            found[at] = len(self.align(alignment, row, free[row]) or ())
        return found

    def _fixed_spans(self, alignment: Alignment) -> tuple[IntArray, BoolArray]:
        """(N,) spans that what is free does not change, and the nodes where it does."""
        widths = self.widths(alignment)
        fixed = np.zeros(len(self.row_of), dtype=np.int64)
        is_open = np.zeros(len(self.row_of), dtype=np.bool_)
        for row, node in enumerate(self.nodes):
            if self.binding[row] and len(widths.together[row]) == 1:
                fixed[node] = max(widths.together[row][0], 0)
            else:
                is_open[node] = True
        return fixed, is_open


def zone_table(nodes: Sequence[Node], schema: ResourceSchema) -> ZoneTable | None:
    """Zones of ``nodes``; None where no node's policy is concerned with any."""
    table = ZoneTable(nodes, schema)
    return table if table.nodes else None
