"""budgets: no disruption budget loses more pods than it allows, be they evicted or moved.

    sum_c toll[c, b] (size[c] - sum_n stay[c, n]) + sum_u toll[u, b] (1 - stay[u])  <=  left[b]

``toll``: pods that b counts. A unit that moves counts whole, though some of its pods may finally stay. Source:
Kubernetes' Eviction API (KAI deletes pods, and knows no budgets).
"""

from kai_solver.model.spec import Term
from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows of budgets that may bind."""
    for budget, left in v.joint.budgets:
        stays: list[Term] = []
        most = 0
        for group in v.classes:
            toll = group.first.toll(budget)
            stays += [(-toll, var) for var in group.stay.values() if toll]
            most += toll * group.size
        for unit in v.units:
            toll = unit.mover.toll(budget)
            stays += [(-toll, unit.stay)] if toll else []
            most += toll
        if most > left:
            v.spec.add_le(stays, left - most, family="budgets")
