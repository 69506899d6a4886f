"""limit: no queue passes its limit, at the leaf or above, in any resource.

    charges of arrivals below q  -  charges of evicted movers below q  <=  limit[q] - allocated before

Limits are tested with the victims already gone (docs/kai-behaviour.md#limits).
"""

from kai_solver.model.families.caps import add_caps
from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    add_caps(v, "limit")
