"""moves: only what may move is moved; the rest stays or is evicted.

    moved[u] <= 0                                 where u may not move
    sum_n stay[c, n] + out[c] = size[c]           for classes that may not move

That a moved pod has a place is in ``gang``: its pods join the demand. Source: docs/kai-behaviour.md#consolidation,
#victim-search.
"""

from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    for unit in v.units:
        if not unit.mover.may_move:
            v.spec.add_le([(1, unit.moved)], 0, family="moves")
    for group in v.classes:
        if not group.first.may_move:
            terms = [(1, var) for var in group.stay.values()]
            v.spec.add_eq([*terms, (1, group.out_reclaim), (1, group.out_preempt)], group.size, family="moves")
