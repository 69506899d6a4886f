"""units: what leaves, leaves in the order that a gang allows: surplus pods first, the core whole.

Every mover does exactly one thing: ``stay + moved + out_reclaim + out_preempt = 1``; one that must wait for others
leaves only if they do, and is evicted only if they are: ``stay[earlier] <= stay[later]`` and
``stay[earlier] + moved[earlier] + out_reclaim[later] + out_preempt[later] <= 1``. Source: reference 3.9.
"""

from kai_solver.formulation.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    units = {unit.mover.unit: unit for unit in v.units}
    for unit in v.units:
        ways = (unit.stay, unit.moved, unit.out_reclaim, unit.out_preempt)
        v.spec.exactly_one(ways, family="units")
        for earlier in unit.mover.after:
            if earlier in units:
                before = units[earlier]
                v.spec.implication(before.stay, unit.stay, family="units")
                v.spec.at_most_one((before.stay, before.moved, unit.out_reclaim, unit.out_preempt), family="units")
    for group in v.classes:
        terms = [(1, var) for var in group.stay.values()]
        v.spec.add_le([*terms, (1, group.out_reclaim), (1, group.out_preempt)], group.size, family="units")
