"""Knative: the pods of one revision (docs/kai-behaviour.md#kinds)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member, named_after
from kai_solver.kubeobjects.grouping.read import natural

GROUP = "serving.knative.dev"
REVISION = "serving.knative.dev/revision"
MIN_SCALE = "autoscaling.knative.dev/min-scale"


class KnativeGrouper:
    """One gang per revision: ``min-scale`` pods at once, one where it says nothing or no number.

    Revisions that KAI grouped pod by pod in earlier versions keep their PodGroups: their pods name them.
    """

    name = "knative"
    priority = 550
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Pods below a Revision, also where only their label names it."""
        revision = member.owner_of_kind("Revision")
        if revision is not None and revision.group == GROUP:
            return named_after(revision.name, revision.uid, revision.kind)
        label = member.pod.labels.get(REVISION)
        return named_after(label, "", "Revision") if label and member.is_known_by_labels else None

    def group(self, members: Sequence[Member]) -> Group:
        """The revision's minimum, with the priority of inference."""
        stated = natural(members[0].stated(MIN_SCALE))
        return Group(min_member=1 if stated is None else stated, priority_class="inference")
