"""Pods without an owner, and every owner that has no family of its own (docs/kai-behaviour.md#kinds)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member, named_after

_PRIORITIES = {("egx.nvidia.io", "SPOTRequest"): "inference", ("kubeflow.org", "Notebook"): "build"}
"""Priority class by kind, where it is not that of training."""


class DefaultGrouper:
    """One gang per top owner, one pod at a time; a plain pod is a gang of its own."""

    name = "default"
    priority = 0
    heeds_status = False

    def claim(self, member: Member) -> str | None:
        """Every pod that no other family claimed."""
        top = member.top
        if top is None:
            return named_after(member.pod.name, member.pod.uid, "Pod")
        return named_after(top.name, top.uid, top.kind)

    def group(self, members: Sequence[Member]) -> Group:
        """At least one pod."""
        top = members[0].top
        kind = (top.group, top.kind) if top else ("", "Pod")
        return Group(min_member=1, priority_class=_PRIORITIES.get(kind, ""))
