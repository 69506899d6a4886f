"""Allocation units that fit the same places (KAI: scheduling signatures)."""

from typing import NamedTuple

from kai_solver.planstate.allocation_units import AllocationUnit, AllocationUnits, Part
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.charges import Charge

Signature = tuple[object, ...]


def signature(state: State, allocation_unit: AllocationUnit) -> Signature:
    """Units of one signature fit the same places: what failed once fails for all while capacity only shrinks.

    Preferences make no difference: where a unit would rather be, it need not be.
    """
    if _is_unlike_others(state, allocation_unit):
        return (allocation_unit.gang, allocation_unit.pods)
    marks = tuple(rule.tells_apart(pod) for rule in state.problem.rules for pod in allocation_unit.pods)
    placement = state.problem.gangs[allocation_unit.gang].placement
    return (placement, _of_part(state.problem, allocation_unit.root), marks)


def signature_of_each(state: State, allocation_unit: AllocationUnit) -> Signature | None:
    """What units of identical pods share that differ only in how many: where fewer fit nowhere, more do not either.

    None for other units, and for single pods.
    """
    problem, pods, root = state.problem, allocation_unit.pods, allocation_unit.root
    is_one_leaf = len(pods) > 1 and sum(1 for _ in root.leaves()) == 1
    if not is_one_leaf or _is_unlike_others(state, allocation_unit):
        return None
    asked = {(problem.modelled_shape(pod), *(rule.tells_apart(pod) for rule in problem.rules)) for pod in pods}
    path = [root]
    while path[-1].parts:
        path.append(path[-1].parts[0])
    placement = problem.gangs[allocation_unit.gang].placement
    return (placement, tuple(part.topology for part in path), *asked) if len(asked) == 1 else None


def _is_unlike_others(state: State, allocation_unit: AllocationUnit) -> bool:
    """Whether it depends on more than what the unit asks for which places it fits: on pods that run, or on others."""
    gang = state.problem.gangs[allocation_unit.gang]
    has_company = gang.is_spaced and any(rule.has_company(gang.index) for rule in state.rules)
    return has_company or bool(allocation_unit.root.anchors) or not state.problem.ruled.isdisjoint(allocation_unit.pods)


def _of_part(problem: Problem, part: Part) -> Signature:
    inner = tuple(_of_part(problem, child) for child in part.parts)
    return (part.topology, tuple(problem.modelled_shape(pod) for pod in part.pods), inner)


class Kind(NamedTuple):
    """What a gang of one pod asks for, with what right: gangs of one kind differ only in which comes first.

    ``charge``, ``least``: what it costs its queue, at most and at least; ``beside``: GPUs of that which take no device
    (thousandths); ``is_related``: whether a wish between pods is about it (none that a rule is about has a kind).
    """

    queue: int
    priority: int
    preemptible: bool
    never_preempts: bool
    shape: int
    charge: Charge
    least: Charge
    beside: int
    is_related: bool


def kind_of(state: State, units_of_gang: AllocationUnits) -> Kind | None:
    """The kind of a gang that waits with one pod and asks for nothing but room for it; None for others."""
    shape, problem = units_of_gang.shape, state.problem
    leaf, pending = units_of_gang.lone, units_of_gang.state.pending[0]
    if leaf is None or len(pending) != 1 or units_of_gang.state.active[0] or leaf.min_member != 1:
        return None
    gang, number = shape.gang, pending[0]
    if leaf.topology is not None or shape.root.topology is not None or shape.family >= 0 or number in problem.ruled:
        return None
    pod = problem.pods[number]
    if pod.nominated_node or gang.preemption_delay_s > 0:
        return None
    if problem.rules and any(rule.tells_apart(number) is not None for rule in problem.rules):
        return None
    return Kind(
        shape.queue,
        gang.priority,
        gang.preemptible,
        gang.never_preempts,
        problem.pod_shape[number],
        problem.charges[number],
        problem.least_charges[number],
        pod.quota_gpu_milli,
        number in problem.related,
    )
