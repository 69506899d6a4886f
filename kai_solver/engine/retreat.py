"""Which gangs to leave out when the checker refuses a plan, so that one gang's dispute does not stop all other work."""

from collections.abc import Sequence
from dataclasses import replace

from kai_solver.check import Violation
from kai_solver.domain import Plan
from kai_solver.problem import Problem

NO_GANGS: frozenset[str] = frozenset()
RETREATS = 3
"""Plans tried without the gangs that were blamed before nothing is done at all."""


def blame(problem: Problem, plan: Plan, violations: Sequence[Violation]) -> frozenset[str]:
    """Admitted gangs that the violations name: by themselves, their pods, their nodes, queues, or their victims.

    And gangs that leave nodes to be drained, where the violations name their moves. Where none can be told, all that
    were admitted.
    """
    admitted = {gang for gang, _ in plan.admitted}
    objects = {violation.object for violation in violations}
    found = {gang for gang in admitted if gang in objects}
    drained: set[str] = set()
    found |= {bind.gang for bind in plan.binds if {bind.pod, bind.node} & objects}
    for move in plan.moves:
        if {move.pod, move.gang, move.target, move.source} & objects:
            found.update(move.helps)
            drained.update({move.gang} if move.cause == "drain" else ())
    for eviction in plan.evictions:
        if {eviction.pod, eviction.gang, eviction.node} & objects:
            found.update(eviction.helps)
    names = problem.queues.names
    for gang in problem.gangs:
        if gang.gang.key in admitted and objects & {names[q] for q in problem.queues.path[gang.queue]}:
            found.add(gang.gang.key)
    return frozenset(found & admitted | drained) or frozenset(admitted)


def retreat_note(violations: Sequence[Violation], blamed: frozenset[str]) -> str:
    """Note of a plan that was made after another was refused."""
    first = violations[0]
    named = ", ".join(sorted(blamed)[:5])
    again = f"planned again without {named}" if named else "planned again by the greedy alone"
    return f"the checker refused a plan ({first.rule}: {first.object}: {first.text}); {again}"


def refused(plan: Plan, violations: Sequence[Violation], first: Plan | None) -> Plan:
    """Use the ``first`` plan, which was checked, or an empty one rather than a wrong one; with the reason."""
    texts = "; ".join(f"{v.rule}: {v.object}: {v.text}" for v in violations[:5])
    if first is not None:
        note = f"the checker refused the plan, so the cycle's first plan is used ({texts})"
        return replace(first, notes=(*first.notes, note))
    note = f"the checker refused the plan, so nothing is done this cycle ({texts})"
    plan = replace(plan, binds=(), moves=(), evictions=(), admitted=(), unmoved=(), stages=())
    return replace(plan, source="greedy", notes=(*plan.notes, note))
