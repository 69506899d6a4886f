"""Gangs by label: ``kai.nvidia.com/job-id``, ``job-size``, ``job-index``."""

from collections.abc import Sequence

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member
from kai_solver.kubeobjects.grouping.read import positive


class JobIdGrouper:
    """Pods of one namespace with one job-id; they wait until job-size of them are there.

    The index does not matter: replicas of one template carry the same one.
    """

    name = "job-id"
    priority = 1000

    def claim(self, member: Member) -> str | None:
        """Pods with the label, whatever their owners."""
        return member.pod.labels.get(names.JOB_ID) or None

    def group(self, members: Sequence[Member]) -> Group:
        """``job-size`` pods at once; all that are there where no size is stated; set aside where two are."""
        stated = sorted(
            {member.pod.labels[names.JOB_SIZE] for member in members if names.JOB_SIZE in member.pod.labels}
        )
        if not stated:
            return Group(min_member=len(members))
        size = positive(stated[0])
        if len(stated) > 1:
            return Group(problem=f"its pods state different job sizes: {', '.join(stated)}. Give all of them one size")
        if size is None:
            return Group(problem=f"the job size {stated[0]!r} is not a positive whole number. Correct {names.JOB_SIZE}")
        return Group(min_member=size)
