"""entitlement: reclaim takes only from queues that hold more than their due, and never more than that.

A unit may go by reclaim only where its queue may be taken from at all. For every levelled queue V there is a resource
rho in which V stays above its share until the last unit goes::

    sum_{u of V} charge[u, rho] out[u]  -  sum_u charge[u, rho] last[u]  <  surplus[V, rho]      (chosen rho)

with at most one last chunk: KAI tests a chunk before it subtracts it, so the last one may pass the line (reference 3.5;
design section 5). A chunk is a pod, or of one gang as many of each podset as its minimum, be they core or surplus::

    last[u] <= lastGang[g],   sum_g lastGang[g] <= 1,   sum_{u of g} pods[u, l] last[u] <= minimum[l]
"""

from collections import defaultdict
from math import gcd

from kai_solver.formulation.joint import Mover, QueueSurplus
from kai_solver.formulation.spec import Term, Var
from kai_solver.formulation.variables import MoverClass, MoverUnit, Variables


def add(v: Variables) -> None:
    """Add the rows."""
    for group in v.classes:
        if not group.first.reclaimable:
            v.spec.add_le([(1, group.out_reclaim)], 0, family="entitlement")
    for unit in v.units:
        if not unit.mover.reclaimable:
            v.spec.add_le([(1, unit.out_reclaim)], 0, family="entitlement")
    for surplus in v.joint.surplus:
        _surplus(v, surplus)


def _surplus(v: Variables, surplus: QueueSurplus) -> None:
    outs = _outs(v, surplus)
    if not outs:
        return
    lasts = _lasts(v, surplus)
    chosen = {r: v.spec.bool_var() for r in range(3) if surplus.amounts[r] > 0}
    anything = v.spec.bool_var()
    for _, out in outs:
        v.spec.add_le([(1, out), (-(1 << 20), anything)], 0, family="entitlement")
    v.spec.bool_or(chosen.values(), family="entitlement", only_if=(anything,))
    for resource, is_chosen in chosen.items():
        terms: list[Term] = [(charge[resource], out) for charge, out in outs if charge[resource]]
        terms += [(-charge[resource], last) for charge, last in lasts if charge[resource]]
        if terms:
            # Bytes of memory are more than a solver's tolerance bears: in the largest unit that all of them share.
            step = gcd(*(amount for amount, _ in terms))
            terms = [(amount // step, var) for amount, var in terms]
            v.spec.add_le(terms, (surplus.amounts[resource] - 1) // step, family="entitlement", only_if=(is_chosen,))


def _lasts(v: Variables, surplus: QueueSurplus) -> list[tuple[tuple[int, int, int], Var]]:
    """(charge, variable) of what may be part of the last chunk."""
    by_gang: dict[int, list[MoverUnit]] = defaultdict(list)
    for unit in _units(v, surplus):
        by_gang[unit.mover.gang].append(unit)
    lasts: list[tuple[tuple[int, int, int], Var]] = []
    chunks: list[Var] = []
    for group in _groups(v, surplus):
        chunks.append(_last(v, group.out_reclaim))
        lasts.append((group.first.charge, chunks[-1]))
    for units in by_gang.values():
        parts = [(unit.mover, _last(v, unit.out_reclaim)) for unit in units]
        lasts += [(mover.charge, last) for mover, last in parts]
        chunks.append(parts[0][1] if len(parts) == 1 else _together(v, parts))
    v.spec.at_most_one(chunks, family="entitlement")
    return lasts


def _last(v: Variables, out: Var) -> Var:
    last = v.spec.bool_var()
    v.spec.add_le([(1, last), (-1, out)], 0, family="entitlement")
    return last


def _together(v: Variables, parts: list[tuple[Mover, Var]]) -> Var:
    """The literal that the last chunk is made of these parts of one gang."""
    is_last = v.spec.bool_var()
    of_podset: dict[int, list[Term]] = defaultdict(list)
    most: dict[int, int] = {}
    for mover, last in parts:
        v.spec.add_le([(1, last), (-1, is_last)], 0, family="entitlement")
        for podset, pods, tested in mover.tested:
            of_podset[podset].append((pods, last))
            most[podset] = tested
    for podset, terms in of_podset.items():
        v.spec.add_le(terms, most[podset], family="entitlement")
    return is_last


def _groups(v: Variables, surplus: QueueSurplus) -> list[MoverClass]:
    return [g for g in v.classes if g.first.queue in surplus.leaves and g.first.reclaimable]


def _units(v: Variables, surplus: QueueSurplus) -> list[MoverUnit]:
    return [u for u in v.units if u.mover.queue in surplus.leaves and u.mover.reclaimable]


def _outs(v: Variables, surplus: QueueSurplus) -> list[tuple[tuple[int, int, int], Var]]:
    outs = [(g.first.charge, g.out_reclaim) for g in _groups(v, surplus)]
    return outs + [(u.mover.charge, u.out_reclaim) for u in _units(v, surplus)]
