"""subgroup: every piece of a gang's tree gets its own pods, not another's.

For every piece p with places of its own: ``sum_n place[p, n] = number of its pods`` (times ``admit`` or ``moved`` of
its owner). Without it a gang could count a worker's place as its master's. Source: PodGroup ``subGroups``
(docs/kai-behaviour.md#subgroups).
"""

from kai_solver.model.spec import Term
from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    for scoped in v.scoped:
        terms: list[Term] = [(1, var) for var in scoped.place.values()]
        v.spec.add_eq([*terms, (-len(scoped.piece.pods), v.presence(scoped.owner))], 0, family="subgroup")
