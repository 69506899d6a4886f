"""budgets: no disruption budget loses more pods than it allows, be they evicted or moved.

    sum_c use[c, b] (size[c] - sum_n stay[c, n]) + sum_u use[u, b] (1 - stay[u])  <=  left[b]

``use``: pods that b counts. A unit that moves counts whole, though some of its pods may finally stay. Source:
Kubernetes' Eviction API (KAI deletes pods, and knows no budgets).
"""

from kai_solver.model.spec import Term
from kai_solver.model.variables import Variables
from kai_solver.rules.disruption_budgets.problem import NAME


def add(v: Variables) -> None:
    """Add the rows of budgets that may bind."""
    for budget, left in v.joint.releases:
        if budget[0] != NAME:
            continue
        stays: list[Term] = []
        most = 0
        for group in v.classes:
            use = group.first.used(budget)
            stays += [(-use, var) for var in group.stay.values() if use]
            most += use * group.size
        for unit in v.units:
            use = unit.mover.used(budget)
            stays += [(-use, unit.stay)] if use else []
            most += use
        if most > left:
            v.spec.add_le(stays, left - most, family=NAME)
