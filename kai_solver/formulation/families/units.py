"""units: what leaves, leaves in the order that a gang allows: surplus pods first, the core whole.

Every mover does exactly one thing: ``stay + moved + out_reclaim + out_preempt = 1``; one that must wait for others
leaves only if they do: ``stay[earlier] <= stay[later]``. What holds a minimum is evicted only with what is above it:
``stay[above] + moved[above] + out_reclaim[base] + out_preempt[base] <= 1``. Source: reference 3.9.
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
                v.spec.implication(units[earlier].stay, unit.stay, family="units")
        for above in unit.mover.bears:
            if above in units:
                ways = (units[above].stay, units[above].moved, unit.out_reclaim, unit.out_preempt)
                v.spec.at_most_one(ways, family="units")
    for group in v.classes:
        terms = [(1, var) for var in group.stay.values()]
        v.spec.add_le([*terms, (1, group.out_reclaim), (1, group.out_preempt)], group.size, family="units")
