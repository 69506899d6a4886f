"""Limits and quotas as the greedy asks them: before a chunk is placed, at its leaf queue and above (reference 3.14)."""

from kai_solver.domain import Reason
from kai_solver.fairness import over_limit, over_limit_message, over_quota, over_quota_message
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.outcome import Refusal
from kai_solver.greedy.refusals import refused_by_queue
from kai_solver.greedy.state import State
from kai_solver.greedy.units import least_charge_of
from kai_solver.units import GPU, MILLI


def over_capacity(state: State, chunk: Chunk) -> Refusal | None:
    """Refusal where a limit, or the quota of non-preemptible work, is passed at the leaf or above (reference 3.14).

    Limits are looked at first, as in KAI.
    """
    problem = state.problem
    gang = problem.gangs[chunk.gang]
    request = least_charge_of(problem, chunk.pods)
    blocker = over_limit(problem.queues, state.allocated, gang.queue, request)
    if blocker is not None:
        message = over_limit_message(problem.queues, state.allocated, gang.queue, request)
        return refused_by_queue(state, gang, request, Reason.OVER_LIMIT, message, blocker)
    if not gang.gang.preemptible:
        blocker = over_quota(problem.queues, state.allocated_fixed, gang.queue, request)
        if blocker is not None:
            gpus = sum(problem.least_charges[pod][GPU] / MILLI for pod in chunk.pods)
            message = over_quota_message(problem.queues, state.allocated_fixed, gang.queue, request, gpus)
            return refused_by_queue(state, gang, request, Reason.NON_PREEMPTIBLE_OVER_QUOTA, message, blocker)
    return None
