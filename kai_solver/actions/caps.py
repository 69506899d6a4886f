"""Limits and quotas of an allocation unit's leaf queue and of those above it, before and after it is placed."""

from collections.abc import Iterable
from dataclasses import replace

from kai_solver.domain import FitError, Reason
from kai_solver.fairness import exceeded, over_limit, over_limit_message, over_quota, over_quota_message
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eviction_units import least_charge_of
from kai_solver.planstate.outcome import Refusal, proven
from kai_solver.planstate.saving import savings
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape
from kai_solver.reasons.refusals import over_cap_where_room_is, refused_by_queue
from kai_solver.units import GPU, MILLI, QUEUE_RESOURCES, UNLIMITED


def over_capacity(state: State, allocation_unit: AllocationUnit) -> Refusal | None:
    """Refusal where a limit, or the quota of non-preemptible work, is passed at the leaf or above.

    Source: docs/kai-behaviour.md#limits, #quota.

    Limits are looked at first, as in KAI. Where others would cost the queue less on larger devices, it proves nothing.
    """
    refusal = _over_capacity(state, allocation_unit)
    if refusal is None or not state.by_memory:
        return refusal
    path = state.problem.queues.path[state.problem.gangs[allocation_unit.gang].queue]
    saved = savings(state).by_queue
    if any(b.resource == QUEUE_RESOURCES[GPU] and b.short <= saved[path[-1]] for b in refusal.proof.blocking):
        return replace(refusal, proof=replace(refusal.proof, state="unknown"))
    return refusal


def _over_capacity(state: State, allocation_unit: AllocationUnit) -> Refusal | None:
    problem = state.problem
    gang = problem.gangs[allocation_unit.gang]
    request = least_charge_of(problem, allocation_unit.pods)
    blocker = over_limit(problem.queues, state.allocated, gang.queue, request)
    if blocker is not None:
        message = over_limit_message(problem.queues, state.allocated, gang.queue, request)
        return refused_by_queue(state, gang, request, Reason.OVER_LIMIT, message, blocker)
    if not gang.gang.preemptible:
        blocker = over_quota(problem.queues, state.allocated_fixed, gang.queue, request)
        if blocker is not None:
            gpus = sum(problem.least_charges[pod][GPU] / MILLI for pod in allocation_unit.pods)
            message = over_quota_message(problem.queues, state.allocated_fixed, gang.queue, request, gpus)
            return refused_by_queue(state, gang, request, Reason.NON_PREEMPTIBLE_OVER_QUOTA, message, blocker)
    for rule in state.refusing:
        refused = rule.refuses(allocation_unit.gang, allocation_unit.pods)
        if refused is not None:
            error = FitError(refused.reason.value, (refused.message,))
            blocker = refused.blocker
            return proven(refused.reason, refused.message, blocker.kind, blocker, fit_errors=(error,))
    return None


def costs_too_much(state: State, allocation_unit: AllocationUnit) -> Refusal | None:
    """Refusal where a request by GPU memory landed on smaller devices, and costs more than its queue may pay."""
    problem = state.problem
    if not any(problem.pods[pod].gpu.memory_mib for pod in allocation_unit.pods):
        return None
    passed = passed_cap(state, problem.gangs[allocation_unit.gang], (GPU,))
    if passed is None:
        return None
    return over_cap_where_room_is(state, *passed)


def passed_cap(state: State, gang: GangShape, resources: Iterable[int]) -> tuple[Reason, int] | None:
    """Which queue holds more than its limit, or than its quota for non-preemptible work, now that ``gang`` is in."""
    tree, asked = state.problem.queues, tuple(resources)
    queue = exceeded(tree, tree.limits, state.allocated, gang.queue, asked)
    if queue is not None:
        return Reason.OVER_LIMIT, queue
    queue = None if gang.gang.preemptible else exceeded(tree, tree.quotas, state.allocated_fixed, gang.queue, asked)
    return None if queue is None else (Reason.NON_PREEMPTIBLE_OVER_QUOTA, queue)


def within_limits(state: State, leaf: int) -> bool:
    """False where a queue holds more than its limit of something that came to it, or that it holds more of than before.

    What it held above its limit before the cycle may stay, but nothing comes beside it (docs/kai-behaviour.md#limits,
    #quota).
    """
    if not all(rule.keeps_caps() for rule in state.rules):
        return False
    problem, tree = state.problem, state.problem.queues
    for queue in tree.path[leaf]:
        before = problem.allocated[queue]
        for resource, (cap, held) in enumerate(zip(tree.limits[queue], state.allocated[queue], strict=True)):
            is_over = cap != UNLIMITED and held > cap
            if is_over and (held > before[resource] or _has_come(state, queue, resource)):
                return False
    return True


def _has_come(state: State, queue: int, resource: int) -> bool:
    """Whether a pod below ``queue`` asks for the resource that did not run before the cycle. Moved pods did."""
    problem = state.problem
    return any(
        place.charge[resource] > 0 and queue in problem.queues.path[problem.gangs[problem.pod_gang[pod]].queue]
        for pod, place in state.places.items()
        if pod not in state.gone
    )
