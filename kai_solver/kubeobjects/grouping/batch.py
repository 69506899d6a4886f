"""Jobs of ``batch/v1``, those of CronJobs among them (reference 1.1, 1.7)."""

from collections.abc import Sequence

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, named_after
from kai_solver.kubeobjects.grouping.read import positive


class JobGrouper:
    """One gang per Job: one pod at a time, or ``kai.scheduler/batch-min-member`` at once."""

    name = "job"
    priority = 400

    def claim(self, member: Member) -> str | None:
        """Pods whose top owner is a Job."""
        top = member.top
        return named_after(top.name, top.uid, top.kind) if top and top.kind == "Job" else None

    def group(self, members: Sequence[Member]) -> Group:
        """The stated minimum, else 1."""
        return Group(min_member=positive(members[0].stated(names.BATCH_MIN_MEMBER)) or 1)
