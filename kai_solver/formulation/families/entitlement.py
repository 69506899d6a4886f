"""entitlement: reclaim takes only from queues that hold more than their due, and never more than that.

A unit may go by reclaim only where its queue may be taken from at all. For every levelled queue V there is a resource
rho in which V stays above its share until the last unit goes::

    sum_{u of V} charge[u, rho] out[u]  -  sum_u charge[u, rho] last[u]  <  surplus[V, rho]      (chosen rho)

with at most one last unit: KAI tests a chunk before it subtracts it, so the last one may pass the line (reference 3.5;
design section 5).
"""

from kai_solver.formulation.joint import QueueSurplus
from kai_solver.formulation.spec import Term, Var
from kai_solver.formulation.variables import Variables


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
    lasts: list[tuple[tuple[int, int, int], Var]] = []
    for charge, out in outs:
        last = v.spec.bool_var()
        v.spec.add_le([(1, last), (-1, out)], 0, family="entitlement")
        lasts.append((charge, last))
    v.spec.at_most_one([last for _, last in lasts], family="entitlement")
    chosen = {r: v.spec.bool_var() for r in range(3) if surplus.amounts[r] > 0}
    anything = v.spec.bool_var()
    for _, out in outs:
        v.spec.add_le([(1, out), (-(1 << 20), anything)], 0, family="entitlement")
    v.spec.bool_or(chosen.values(), family="entitlement", only_if=(anything,))
    for resource, is_chosen in chosen.items():
        terms: list[Term] = [(charge[resource], out) for charge, out in outs if charge[resource]]
        terms += [(-charge[resource], last) for charge, last in lasts if charge[resource]]
        if terms:
            v.spec.add_le(terms, surplus.amounts[resource] - 1, family="entitlement", only_if=(is_chosen,))


def _outs(v: Variables, surplus: QueueSurplus) -> list[tuple[tuple[int, int, int], Var]]:
    groups = [g for g in v.classes if g.first.queue in surplus.leaves and g.first.reclaimable]
    units = [u for u in v.units if u.mover.queue in surplus.leaves and u.mover.reclaimable]
    outs = [(g.first.charge, g.out_reclaim) for g in groups]
    return outs + [(u.mover.charge, u.out_reclaim) for u in units]
