"""gang: an admitted chunk gets all its places.

For every shape s of the common pool, with d_s pods of arrivals and the pods of moved units::

    sum_n place[s, n]  =  d_s + moved pods of shape s

and for arrivals under a topology, over all their pieces: ``sum place = number of pods``. Source: PodGroup ``minMember``
(reference 1.1).
"""

from kai_solver.formulation.spec import Term
from kai_solver.formulation.variables import Variables


def add(v: Variables) -> None:
    """Add the rows."""
    for shape, places in v.place.items():
        terms: list[Term] = [(1, var) for var in places.values()]
        terms += [(-count, var) for count, var in moved_terms(v, shape)]
        constant = moved_constant(v, shape)
        v.spec.add_eq(terms, v.pool_demand.get(shape, 0) + constant, family="gang")
    for shape, count in v.pool_demand.items():
        if shape not in v.place:
            v.spec.add_eq([(0, v.one)], count, family="gang")
    _scoped(v)


def moved_terms(v: Variables, shape: int) -> list[Term]:
    """Variables that add to the pods of ``shape`` that moved units bring to the pool (stay counts negatively)."""
    terms: list[Term] = []
    for group in v.classes:
        if group.shape == shape and group.first.may_move:
            terms += [(-1, var) for var in group.stay.values()]
            terms += [(-1, group.out_reclaim), (-1, group.out_preempt)]
    for unit in v.units:
        count = sum(len(p.pods) for p in unit.mover.pieces if p.shape == shape and not p.scopes)
        if unit.mover.may_move and count:
            terms.append((count, unit.moved))
    return terms


def moved_constant(v: Variables, shape: int) -> int:
    """Pods of ``shape`` in movable classes: those that neither stay nor are evicted are moved."""
    return sum(group.size for group in v.classes if group.shape == shape and group.first.may_move)


def _scoped(v: Variables) -> None:
    """Arrivals: all pods of all pieces. Movers: as many as ``moved`` says."""
    by_owner: dict[int, list[Term]] = {}
    size: dict[int, int] = {}
    for scoped in v.scoped:
        by_owner.setdefault(scoped.owner, []).extend((1, var) for var in scoped.place.values())
        size[scoped.owner] = size.get(scoped.owner, 0) + len(scoped.piece.pods)
    first_mover = len(v.joint.arrivals)
    for owner, terms in by_owner.items():
        if owner < first_mover:
            v.spec.add_eq(terms or [(0, v.one)], size[owner], family="gang")
        else:
            v.spec.add_eq([*terms, (-size[owner], v.units[owner - first_mover].moved)], 0, family="gang")
