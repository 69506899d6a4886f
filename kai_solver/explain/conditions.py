"""What a PodGroup's ``status.schedulingConditions`` says of a gang that waits, as plain data.

Source: docs/kai-behaviour.md#conditions.
"""

from typing import Any

from kai_solver.domain import FitError, Gang, Pending, QueueDetails, QueueVector, Reason
from kai_solver.explain.events import NODE_POOL, pending_text
from kai_solver.units import MILLI


def scheduling_condition(
    gang: Gang, pending: Pending, gpu_resource: str, node_pool: str = NODE_POOL
) -> dict[str, Any] | None:
    """The condition ``UnschedulableOnNodePool``; None where KAI writes none.

    It writes none while a pod of the gang is active, and none for a gang that is not ready. ``lastTransitionTime``
    and ``transitionID`` are for whoever writes the status: they depend on what stands there.
    """
    if pending.reason is Reason.NOT_READY or any(pod.status.is_active for pod in gang.pods):
        return None
    return {
        "type": "UnschedulableOnNodePool",
        "nodePool": node_pool,
        "reason": "Unschedulable",
        "message": pending_text(pending),
        "status": "True",
        "reasons": [_explanation(error, gpu_resource) for error in pending.fit_errors],
    }


def _explanation(error: FitError, gpu_resource: str) -> dict[str, Any]:
    """``UnschedulableExplanation``."""
    entry: dict[str, Any] = {"reason": error.reason, "message": ", ".join(error.messages)}
    if error.queue is not None:
        entry["details"] = {"queueDetails": _details(error.queue, gpu_resource)}
    return entry


def _details(queue: QueueDetails, gpu_resource: str) -> dict[str, Any]:
    amounts = {
        "queueRequestedResources": queue.requested,
        "queueDeservedResources": queue.deserved,
        "queueAllocatedNonPreemptibleResources": queue.allocated_fixed,
        "podGroupRequestedResources": queue.gang_requested,
        "podGroupRequestedNonPreemptibleResources": queue.gang_fixed,
        "queueAllocatedResources": queue.allocated,
        "queueResourceLimits": queue.limits,
    }
    return {"name": queue.name} | {key: resource_list(vector, gpu_resource) for key, vector in amounts.items()}


def resource_list(amounts: QueueVector, gpu_resource: str) -> dict[str, str]:
    """Kubernetes quantities; -1 of a resource is unlimited. Parts of a GPU are in thousandths (KAI drops them)."""
    cpu, memory, gpu = amounts
    return {"cpu": _milli(cpu), "memory": str(memory), gpu_resource: _milli(gpu)}


def _milli(amount: int) -> str:
    if amount == -1:
        return "-1"
    return str(amount // MILLI) if amount % MILLI == 0 else f"{amount}m"
