"""Spark applications: driver and executors of one selector (docs/kai-behaviour.md#kinds)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member

_APP_NAME = "spark-app-name"
_SELECTOR = "spark-app-selector"


class SparkGrouper:
    """One gang per application, one pod at a time."""

    name = "spark"
    priority = 900

    def claim(self, member: Member) -> str | None:
        """Pods with both of Spark's labels; the selector is the gang's name.

        As in KAI only where a driver alone made them: what Spark's operator makes goes by its SparkApplication.
        """
        labels = member.pod.labels
        if not labels.get(_APP_NAME) or not member.is_known_by_labels:
            return None
        return labels.get(_SELECTOR) or None

    def group(self, members: Sequence[Member]) -> Group:  # noqa: ARG002  (the shape is the same for all)
        """At least one pod."""
        return Group(min_member=1)
