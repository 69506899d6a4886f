"""gang: an admitted allocation unit gets all its places.

For every shape s of the common pool, with arrivals a that bring d[a, s] pods and the pods of moved units::

    sum_n place[s, n]  =  sum_a d[a, s] admit[a] + moved pods of shape s

and for those with places of their own, over all their pieces: ``sum place = number of pods x admit``. What must come
has ``admit = 1``. Source: PodGroup ``minMember`` (docs/kai-behaviour.md#gangs).
"""

from kai_solver.model.spec import Term
from kai_solver.model.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    for shape, places in v.place.items():
        terms: list[Term] = [(1, var) for var in places.values()]
        terms += [(-count, var) for count, var in (*v.pool_demand.get(shape, ()), *moved_terms(v, shape))]
        v.spec.add_eq(terms, moved_constant(v, shape), family="gang")
    _scoped(v)
    _in_order(v)


def moved_terms(v: Variables, shape: int) -> list[Term]:
    """Variables that add to the pods of ``shape`` that moved units bring to the pool (stay counts negatively)."""
    terms: list[Term] = []
    for group in v.classes:
        if group.shape == shape and group.first.may_move:
            terms += [(-1, var) for var in group.stay.values()]
            terms += [(-1, group.out_reclaim), (-1, group.out_preempt)]
    for number, unit in enumerate(v.units):
        pooled = v.pooled_pieces(len(v.joint.arrivals) + number)
        count = sum(len(piece.pods) for piece in pooled if piece.shape == shape)
        if unit.mover.may_move and count:
            terms.append((count, unit.moved))
    return terms


def moved_constant(v: Variables, shape: int) -> int:
    """Pods of ``shape`` in movable classes: those that neither stay nor are evicted are moved."""
    return sum(group.size for group in v.classes if group.shape == shape and group.first.may_move)


def _scoped(v: Variables) -> None:
    """All pods of all pieces of the arrivals."""
    by_owner: dict[int, list[Term]] = {}
    size: dict[int, int] = {}
    for scoped in v.scoped:
        by_owner.setdefault(scoped.owner, []).extend((1, var) for var in scoped.place.values())
        size[scoped.owner] = size.get(scoped.owner, 0) + len(scoped.piece.pods)
    for owner, terms in by_owner.items():
        v.spec.add_eq([*terms, (-size[owner], v.presence(owner))], 0, family="gang")


def _in_order(v: Variables) -> None:
    """Allocation units of one gang come in their order: no surplus without the minimum."""
    latest: dict[int, int] = {}
    for number, arrival in enumerate(v.joint.arrivals):
        before = latest.get(arrival.gang)
        if before is not None and arrival.optional:
            v.spec.implication(v.admit[number], v.admit[before], family="gang")
        latest[arrival.gang] = number
