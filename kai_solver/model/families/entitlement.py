"""entitlement: reclaim takes only from queues that hold more than their due, and never more than that.

A unit may go by reclaim only where its queue may be taken from at all. For every levelled queue V there is a resource
rho in which V stays above its share until the last unit goes::

    sum_{u of V} charge[u, rho] out[u]  -  sum_u charge[u, rho] last[u]  <  surplus[V, rho]      (chosen rho)

with at most one last chunk: KAI tests a chunk before it subtracts it, so the last one may pass the line
(docs/kai-behaviour.md#reclaim-chunks). A chunk is a pod, or of one gang as many of each podset as its minimum, be they
core or surplus::

    last[u] <= lastGang[g],   sum_g lastGang[g] <= 1,   sum_{u of g} pods[u, l] last[u] <= minimum[l]

With reclaimers in several queues a unit may be charged to several levelled queues, one above the other: by one of them,
``sum_V part[u, V] = out[u]``, and the rows of V count ``part[u, V]``.
"""

from collections import defaultdict
from math import gcd

from kai_solver.fairness import QueueSurplus
from kai_solver.model.joint import Mover
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import MoverClass, MoverUnit, Variables

Payer = MoverClass | MoverUnit
Paid = list[tuple[Payer, Var]]
"""The payers for one levelled queue, and how many of each."""


def add(v: Variables) -> None:
    """Add the rows."""
    for item in _all(v):
        if not _mover(item).reclaimable:
            v.spec.add_le([(1, item.out_reclaim)], 0, family="entitlement")
    paid = _paid(v)
    for surplus in v.joint.surplus:
        if surplus.queue in paid:
            _surplus(v, surplus, paid[surplus.queue])


def _all(v: Variables) -> list[Payer]:
    return [*v.classes, *v.units]


def _mover(item: Payer) -> Mover:
    return item.first if isinstance(item, MoverClass) else item.mover


def _paid(v: Variables) -> dict[int, Paid]:
    paid: dict[int, Paid] = defaultdict(list)
    for item in _all(v):
        mover = _mover(item)
        payers = [s.queue for s in v.joint.surplus if mover.queue in s.leaves] if mover.reclaimable else []
        parts = [item.out_reclaim]
        if len(payers) > 1:
            size = item.size if isinstance(item, MoverClass) else 1
            parts = [v.spec.int_var(0, size) for _ in payers]
            v.spec.add_eq([(-1, item.out_reclaim), *((1, part) for part in parts)], 0, family="entitlement")
        for payer, part in zip(payers, parts, strict=False):
            paid[payer].append((item, part))
    return paid


def _surplus(v: Variables, surplus: QueueSurplus, paid: Paid) -> None:
    outs = [(_mover(item).charge, out) for item, out in paid]
    lasts = _lasts(v, paid)
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


def _lasts(v: Variables, paid: Paid) -> list[tuple[tuple[int, int, int], Var]]:
    """(charge, variable) of what may be part of the last chunk."""
    by_gang: dict[int, list[tuple[Mover, Var]]] = defaultdict(list)
    lasts: list[tuple[tuple[int, int, int], Var]] = []
    chunks: list[Var] = []
    for item, out in paid:
        last = _last(v, out)
        lasts.append((_mover(item).charge, last))
        if isinstance(item, MoverUnit):
            by_gang[item.mover.gang].append((item.mover, last))
        else:
            chunks.append(last)
    chunks += [parts[0][1] if len(parts) == 1 else _together(v, parts) for parts in by_gang.values()]
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
