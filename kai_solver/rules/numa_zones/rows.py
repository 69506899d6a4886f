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
from dataclasses import dataclass
from itertools import combinations, islice
from math import gcd

import numpy as np
from numpy.typing import NDArray

from kai_solver.model.decode import Decision, Values
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.rules.numa_zones.alignment import NAME, alignment_in
from kai_solver.rules.numa_zones.table import ZoneTable
from kai_solver.units import Vector

IntArray = NDArray[np.int64]

MOST_SETS = 256
"""Sets of zones of one unit and node; beyond it the unit is left out of the rows, which asks for less."""

Load = dict[tuple[int, int], list[Term]]
"""Terms by zone and resource."""


@dataclass(frozen=True, slots=True)
class ZoneChoice:
    """Where on one node the units of one kind of the pods of one shape go; every pod has ``each`` of them.

    ``asked``: (resource, amount) of one unit as far as the node counts it by zone. ``counts``: how many by set of
    zones; ``parts``: of sets of several, what they take there in all by (zone, resource).
    """

    unit: Vector
    each: int
    asked: tuple[tuple[int, int], ...]
    counts: dict[tuple[int, ...], Var]
    parts: dict[tuple[int, ...], dict[tuple[int, int], Var]]


def add(v: Variables, zones: ZoneTable) -> None:
    """Add the variables and rows."""
    v.of_rule[NAME] = {}
    places = _places(v, zones)
    loads: dict[int, Load] = {}
    for (node, shape), landing in places.items():
        _choose(v, zones, node, shape, landing, loads.setdefault(node, {}))
    for node, load in loads.items():
        if load:
            _add_staying(v, zones, node, load)
            _capacity(v, zones, node, load)


def _places(v: Variables, zones: ZoneTable) -> dict[tuple[int, int], list[Var]]:
    """Counts of new pods by node and shape, where zones bind."""
    found: dict[tuple[int, int], list[Var]] = {}
    counted = [(shape, places) for shape, places in v.place.items()]
    counted += [(scoped.piece.shape, scoped.place) for scoped in v.scoped]
    for shape, places in counted:
        if alignment_in(v.joint.problem.shapes.shapes[shape]) is not None:
            for node, var in places.items():
                if zones.row_of[node] >= 0 and zones.binding[zones.row_of[node]]:
                    found.setdefault((node, shape), []).append(var)
    return found


def _choose(v: Variables, zones: ZoneTable, node: int, shape: int, landing: list[Var], load: Load) -> None:
    """Zones for every unit of the pods of one shape that land on one node."""
    row = int(zones.row_of[node])
    alignment = alignment_in(v.joint.problem.shapes.shapes[shape])
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
            v.of_rule[NAME].setdefault((node, shape), []).append(choice)
            terms: list[Term] = [(1, var) for var in choice.counts.values()]
            v.spec.add_eq([*terms, *((-each, var) for var in landing)], 0, family=NAME)


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
            v.spec.add_eq([*((1, part) for part in parts.values()), (-amount, count)], 0, family=NAME)
            for key, part in parts.items():
                load.setdefault(key, []).append((1, part))
    return choice


def _add_staying(v: Variables, zones: ZoneTable, node: int, load: Load) -> None:
    """What movers hold while they stay; of those whose zones are unknown nothing is."""
    for group in v.classes:
        for where, members in group.members.items():
            if where[0] == node:
                _hold(zones.held.get(members[0].pieces[0].pods[0], ()), group.stay[where], load)
    for unit in v.units:
        pods = (p for piece in unit.mover.pieces for p in piece.pods)
        for pod, origin in zip(pods, unit.mover.origin, strict=True):
            if origin == node:
                _hold(zones.held.get(pod, ()), unit.stay, load)


def _hold(take: tuple[tuple[int, Vector], ...], var: Var, load: Load) -> None:
    for zone, amounts in take:
        for resource, amount in enumerate(amounts):
            if amount and (zone, resource) in load:
                load[zone, resource].append((amount, var))


def _capacity(v: Variables, zones: ZoneTable, node: int, load: Load) -> None:
    all_free: IntArray = v.joint.free_of[NAME]
    row = int(zones.row_of[node])
    for (zone, resource), terms in load.items():
        divisor = gcd(*(coefficient for coefficient, _ in terms))
        free = max(0, int(all_free[row, zone, resource])) // divisor
        v.spec.add_le([(coefficient // divisor, var) for coefficient, var in terms], free, family=NAME)


# -- what the variables say of single pods -----------------------------------------------------------------------------


def decode(v: Variables, values: Values, decision: Decision) -> None:
    """Give the zones of each node to its pods: units of one kind are identical, so any of them may have any."""
    problem = v.joint.problem
    made: dict[tuple[int, int], list[ZoneChoice]] = v.of_rule.get(NAME, {})
    landed: dict[tuple[int, int], list[int]] = {}
    for pod, node in decision.places.items() if made else ():
        landed.setdefault((node, problem.modelled_shape(pod)), []).append(pod)
    for key, choices in made.items():
        for pod in landed.get(key, ()):
            decision.grants.setdefault(pod, {})[NAME] = ()
        for choice in choices:
            _hand_out(choice, values, landed.get(key, []), decision)


def _hand_out(choice: ZoneChoice, values: Values, pods: list[int], decision: Decision) -> None:
    """One kind of unit: every pod gets as many as it has, the first sets of zones first."""
    waiting = [pod for pod in pods for _ in range(choice.each)]
    for zones, var in choice.counts.items():
        parts = choice.parts.get(zones, {})
        left = {key: int(values[part]) for key, part in parts.items()}
        for _ in range(int(values[var])):
            pod = waiting.pop(0) if waiting else None
            if pod is None:
                return
            taken = {zone: list(amounts) for zone, amounts in decision.grants[pod][NAME]}
            for resource, amount in choice.asked:
                need = amount
                for zone in zones:
                    part = min(need, left[zone, resource]) if parts else need
                    taken.setdefault(zone, [0] * len(choice.unit))[resource] += part
                    need -= part
                    if parts:
                        left[zone, resource] -= part
            take = tuple((z, tuple(amounts)) for z, amounts in sorted(taken.items()) if any(amounts))
            decision.grants[pod][NAME] = take
