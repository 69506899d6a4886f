"""What a gang takes over from its owners and pods: queue, priority, topology, delays (docs/kai-behaviour.md#kinds)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping.model import Group, Member, Part
from kai_solver.kubeobjects.kinddefaults import KindDefault, default_of
from kai_solver.kubeobjects.owners import Owner
from kai_solver.kubeobjects.raw import format_time
from kai_solver.kubeobjects.settings import KubeSettings


@dataclass(frozen=True, slots=True)
class QueueChoice:
    """The queue of a gang, in words what named it, and whether nothing did.

    ``is_stated``: by objects of the workload, not by its namespace.
    """

    queue: str
    source: str
    is_fallback: bool = False
    is_stated: bool = True


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What groups need to know beside their pods.

    ``namespace_labels`` by namespace; ``namespace_queues``: queues that belong to the namespace of their name;
    ``classes``: the priority classes that there are.
    """

    settings: KubeSettings
    namespace_labels: Mapping[str, Mapping[str, str]]
    namespace_queues: frozenset[str] = frozenset()
    classes: frozenset[str] = frozenset()


def choose_queue(members: Sequence[Member], around: Surroundings) -> QueueChoice:
    """Owner's label, pod's label, label ``project``, the namespace, the default queue: the first that is there."""
    key, pool = around.settings.queue_label_key, around.settings.node_pool
    first = members[0]
    by_owner = _queue_of(first.speaking, key)
    by_pods = next((member.pod.labels[key] for member in members if member.pod.labels.get(key)), "")
    labelled = by_owner or (QueueChoice(by_pods, f"label {key} of the pods") if by_pods else None)
    labelled = labelled or _queue_of(first.fallbacks, key)
    if labelled is not None:
        return labelled
    project = _stated(members, names.PROJECT)
    if project:
        return QueueChoice(_queue_of_project(project, pool), f"label {names.PROJECT}")
    namespace = members[0].pod.namespace
    by_namespace = around.namespace_labels.get(namespace, {}).get(key)
    if by_namespace:
        return QueueChoice(by_namespace, f"label {key} of namespace {namespace}", is_stated=False)
    if namespace in around.namespace_queues:
        return QueueChoice(namespace, f"the quota of namespace {namespace}", is_stated=False)
    return QueueChoice(around.settings.default_queue, "no object names one", is_fallback=True, is_stated=False)


def is_queue_judged(choice: QueueChoice, members: Sequence[Member], settings: KubeSettings) -> bool:
    """Whether admission, which sees no owners, saw the queue: a pod names it, or the workload names none."""
    named = (queue_of_pod(member.pod.labels, member.pod.annotations, settings) for member in members)
    return not choice.is_stated or choice.queue in named


def are_spares_judged(members: Sequence[Member]) -> bool:
    """The same of the wish for spare nodes."""
    wanted = members[0].stated(names.OWN_MAY_USE_SPARES) == "true"
    return not wanted or any(wants_spares(member.pod.labels, member.pod.annotations) for member in members)


def wants_spares(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    """Whether a pod itself asks for spare nodes."""
    key = names.OWN_MAY_USE_SPARES
    return "true" in (labels.get(key), annotations.get(key))


def queue_of_pod(labels: Mapping[str, str], annotations: Mapping[str, str], settings: KubeSettings) -> str:
    """What a pod itself says of its queue, for whichever node pool it is, in the order of `choose_queue`."""
    key = settings.node_pool_key
    project = labels.get(names.PROJECT) or annotations.get(names.PROJECT) or ""
    pool = labels.get(key) or annotations.get(key) or ""
    return labels.get(settings.queue_label_key) or (_queue_of_project(project, pool) if project else "")


def _queue_of_project(project: str, pool: str) -> str:
    return f"{project}-{pool}" if pool else project


def _queue_of(owners: tuple[Owner, ...], key: str) -> QueueChoice | None:
    found = next((owner for owner in owners if owner.labels.get(key)), None)
    return None if found is None else QueueChoice(found.labels[key], f"label {key} of {found.kind} {found.name}")


def pod_group_object(
    name: str, group: Group, members: Sequence[Member], queue: str, around: Surroundings
) -> dict[str, Any]:
    """The PodGroup that KAI's pod grouper would write for these pods."""
    first, settings = members[0], around.settings
    default = _kind_default(first, settings)
    copied = (
        names.PREEMPTION_DELAY,
        names.STALENESS_GRACE,
        *names.PLACEMENT,
        names.OWN_WORKLOAD,
        names.OWN_MAY_USE_SPARES,
    )
    annotations = {key: first.stated(key) for key in copied}
    annotations[names.OWN_WORKLOAD] = annotations[names.OWN_WORKLOAD] or group.workload
    annotations[names.OWN_SET_ASIDE] = group.problem
    said = first.stated_by_owner if group.templates_speak_for_parts else first.stated
    metadata = {
        "name": name,
        "namespace": first.pod.namespace,
        "uid": first.top.uid if first.top else first.pod.uid,
        "creationTimestamp": format_time(min(member.pod.order[1] for member in members)),
        "labels": _labels(first, settings),
        "annotations": {key: value for key, value in annotations.items() if value},
    }
    levels = said(names.TOPOLOGY), said(names.TOPOLOGY_REQUIRED), said(names.TOPOLOGY_PREFERRED)
    spec = {
        "queue": queue,
        "priorityClassName": _priority_class(group, members, default.priority_class, around),
        "preemptibility": _stated(members, names.PREEMPTIBILITY) or default.preemptibility,
        "topologyConstraint": _topology(*(group.topology if any(group.topology[1:]) else levels)),
        **_shape(group, first),
    }
    return {"metadata": metadata, "spec": spec}


def _labels(first: Member, settings: KubeSettings) -> dict[str, str]:
    """All of the top owner, so that ``kubectl get podgroups -l`` finds the same as with KAI; the node pool is ours."""
    stated = first.pod.labels if first.top is None else first.top.labels
    user = {names.USER: first.pod.labels[names.USER]} if names.USER in first.pod.labels else {}
    labels = {name: value for name, value in (user | stated).items() if name != settings.node_pool_key}
    return labels | ({settings.node_pool_key: settings.node_pool} if settings.node_pool else {})


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


def _kind_default(member: Member, settings: KubeSettings) -> KindDefault:
    """Of an owner above the one that the gang is grouped by, else of that one."""
    kinds = [(owner.kind, owner.group) for owner in member.above]
    kinds.append((member.top.kind, member.top.group) if member.top else ("Pod", ""))
    found = [default_of(kind, group, settings.kind_defaults) for kind, group in kinds]
    return KindDefault(
        *kinds[-1],
        next((default.priority_class for default in found if default.priority_class), ""),
        next((default.preemptibility for default in found if default.preemptibility), ""),
    )


def _priority_class(group: Group, members: Sequence[Member], of_kind: str, around: Surroundings) -> str:
    """Stated by the workload, by a label, by the pod's own class; else as set for the kind, else as it has (1.3).

    As in KAI, a class that does not exist counts as not stated.
    """
    of_pod = members[0].pod.raw.text("spec.priorityClassName")
    stated = (group.own_priority_class, _stated(members, names.PRIORITY_CLASS), of_pod, of_kind)
    known = (name for name in stated if name in around.classes)
    return next(known, "") or group.priority_class or around.settings.default_priority_class


def _stated(members: Sequence[Member], name: str) -> str:
    return next((value for value in (member.stated(name) for member in members) if value), "")
