"""Queues: how much their work may use."""

from dataclasses import dataclass

from kai_solver.domain.placement import NO_PLACEMENT, Placement
from kai_solver.units import UNLIMITED

QueueVector = tuple[int, int, int]
"""(cpu milli, memory bytes, gpu milli); -1 is unlimited where the field allows it."""

DEFAULT_QUEUE_PRIORITY = 100


@dataclass(frozen=True, slots=True)
class Queue:
    """A queue; only leaves hold gangs (``queues.scheduling.run.ai/v2``).

    Attributes
    ----------
    quota
        Deserved amount, always granted first; -1 unlimited.
    limit
        Hard cap at this queue for itself and all below it; -1 none, **0 nothing allowed**.
    weight
        Over-quota weight per resource, for the division of what is left over; 0 none.
    reclaim_min_runtime_s, preempt_min_runtime_s
        Protection of victims after their start; None inherits.
    usage
        Past usage per resource as a share of capacity (time-based fair share); zeros when unknown.
    placement
        For the workloads of this queue and of those below it that do not say otherwise.
    rules
        Settings of optional rules, by the rule's name.
    """

    name: str
    parent: str = ""
    priority: int = DEFAULT_QUEUE_PRIORITY
    created_s: float = 0.0
    quota: QueueVector = (0, 0, 0)
    limit: QueueVector = (UNLIMITED, UNLIMITED, UNLIMITED)
    weight: tuple[float, float, float] = (0.0, 0.0, 0.0)
    reclaim_min_runtime_s: float | None = None
    preempt_min_runtime_s: float | None = None
    usage: tuple[float, float, float] = (0.0, 0.0, 0.0)
    placement: Placement = NO_PLACEMENT
    rules: tuple[tuple[str, str], ...] = ()
    display_name: str = ""
    uid: str = ""

    @property
    def title(self) -> str:
        """The name used in messages: the display name where there is one."""
        return self.display_name or self.name
