"""units: what leaves, leaves as a gang allows: surplus pods one by one, the core whole, and never only the core.

Every mover does exactly one thing: ``stay + moved + out_reclaim + out_preempt = 1``. What holds a minimum is evicted
only with what is above it, ``keep[above] + out[base] <= 1`` with ``keep = stay + moved`` and
``out = out_reclaim + out_preempt``; where those above could be a minimum of their own, with all of them or so that
``sum keep >= quorum``. Those above that are no movers are kept. Source: docs/kai-behaviour.md#eviction-units (that KAI
takes surplus pods last first is its search, not a rule).
"""

from kai_solver.model.variables import MoverUnit, Variables


def add(v: Variables) -> None:
    """Add the rows."""
    units = {unit.mover.unit: unit for unit in v.units}
    for unit in v.units:
        ways = (unit.stay, unit.moved, unit.out_reclaim, unit.out_preempt)
        v.spec.exactly_one(ways, family="units")
        _bear(v, unit, [units[above] for above in unit.mover.bears if above in units])
    for group in v.classes:
        terms = [(1, var) for var in group.stay.values()]
        v.spec.add_le([*terms, (1, group.out_reclaim), (1, group.out_preempt)], group.size, family="units")


def _bear(v: Variables, base: MoverUnit, above: list[MoverUnit]) -> None:
    """Rows for one base and those above it."""
    quorum, stuck = base.mover.quorum, base.mover.stuck
    if not 0 < quorum <= len(above) + stuck:
        for unit in above:
            v.spec.at_most_one((unit.stay, unit.moved, base.out_reclaim, base.out_preempt), family="units")
        return
    go_on = v.spec.bool_var()
    out = [(1, base.out_reclaim), (1, base.out_preempt)]
    keep = [(1, var) for unit in above for var in (unit.stay, unit.moved)]
    for unit in above:
        v.spec.add_le([(1, unit.stay), (1, unit.moved), *out, (-1, go_on)], 1, family="units")
    if stuck:
        v.spec.add_le([*out, (-1, go_on)], 0, family="units")
    v.spec.add_ge([*keep, *((-quorum, var) for _, var in out), (-quorum, go_on)], -quorum - stuck, family="units")
