"""placement: at most so many pods or GPUs of one workload on a node, and on at least so many different nodes.

For a workload with the most M (pods, or GPUs in thousandths w) of any node n, fixed[n] of which stay whatever happens::

    sum_p w[p] place[p, n] + sum_u w[u, n] stay[u]  <=  M - fixed[n]

Where more than M run on n already they may stay, and then no pod comes: the row holds only if ``come[n]``, and
``place[p, n] <= pods[p] come[n]``. For the least number of nodes K, with S nodes on which a pod stays and a pods
that come, ``span >= min(K, S + a)``::

    used[n] <= sum_p place[p, n] + sum_u stay[u at n],     stayed[n] >= stay[u at n]
    sum_n used[n] >= K                                      if enough
    sum_n used[n] >= sum_n stayed[n] + a                    if not enough

KAI has no such rule; see the page on placement.
"""

from dataclasses import dataclass, field

from kai_solver.model.spec import Term, Var, negate
from kai_solver.model.variables import MoverUnit, Variables
from kai_solver.rules.workload_spread.problem import NAME, Workload
from kai_solver.units import MILLI

PODS, GPUS = 0, 1
Weight = tuple[int, int]
"""Pods, and thousandths of GPUs."""


@dataclass(slots=True)
class _Spot:
    """One node as one workload sees it: pods that may come (and how many), units that may stay, weights."""

    new: list[tuple[Var, int, Weight]] = field(default_factory=list)
    stay: list[tuple[Var, Weight]] = field(default_factory=list)
    fixed: Weight = (0, 0)


def add(v: Variables) -> None:
    """Add the rows."""
    gangs = {arrival.gang for arrival in v.joint.arrivals} | {mover.gang for mover in v.joint.movers}
    for workload in v.joint.of_rules.get(NAME, ()):
        if gangs.isdisjoint(workload.gangs):
            continue
        spots, rule = _spots(v, workload), workload.rule
        for spot in spots.values():
            if rule.max_pods_per_node is not None:
                _most(v, spot, PODS, rule.max_pods_per_node)
            if rule.max_gpus_per_node is not None:
                _most(v, spot, GPUS, rule.max_gpus_per_node * MILLI)
        if (rule.min_nodes or 0) > 1:
            _least_nodes(v, workload, spots, rule.min_nodes or 0)


def _units(v: Variables, workload: Workload) -> list[MoverUnit]:
    return [unit for unit in v.units if unit.mover.gang in workload.gangs]


def _gang_of(v: Variables, owner: int) -> int:
    first_mover = len(v.joint.arrivals)
    return v.joint.arrivals[owner].gang if owner < first_mover else v.units[owner - first_mover].mover.gang


def _spots(v: Variables, workload: Workload) -> dict[int, _Spot]:
    """Nodes where the workload's pods are or may come."""
    problem = v.joint.problem
    spots = {node: _Spot(fixed=weight) for node, weight in workload.fixed.items()}

    def weight(shape: int, node: int) -> Weight:
        return 1, problem.shapes.shapes[shape].gpu.devices * int(problem.shapes.milli(shape)[node])

    for scoped in v.scoped:
        if _gang_of(v, scoped.owner) in workload.gangs:
            for node, var in scoped.place.items():
                entry = (var, len(scoped.piece.pods), weight(scoped.piece.shape, node))
                spots.setdefault(node, _Spot()).new.append(entry)
    for unit in _units(v, workload):
        origins = iter(unit.mover.origin)
        held: dict[int, Weight] = {}
        for shape in (piece.shape for piece in unit.mover.pieces for _ in piece.pods):
            node = next(origins)
            one, before = weight(shape, node), held.get(node, (0, 0))
            held[node] = (before[0] + one[0], before[1] + one[1])
        for node, total in held.items():
            spots.setdefault(node, _Spot()).stay.append((unit.stay, total))
    return spots


def _most(v: Variables, spot: _Spot, what: int, most: int) -> None:
    """No more than ``most`` on the node, if a pod comes that adds to it."""
    new: list[tuple[int, Var, int]] = [(w[what], var, count) for var, count, w in spot.new if w[what]]
    stay: list[Term] = [(w[what], var) for var, w in spot.stay if w[what]]
    room, origins = most - spot.fixed[what], sum(w for w, _ in stay)
    if not new or sum(w * count for w, _, count in new) + origins <= room:
        return
    terms = [*((w, var) for w, var, _ in new), *stay]
    if origins <= room:
        v.spec.add_le(terms, room, family=NAME)
        return
    come = v.spec.bool_var()
    for _, var, count in new:
        v.spec.add_le([(1, var), (-count, come)], 0, family=NAME)
    v.spec.add_le(terms, room, family=NAME, only_if=(come,))


def _least_nodes(v: Variables, workload: Workload, spots: dict[int, _Spot], least: int) -> None:
    """``span >= min(least, nodes of those that stay + pods that come)``; nodes of fixed pods are in both."""
    span: list[Term] = []
    stayed: list[Term] = []
    fixed = 0
    for spot in spots.values():
        if spot.fixed[PODS]:
            fixed += 1
            continue
        used = v.spec.bool_var()
        beings = [*(var for var, _, _ in spot.new), *(var for var, _ in spot.stay)]
        v.spec.add_le([(1, used), *((-1, var) for var in beings)], 0, family=NAME)
        span.append((1, used))
        if spot.stay:
            stayed.append((-1, _any_stays(v, [var for var, _ in spot.stay])))
    enough = v.spec.bool_var()
    come: list[Term] = [(-count, var) for count, var in _coming(v, workload)]
    v.spec.add_ge(span, least - fixed, family=NAME, only_if=(enough,))
    v.spec.add_ge([*span, *stayed, *come], 0, family=NAME, only_if=(negate(enough),))


def _any_stays(v: Variables, stay: list[Var]) -> Var:
    if len(stay) == 1:
        return stay[0]
    some = v.spec.bool_var()
    for var in stay:
        v.spec.implication(var, some, family=NAME)
    return some


def _coming(v: Variables, workload: Workload) -> list[Term]:
    """(pods, variable) of all of the workload that may get new places."""
    found: list[Term] = []
    for number, arrival in enumerate(v.joint.arrivals):
        if arrival.gang in workload.gangs:
            found.append((sum(len(piece.pods) for piece in arrival.pieces), v.admit[number]))
    found += [(len(unit.mover.origin), unit.moved) for unit in _units(v, workload) if unit.mover.may_move]
    return found
