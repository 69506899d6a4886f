"""subgroup: every piece of a gang's tree gets its own pods, not another's.

For every piece p under a topology: ``sum_n place[p, n] = number of its pods`` (times ``moved`` for movers). Without
it a gang could count a worker's place as its master's. Source: PodGroup ``subGroups`` (reference 1.1).
"""

from kai_solver.formulation.spec import Term
from kai_solver.formulation.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    first_mover = len(v.joint.arrivals)
    for scoped in v.scoped:
        terms: list[Term] = [(1, var) for var in scoped.place.values()]
        count = len(scoped.piece.pods)
        if scoped.owner < first_mover:
            v.spec.add_eq(terms or [(0, v.one)], count, family="subgroup")
        else:
            v.spec.add_eq([*terms, (-count, v.units[scoped.owner - first_mover].moved)], 0, family="subgroup")
