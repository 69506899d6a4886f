"""priority: preemption takes only work of the same queue and strictly lower priority (docs/kai-behaviour.md#preempt).

out_preempt[u] <= 0    where u is no such work for any arrival
"""

from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    for group in v.classes:
        if not group.first.preemptable:
            v.spec.add_le([(1, group.out_preempt)], 0, family="priority")
    for unit in v.units:
        if not unit.mover.preemptable:
            v.spec.add_le([(1, unit.out_preempt)], 0, family="priority")
