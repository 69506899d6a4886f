"""Limits and quotas as the greedy asks them: before a chunk is placed, at its leaf queue and above (reference 3.14)."""

from kai_solver.domain import Reason
from kai_solver.fairness import over_limit, over_limit_message, over_quota, over_quota_message
from kai_solver.greedy.chunks import Chunk
from kai_solver.greedy.outcome import Refusal, proven
from kai_solver.greedy.state import State
from kai_solver.greedy.units import least_charge_of


def over_capacity(state: State, chunk: Chunk) -> Refusal | None:
    """Refusal where a limit, or the quota of non-preemptible work, is passed at the leaf or above (reference 3.14)."""
    problem = state.problem
    gang = problem.gangs[chunk.gang]
    request = least_charge_of(problem, chunk.pods)
    if not gang.gang.preemptible:
        blocker = over_quota(problem.queues, state.allocated_fixed, gang.queue, request)
        if blocker is not None:
            message = over_quota_message(problem.queues, state.allocated_fixed, gang.queue, request)
            return proven(Reason.NON_PREEMPTIBLE_OVER_QUOTA, message, "quota", blocker)
    blocker = over_limit(problem.queues, state.allocated, gang.queue, request)
    if blocker is not None:
        message = over_limit_message(problem.queues, state.allocated, gang.queue, request)
        return proven(Reason.OVER_LIMIT, message, "limit", blocker)
    return None
