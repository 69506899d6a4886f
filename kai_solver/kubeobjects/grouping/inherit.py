"""What a gang takes over from its owners and pods: queue, priority, topology, delays (reference 1.7)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part
from kai_solver.kubeobjects.kinddefaults import default_of
from kai_solver.kubeobjects.raw import format_time
from kai_solver.kubeobjects.settings import KubeSettings

_RAY_PRIORITY_CLASS = "ray.io/priority-class-name"


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queue of a gang, in words who named it, and whether nobody did."""

    queue: str
    source: str
    is_fallback: bool = False


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What groups need to know beside their pods.

    ``namespace_labels`` by namespace; ``namespace_queues``: queues that belong to the namespace of their name.
    """

    settings: KubeSettings
    namespace_labels: Mapping[str, Mapping[str, str]]
    namespace_queues: frozenset[str] = frozenset()


def choose_queue(members: Sequence[Member], around: Surroundings) -> QueueChoice:
    """Owner's label, pod's label, label ``project``, the namespace, the default queue: the first that is there."""
    key, pool = around.settings.queue_label_key, around.settings.node_pool
    for owner in reversed(members[0].owners):
        if owner.labels.get(key):
            return QueueChoice(owner.labels[key], f"label {key} of {owner.kind} {owner.name}")
    for member in members:
        if member.pod.labels.get(key):
            return QueueChoice(member.pod.labels[key], f"label {key} of the pods")
    project = _stated(members, names.PROJECT)
    if project:
        return QueueChoice(f"{project}-{pool}" if pool else project, f"label {names.PROJECT}")
    namespace = members[0].pod.namespace
    by_namespace = around.namespace_labels.get(namespace, {}).get(key)
    if by_namespace:
        return QueueChoice(by_namespace, f"label {key} of namespace {namespace}")
    if namespace in around.namespace_queues:
        return QueueChoice(namespace, f"the quota of namespace {namespace}")
    return QueueChoice(around.settings.default_queue, "nobody named one", is_fallback=True)


def pod_group_object(
    name: str, group: Group, members: Sequence[Member], queue: str, around: Surroundings
) -> dict[str, Any]:
    """The PodGroup that KAI's pod grouper would write for these pods."""
    first, settings = members[0], around.settings
    default = default_of(*_kind_of(first), settings.kind_defaults)
    labels = {settings.node_pool_key: settings.node_pool} if settings.node_pool else {}
    copied = (names.PREEMPTION_DELAY, names.STALENESS_GRACE, *names.PLACEMENT, names.OWN_WORKLOAD)
    annotations = {key: first.stated(key) for key in copied}
    annotations[names.OWN_WORKLOAD] = annotations[names.OWN_WORKLOAD] or group.workload
    annotations[names.OWN_SET_ASIDE] = group.problem
    said = first.stated_by_owner if group.templates_speak_for_parts else first.stated
    metadata = {
        "name": name,
        "namespace": first.pod.namespace,
        "uid": first.top.uid if first.top else first.pod.uid,
        "creationTimestamp": format_time(min(member.pod.order[1] for member in members)),
        "labels": labels,
        "annotations": {key: value for key, value in annotations.items() if value},
    }
    spec = {
        "queue": queue,
        "priorityClassName": _priority_class(group, members, default.priority_class, settings),
        "preemptibility": _stated(members, names.PREEMPTIBILITY) or default.preemptibility,
        "topologyConstraint": _topology(
            said(names.TOPOLOGY), said(names.TOPOLOGY_REQUIRED), said(names.TOPOLOGY_PREFERRED)
        ),
        **_shape(group, first),
    }
    return {"metadata": metadata, "spec": spec}


def _shape(group: Group, first: Member) -> dict[str, Any]:
    if not group.parts:
        return {"minMember": group.min_member}
    parts = {"subGroups": [_part(part, first) for part in group.parts]}
    return parts if group.min_subgroup is None else {"minSubGroup": group.min_subgroup, **parts}


def _part(part: Part, first: Member) -> dict[str, Any]:
    fields = {"minMember": part.min_member, "minSubGroup": part.min_subgroup, "parent": part.parent or None}
    written: dict[str, Any] = {"name": part.name} | {k: value for k, value in fields.items() if value is not None}
    if part.required_level or part.preferred_level:
        named = part.topology or first.stated(names.TOPOLOGY)
        written["topologyConstraint"] = _topology(named, part.required_level, part.preferred_level)
    return written


def _topology(name: str, required: str, preferred: str) -> dict[str, str]:
    return {"topology": name, "requiredTopologyLevel": required, "preferredTopologyLevel": preferred}


def _kind_of(member: Member) -> tuple[str, str]:
    """Kind and API group of whom the gang is made for."""
    return (member.top.kind, member.top.group) if member.top else ("Pod", "")


def _priority_class(group: Group, members: Sequence[Member], of_kind: str, settings: KubeSettings) -> str:
    """Stated by label, by Ray's label, by the pod's own class; else as set for the kind, else as it has (1.3)."""
    labelled = _stated(members, names.PRIORITY_CLASS) or _stated(members, _RAY_PRIORITY_CLASS)
    of_pod = members[0].pod.raw.text("spec.priorityClassName")
    return labelled or of_pod or of_kind or group.priority_class or settings.default_priority_class


def _stated(members: Sequence[Member], name: str) -> str:
    return next((value for value in (member.stated(name) for member in members) if value), "")
