"""quota: non-preemptible work stays within the quota of its queue and of every ancestor.

    charges of non-preemptible arrivals below q  <=  quota[q] - non-preemptible allocated before

Non-preemptible work is never evicted, so nothing is given back (docs/kai-behaviour.md#quota).
"""

from kai_solver.model.families.caps import add_caps
from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    add_caps(v, "quota")
