"""Jobs of ``batch/v1``, those of CronJobs among them (docs/kai-behaviour.md#batch-minimum, #kinds)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member, named_after
from kai_solver.kubeobjects.grouping.read import natural, stated_minimum
from kai_solver.kubeobjects.grouping.segments import plan_segments, segment_of, segments
from kai_solver.kubeobjects.owners import Owner

INDEX = "batch.kubernetes.io/job-completion-index"
WORKER = "worker"


class JobGrouper:
    """One gang per Job: one pod at a time, or ``kai.scheduler/batch-min-member`` at once."""

    name = "job"
    priority = 400
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Pods whose top owner is a Job."""
        top = member.top
        return named_after(top.name, top.uid, top.kind) if top and top.is_a("batch", "Job") else None

    def group(self, members: Sequence[Member]) -> Group:
        """The minimum that the Job states, its pods where the Job itself is not there; else 1.

        Raises
        ------
        InputError
            The minimum is no positive number (KAI's pod grouper refuses such a Job too), or segments are impossible.
        """
        top = members[0].top
        annotations = top.annotations if top and top.raw else members[0].pod.annotations
        needed = stated_minimum(annotations) or 1
        return _segmented(members, top, needed) or Group(min_member=needed)


def _segmented(members: Sequence[Member], job: Owner | None, needed: int) -> Group | None:
    """Segments of an Indexed Job, where its annotations ask for them: ours, as KAI has them for PyTorchJobs."""
    if job is None or job.raw.text("spec.completionMode") != "Indexed":
        return None
    count = job.raw.count("spec.completions", 1)
    plan = plan_segments(members, job.raw.get("spec.template"), count, None)
    if plan is None:
        return None
    podsets = {member.pod.key: segment_of(plan, WORKER, _index(member)) for member in members}
    return Group(parts=segments(plan, WORKER, count, min(needed, count)), podsets=podsets)


def _index(member: Member) -> int:
    """The completion index: a label since Kubernetes 1.28, and an annotation."""
    pod = member.pod
    return natural(pod.labels.get(INDEX) or pod.annotations.get(INDEX, "")) or 0
