"""numa: no NUMA zone holds more than it has, on nodes whose Topology Manager turns away what it cannot align.

A pod of shape s has units (itself, or each of its containers, by the node's scope); unit u needs w zones there. For
every node n, unit u and set m of w zones, ``zone[s, n, u, m]`` counts the units that lie in m::

    sum_m zone[s, n, u, m]  =  units per pod x place[s, n]
    sum need[u, r] zone[.., {z}]  +  sum part[.., m, z, r]  +  sum held[c, z, r] stay[c, n]  <=  free[n, z, r]

Where w > 1 the kubelet may split a unit over its zones as it likes: ``sum_{z in m} part[.., m, z, r] = need[u, r]
zone[.., m]``. Init containers are left out, which asks for less: what they forbid is refused when a solution is put
into effect. Only nodes with a binding policy get variables. Source: kubelet Topology Manager
(docs/kai-behaviour.md#numa).
"""

from collections import Counter
from itertools import combinations, islice
from math import gcd

from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables, ZoneChoice
from kai_solver.problem.zones import ZoneTable
from kai_solver.units import Vector

MOST_SETS = 256
"""Sets of zones of one unit and node; beyond it the unit is left out of the rows, which asks for less."""

Load = dict[tuple[int, int], list[Term]]
"""Terms by zone and resource."""


def add(v: Variables) -> None:
    """Add the variables and rows."""
    zones = v.joint.problem.zones
    if zones is None or v.joint.zone_free is None:
        return
    places = _places(v, zones)
    loads: dict[int, Load] = {}
    for (node, shape), landing in places.items():
        _choose(v, zones, node, shape, landing, loads.setdefault(node, {}))
    for node, load in loads.items():
        if load:
            _add_staying(v, node, load)
            _capacity(v, zones, node, load)


def _places(v: Variables, zones: ZoneTable) -> dict[tuple[int, int], list[Var]]:
    """Counts of new pods by node and shape, where zones bind."""
    found: dict[tuple[int, int], list[Var]] = {}
    counted = [(shape, places) for shape, places in v.place.items()]
    counted += [(scoped.piece.shape, scoped.place) for scoped in v.scoped]
    for shape, places in counted:
        if v.joint.problem.shapes.shapes[shape].alignment is not None:
            for node, var in places.items():
                if zones.row_of[node] >= 0 and zones.binding[zones.row_of[node]]:
                    found.setdefault((node, shape), []).append(var)
    return found


def _choose(v: Variables, zones: ZoneTable, node: int, shape: int, landing: list[Var], load: Load) -> None:
    """Zones for every unit of the pods of one shape that land on one node."""
    row = int(zones.row_of[node])
    alignment = v.joint.problem.shapes.shapes[shape].alignment
    if alignment is None:
        return
    units = alignment.units(by_container=zones.by_container[row])
    widths = dict(zip(units, zones.widths(alignment).together[row], strict=True))
    most = int(v.fitting(shape)[node])
    for unit, each in Counter(units).items():
        if widths[unit] <= 0:
            continue  # 0: not aligned here. Below: never, which is a rule of the node, and these were dropped.
        sets = list(islice(combinations(range(len(zones.names[row])), widths[unit]), MOST_SETS + 1))
        if len(sets) <= MOST_SETS:
            asked = tuple((r, amount) for r, amount in enumerate(unit) if amount and zones.aware[row, r])
            choice = _choice(v, ZoneChoice(unit, each, asked, {}, {}), each * most, sets, load)
            v.zone_choices.setdefault((node, shape), []).append(choice)
            terms: list[Term] = [(1, var) for var in choice.counts.values()]
            v.spec.add_eq([*terms, *((-each, var) for var in landing)], 0, family="numa")


def _choice(v: Variables, choice: ZoneChoice, most: int, sets: list[tuple[int, ...]], load: Load) -> ZoneChoice:
    """Fill ``choice``: at most ``most`` units in each of ``sets``."""
    for zones in sets:
        count = choice.counts[zones] = v.spec.int_var(0, most)
        for resource, amount in choice.asked:
            if len(zones) == 1:
                load.setdefault((zones[0], resource), []).append((amount, count))
                continue
            parts = {(zone, resource): v.spec.int_var(0, amount * most) for zone in zones}
            choice.parts.setdefault(zones, {}).update(parts)
            v.spec.add_eq([*((1, part) for part in parts.values()), (-amount, count)], 0, family="numa")
            for key, part in parts.items():
                load.setdefault(key, []).append((1, part))
    return choice


def _add_staying(v: Variables, node: int, load: Load) -> None:
    """What movers hold while they stay; of those whose zones are unknown nothing is."""
    for group in v.classes:
        for (origin, _, take), var in group.stay.items():
            if origin == node:
                _hold(take, var, load)
    for unit in v.units:
        pods = (p for piece in unit.mover.pieces for p in piece.pods)
        for pod, origin in zip(pods, unit.mover.origin, strict=True):
            if origin == node:
                _hold(v.joint.zones_of.get(pod, ()), unit.stay, load)


def _hold(take: tuple[tuple[int, Vector], ...], var: Var, load: Load) -> None:
    for zone, amounts in take:
        for resource, amount in enumerate(amounts):
            if amount and (zone, resource) in load:
                load[zone, resource].append((amount, var))


def _capacity(v: Variables, zones: ZoneTable, node: int, load: Load) -> None:
    if v.joint.zone_free is None:
        return
    row = int(zones.row_of[node])
    for (zone, resource), terms in load.items():
        divisor = gcd(*(coefficient for coefficient, _ in terms))
        free = max(0, int(v.joint.zone_free[row, zone, resource])) // divisor
        v.spec.add_le([(coefficient // divisor, var) for coefficient, var in terms], free, family="numa")
