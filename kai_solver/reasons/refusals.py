"""Refusals by rule, with KAI's texts: a queue's limit or quota, and the preemption delay.

Source: docs/kai-behaviour.md#limits, #quota, #preemption-delay.
"""

from kai_solver.domain import Blocker, FitError, QueueDetails, QueueVector, Reason
from kai_solver.fairness import capping_queue
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.eligibility import delay_remaining_s
from kai_solver.planstate.outcome import Refusal, proven
from kai_solver.planstate.state import State
from kai_solver.problem import GangShape, Problem
from kai_solver.problem.charges import Charge
from kai_solver.reasons.max_node import beyond_largest, short_of_largest
from kai_solver.units import go_duration, rfc3339


def refused_by_queue(
    state: State, gang: GangShape, request: Charge, reason: Reason, message: str, blocker: Blocker
) -> Refusal:
    """A limit or quota refuses ``request``: the text, and the queue's numbers at this moment."""
    method = "limit" if reason is Reason.OVER_LIMIT else "quota"
    error = FitError(reason.value, (message,), queue=_details(state, gang, request, reason))
    return proven(reason, message, method, blocker, fit_errors=(error,))


def _details(state: State, gang: GangShape, request: Charge, reason: Reason) -> QueueDetails:
    problem, tree = state.problem, state.problem.queues
    over_limit = reason is Reason.OVER_LIMIT
    caps, used = (tree.limits, state.allocated) if over_limit else (tree.quotas, state.allocated_fixed)
    found = capping_queue(tree, caps, used, gang.queue, request)
    queue = gang.queue if found is None else found
    return QueueDetails(
        name=tree.names[queue],
        requested=_vector(problem.request[queue].tolist()),
        deserved=tree.quotas[queue],
        allocated=_vector(state.allocated[queue]),
        allocated_fixed=_vector(state.allocated_fixed[queue]),
        limits=tree.limits[queue],
        gang_requested=request,
        gang_fixed=(0, 0, 0) if gang.gang.preemptible else request,
    )


def _vector(amounts: list[int]) -> QueueVector:
    cpu, memory, gpu = amounts
    return cpu, memory, gpu


class LargestNode:
    """Refuses chunks with a pod larger than every node: no eviction helps. Shapes are asked once.

    Source: docs/kai-behaviour.md#invariant-prefilter.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._texts: dict[int, str] = {}

    def refuses(self, chunk: AllocationUnit) -> Refusal | None:
        """The refusal of ``chunk``; None where every pod of it fits some node that is empty."""
        shapes = self._problem.pod_shape
        position = next((i for i, pod in enumerate(chunk.pods) if self._text(shapes[pod])), None)
        if position is None:
            return None
        name = f"{{pod:{position}}}"
        text = self._text(shapes[chunk.pods[position]]).replace("{pod}", name)
        line = f"Resources were not found for pod {name} due to: {text}"
        error = FitError(Reason.POD_SCHEDULING_ERRORS.value, (line,))
        head, _, most = text.partition(". ")
        resource, short = short_of_largest(self._problem, self._problem.shapes.shapes[shapes[chunk.pods[position]]])
        need, have = head.partition(" requires ")[2], most[0].lower() + most[1:]
        blocker = Blocker("rule", "largest node", need, have, resource=resource, short=short)
        return proven(Reason.NOT_ENOUGH_RESOURCES, line, "size", blocker, fit_errors=(error,))

    def _text(self, shape: int) -> str:
        found = self._texts.get(shape)
        if found is None:
            found = beyond_largest(self._problem, self._problem.shapes.shapes[shape], "{pod}")
            self._texts[shape] = found
        return found


def within_delay(problem: Problem, gang: GangShape) -> Refusal | None:
    """The refusal while the gang may not yet cause evictions; None once it may."""
    left_s = delay_remaining_s(problem, gang)
    if left_s <= 0:
        return None
    text = (
        f"Workload is within its preemption delay window ({go_duration(gang.gang.preemption_delay_s)}) and may not "
        f"trigger evictions before {rfc3339(problem.snapshot.now_s + left_s)}"
    )
    error = FitError(Reason.PREEMPTION_DELAY.value, (text,))
    return proven(Reason.PREEMPTION_DELAY, text, "rule", fit_errors=(error,))
