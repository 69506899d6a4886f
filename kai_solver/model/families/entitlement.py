"""entitlement: reclaim takes only from queues that hold more than they keep (`fairness.reclaim`, rules 2 and 3).

A unit may be evicted by reclaim only if a reclaimer may look at its queue. With ``surplus`` what a levelled queue V
holds above what it keeps, there is a resource rho in which, without the last part, less than that is taken::

    sum_{u of V} charge[u, rho] out[u]  -  sum_u charge[u, rho] last[u]  <  surplus[V, rho]      (chosen rho)

At most one part is the last. A part is a pod, or of one gang as many pods of each podset as its minimum, whether they
are core or surplus (docs/kai-behaviour.md#reclaim-parts)::

    last[u] <= lastGang[g],   sum_g lastGang[g] <= 1,   sum_{u of g} pods[u, l] last[u] <= minimum[l]

With reclaimers in several queues a unit may count for several levelled queues, one above the other. It counts for one
of them, ``sum_V counts[u, V] = out[u]``, and the rows of V have ``counts[u, V]`` in place of ``out[u]``.
"""

from collections import defaultdict
from math import gcd

from kai_solver.fairness import QueueSurplus
from kai_solver.model.joint import Mover
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import MoverClass, MoverUnit, Variables

Victim = MoverClass | MoverUnit
Counted = list[tuple[Victim, Var]]
"""Victims that count for one levelled queue, with the variable of how many of each."""


def add(v: Variables) -> None:
    """Add the rows."""
    for item in _all(v):
        if not _mover(item).reclaimable:
            v.spec.add_le([(1, item.out_reclaim)], 0, family="entitlement")
    counted = _counted(v)
    for surplus in v.joint.surplus:
        if surplus.queue in counted:
            _surplus(v, surplus, counted[surplus.queue])


def _all(v: Variables) -> list[Victim]:
    return [*v.classes, *v.units]


def _mover(item: Victim) -> Mover:
    return item.first if isinstance(item, MoverClass) else item.mover


def _counted(v: Variables) -> dict[int, Counted]:
    counted: dict[int, Counted] = defaultdict(list)
    for item in _all(v):
        mover = _mover(item)
        queues = [s.queue for s in v.joint.surplus if mover.queue in s.leaves] if mover.reclaimable else []
        counts = [item.out_reclaim]
        if len(queues) > 1:
            size = item.size if isinstance(item, MoverClass) else 1
            counts = [v.spec.int_var(0, size) for _ in queues]
            v.spec.add_eq([(-1, item.out_reclaim), *((1, count) for count in counts)], 0, family="entitlement")
        for queue, count in zip(queues, counts, strict=False):
            counted[queue].append((item, count))
    return counted


def _surplus(v: Variables, surplus: QueueSurplus, counted: Counted) -> None:
    outs = [(_mover(item).charge, out) for item, out in counted]
    lasts = _lasts(v, counted)
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


def _lasts(v: Variables, counted: Counted) -> list[tuple[tuple[int, int, int], Var]]:
    """(charge, variable) of what may be part of the last part."""
    by_gang: dict[int, list[tuple[Mover, Var]]] = defaultdict(list)
    lasts: list[tuple[tuple[int, int, int], Var]] = []
    last_parts: list[Var] = []
    for item, out in counted:
        last = _last(v, out)
        lasts.append((_mover(item).charge, last))
        if isinstance(item, MoverUnit):
            by_gang[item.mover.gang].append((item.mover, last))
        else:
            last_parts.append(last)
    last_parts += [parts[0][1] if len(parts) == 1 else _together(v, parts) for parts in by_gang.values()]
    v.spec.at_most_one(last_parts, family="entitlement")
    return lasts


def _last(v: Variables, out: Var) -> Var:
    last = v.spec.bool_var()
    v.spec.add_le([(1, last), (-1, out)], 0, family="entitlement")
    return last


def _together(v: Variables, parts: list[tuple[Mover, Var]]) -> Var:
    """The literal that the last part consists of pods of these units of one gang."""
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
