"""Deployments: every replica is a gang of its own, with the priority of inference (docs/kai-behaviour.md#kinds)."""

from collections.abc import Sequence

from kai_solver.kubeobjects.grouping.model import Group, Member, named_after

_MADE_BY_DEPLOYMENT = "pod-template-hash"


class DeploymentGrouper:
    """Replicas serve alone, so none waits for another."""

    name = "deployment"
    priority = 500

    def claim(self, member: Member) -> str | None:
        """Pods of Deployments, also where only their ReplicaSet is known."""
        top = member.top
        if top is None:
            return None
        by_hash = top.is_a("apps", "ReplicaSet") and _MADE_BY_DEPLOYMENT in member.pod.labels
        if top.is_a("apps", "Deployment") or by_hash:
            return named_after(member.pod.name, member.pod.uid, "Pod")
        return None

    def group(self, members: Sequence[Member]) -> Group:
        """One pod, and the name of the Deployment that its likes are of too."""
        pod, top = members[0].pod, members[0].top
        name = top.name.removesuffix(f"-{pod.labels.get(_MADE_BY_DEPLOYMENT, '')}") if top else ""
        return Group(min_member=1, priority_class="inference", workload=name)
