"""Jobs of ``batch/v1``, those of CronJobs among them (reference 1.1, 1.7)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member, named_after
from kai_solver.kubeobjects.grouping.read import stated_minimum


class JobGrouper:
    """One gang per Job: one pod at a time, or ``kai.scheduler/batch-min-member`` at once."""

    name = "job"
    priority = 400

    def claim(self, member: Member) -> str | None:
        """Pods whose top owner is a Job."""
        top = member.top
        return named_after(top.name, top.uid, top.kind) if top and top.is_a("batch", "Job") else None

    def group(self, members: Sequence[Member]) -> Group:
        """The minimum that the Job states, its pods where the Job itself is not there; else 1.

        Raises
        ------
        InputError
            The minimum is no positive number. KAI's pod grouper refuses such a Job too.
        """
        top = members[0].top
        annotations = top.annotations if top and top.raw else members[0].pod.annotations
        return Group(min_member=stated_minimum(annotations) or 1)
