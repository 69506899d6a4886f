"""What the families ``limit`` and ``quota`` share: a cap on what is charged below one queue."""

from kai_solver.formulation.spec import Term
from kai_solver.formulation.variables import Variables


def add_caps(v: Variables, family: str) -> None:
    """``arrivals - evicted <= room`` for every cap of ``family``; quotas get nothing back.

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
        terms: list[Term] = [(a.charge[cap.resource], admit) for a, admit in charged if a.charge[cap.resource]]
        adding = [admit for _, admit in terms]
        if family == "limit":
            terms += [(-c, var) for c, var in evicted_terms(v, cap.queue, cap.resource)]
        if adding and cap.room >= 0:
            v.spec.add_le(terms, cap.room, family=family)
        elif cap.room < 0:
            for admit in adding:
                v.spec.add_le(terms, cap.room, family=family, only_if=(admit,))


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
