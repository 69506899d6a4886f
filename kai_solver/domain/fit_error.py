"""Why a gang does not fit, in the parts from which KAI builds its messages (``api/common_info/job_errors.go``)."""

from dataclasses import dataclass

from kai_solver.domain.queues import QueueVector

NODE_GROUP = "Not enough resources for the workload"
"""Reason of the line about one topology domain."""


@dataclass(frozen=True, slots=True)
class QueueDetails:
    """A queue at the moment of a refusal: (cpu milli, memory bytes, gpu milli) each, -1 unlimited.

    Source: docs/kai-behaviour.md#reasons.

    ``gang_requested``: what the gang asked for; ``gang_fixed``: the part of it that may not be taken again.
    """

    name: str
    requested: QueueVector
    deserved: QueueVector
    allocated: QueueVector
    allocated_fixed: QueueVector
    limits: QueueVector
    gang_requested: QueueVector
    gang_fixed: QueueVector


@dataclass(frozen=True, slots=True)
class FitError:
    """One reason why a gang does not fit.

    Attributes
    ----------
    reason
        As in PodGroup ``status.schedulingConditions[].reasons[].reason``.
    messages
        Short texts, for events and conditions; ``detailed`` those of the detailed fit error where they differ.
    subgroup
        The subgroup that the line is about; empty for the gang.
    domain
        The topology domain that the line is about; empty where it is about none.
    queue
        The queue's numbers where a limit or a quota refused.
    """

    reason: str
    messages: tuple[str, ...]
    detailed: tuple[str, ...] = ()
    subgroup: str = ""
    domain: str = ""
    queue: QueueDetails | None = None
