"""Ray: the head, and one part per worker group (docs/kai-behaviour.md#kinds)."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part, named_after
from kai_solver.kubeobjects.grouping.read import sizes
from kai_solver.kubeobjects.raw import Raw

_GROUP = "ray.io"
_PRIORITY_CLASS = "ray.io/priority-class-name"
KINDS = ("RayCluster", "RayJob", "RayService")
HEAD = "headgroup"


class RayGrouper:
    """A cluster at once: its head and the minimum of every worker group."""

    name = "ray"
    priority = 600

    def claim(self, member: Member) -> str | None:
        """Pods whose top owner is a RayCluster, RayJob or RayService.

        The Job that hands a RayJob in has no place in the cluster's parts and is a gang of its own.
        """
        top = member.top
        if top is None or not top.is_a(_GROUP, *KINDS):
            return None
        nearest = member.owners[0] if _is_submitter(member) else top
        return named_after(nearest.name, nearest.uid, nearest.kind)

    def group(self, members: Sequence[Member]) -> Group:
        """From the cluster's spec where it is there, else by the pods that are."""
        own_class = members[0].stated_by_owner(_PRIORITY_CLASS)
        if _is_submitter(members[0]):
            return Group(min_member=1, own_priority_class=own_class)
        counts = _stated(members[0]) or sizes(_part(member) for member in members)
        said = _said_by_parts(members)
        parts = tuple(_with_levels(Part(name, min_member=count), said.get(name, {})) for name, count in counts.items())
        podsets = {member.pod.key: _part(member) for member in members}
        return Group(parts=parts, podsets=podsets, templates_speak_for_parts=True, own_priority_class=own_class)


def cluster_spec(kind: str, raw: Raw) -> Raw:
    """Spec of the cluster that a Ray object runs; a job without a cluster of its own has none."""
    fields = {"RayCluster": "spec", "RayJob": "spec.rayClusterSpec", "RayService": "spec.rayClusterConfig"}
    return raw.get(fields[kind])


def worker_groups(cluster: Raw) -> dict[str, int]:
    """Pods that each worker group needs: its minimum (else its replicas) times the hosts of a replica."""
    needed = {}
    for worker in cluster.items("workerGroupSpecs"):
        least = 0 if worker.flag("suspended") else worker.count("minReplicas") or worker.count("replicas")
        needed[worker.required("groupName")] = least * worker.count("numOfHosts", 1)
    return needed


def _said_by_parts(members: Sequence[Member]) -> dict[str, Mapping[str, str]]:
    """Annotations of each part's template, as the cluster's spec has them, else as its pods do."""
    said: dict[str, Mapping[str, str]] = {_part(member): member.pod.annotations for member in reversed(members)}
    for owner in members[0].owners:
        cluster = cluster_spec(owner.kind, owner.raw) if owner.kind in KINDS else Raw(None)
        groups = [(HEAD, cluster.get("headGroupSpec"))]
        groups += [(worker.required("groupName"), worker) for worker in cluster.items("workerGroupSpecs")]
        for name, group in groups:
            said[name] = group.strings("template.metadata.annotations") or said.get(name, {})
    return said


def _with_levels(part: Part, said: Mapping[str, str]) -> Part:
    return replace(
        part,
        topology=said.get(names.TOPOLOGY, ""),
        required_level=said.get(names.TOPOLOGY_REQUIRED, ""),
        preferred_level=said.get(names.TOPOLOGY_PREFERRED, ""),
    )


def _stated(member: Member) -> dict[str, int]:
    for owner in member.owners:
        if owner.kind in KINDS and cluster_spec(owner.kind, owner.raw):
            return {HEAD: 1, **worker_groups(cluster_spec(owner.kind, owner.raw))}
    return {}


def _is_submitter(member: Member) -> bool:
    return member.owners[0].is_a("batch", "Job")


def _part(member: Member) -> str:
    labels = member.pod.labels
    return HEAD if labels.get(names.RAY_NODE_TYPE) == "head" else labels.get(names.RAY_GROUP) or "workergroup"
