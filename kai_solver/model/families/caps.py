"""What the families ``limit`` and ``quota`` share: a cap on what is charged below one queue.

What a request by GPU memory costs depends on its node. The least counts, and what places cost beyond it where all pods
that may take them are charged here; else the row says less than the rule, and what a solution really costs is asked
when it is put into effect.
"""

from collections import defaultdict
from collections.abc import Mapping

from kai_solver.model.joint import Arrival, Mover
from kai_solver.model.spec import Term, Var
from kai_solver.model.variables import Variables
from kai_solver.units import GPU


def add_caps(v: Variables, family: str) -> None:
    """``arrivals - evicted - saved by moves <= room`` for every cap of ``family``; quotas get nothing back.

    A cap is asked about only where an arrival adds to it: one that is passed already (a quota was lowered) forbids that
    more comes, and nothing else.
    """
    path = v.joint.problem.queues.path
    for cap in v.joint.caps:
        if cap.family != family:
            continue
        pairs = zip(v.joint.arrivals, v.admit, strict=True)
        charged = [(a, admit) for a, admit in pairs if cap.queue in path[a.queue]]
        if family == "quota":
            charged = [(a, admit) for a, admit in charged if not a.preemptible]
        terms: list[Term] = [(a.least[cap.resource], admit) for a, admit in charged if a.least[cap.resource]]
        adding = [admit for _, admit in terms]
        room = cap.room
        if cap.resource == GPU:
            terms += _dearer_terms(v, family, cap.queue)
        if family == "limit":
            terms += [(-c, var) for c, var in evicted_terms(v, cap.queue, cap.resource)]
            saved, at_most = _saved_terms(v, cap.queue, cap.resource)
            terms, room = terms + saved, room + at_most
        if adding and room >= 0:
            v.spec.add_le(terms, room, family=family)
        elif room < 0:
            for admit in adding:
                v.spec.add_le(terms, room, family=family, only_if=(admit,))


def evicted_terms(v: Variables, queue: int, resource: int) -> list[Term]:
    """What evictions below ``queue`` give back of ``resource``."""
    path = v.joint.problem.queues.path
    terms: list[Term] = []
    for group in v.classes:
        if queue in path[group.first.queue]:
            charge = group.first.charge[resource]
            terms += [(charge, group.out_reclaim), (charge, group.out_preempt)]
    for unit in v.units:
        if queue in path[unit.mover.queue]:
            charge = unit.mover.charge[resource]
            terms += [(charge, unit.out_reclaim), (charge, unit.out_preempt)]
    return [(c, var) for c, var in terms if c]


def _is_charged(v: Variables, item: Arrival | Mover, family: str, queue: int) -> bool:
    """Do new places of ``item`` count against the cap?"""
    if queue not in v.joint.problem.queues.path[item.queue]:
        return False
    return family == "limit" or (isinstance(item, Arrival) and not item.preemptible)


def _dearer_terms(v: Variables, family: str, queue: int) -> list[Term]:
    """What requests by GPU memory cost beyond the least, by place, of shapes and pieces that are charged alone."""
    shapes = v.joint.problem.shapes.shapes
    placed = [*v.place, *(scoped.piece.shape for scoped in v.scoped)]
    if not any(shapes[shape].gpu.memory_mib for shape in placed):
        return []

    def is_charged(item: Arrival | Mover) -> bool:
        return _is_charged(v, item, family, queue)

    charged: dict[int, list[bool]] = defaultdict(list)
    for group in v.classes:
        charged[group.shape].append(is_charged(group.first))
    for owner in range(len(v.joint.arrivals) + len(v.units)):
        for piece in v.pooled_pieces(owner):
            charged[piece.shape].append(is_charged(v.owner(owner)))
    terms: list[Term] = []
    for shape, places in v.place.items():
        if shapes[shape].gpu.memory_mib and all(charged[shape]):
            terms += _dearer(v, shape, places)
    for scoped in v.scoped:
        if shapes[scoped.piece.shape].gpu.memory_mib and is_charged(v.owner(scoped.owner)):
            terms += _dearer(v, scoped.piece.shape, scoped.place)
    return terms


def _dearer(v: Variables, shape: int, places: Mapping[int, Var]) -> list[Term]:
    table = v.joint.problem.shapes
    milli, devices = table.milli(shape), table.shapes[shape].gpu.devices
    least = int(milli.min())
    return [(devices * (int(milli[node]) - least), var) for node, var in places.items() if milli[node] > least]


def _saved_terms(v: Variables, queue: int, resource: int) -> tuple[list[Term], int]:
    """What moves to larger devices may save of ``resource`` below ``queue``: terms to add, and what they begin from."""
    path = v.joint.problem.queues.path
    terms: list[Term] = []
    at_most = 0
    for group in v.classes:
        saves = group.first.saves[resource]
        if saves and group.first.may_move and queue in path[group.first.queue]:
            at_most += saves * group.size
            terms += [(saves, var) for var in (*group.stay.values(), group.out_reclaim, group.out_preempt)]
    for unit in v.units:
        saves = unit.mover.saves[resource]
        if saves and queue in path[unit.mover.queue]:
            terms.append((-saves, unit.moved))
    return terms, at_most
