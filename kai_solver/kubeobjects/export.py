"""A snapshot as Kubernetes objects: what `snapshot_from_objects` reads, as KAI and kubectl would show it."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from kai_solver.claims import raised
from kai_solver.domain import (
    DisruptionBudget,
    Gang,
    Node,
    PodSet,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    stated_for,
)
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.domains import write_rules
from kai_solver.kubeobjects.exportclaims import claim_objects
from kai_solver.kubeobjects.exportpods import binding_object, pod_object
from kai_solver.kubeobjects.exportzones import zones_object
from kai_solver.kubeobjects.objects import RawObjects
from kai_solver.kubeobjects.placements import write_placement
from kai_solver.kubeobjects.quantities import quantities
from kai_solver.kubeobjects.raw import format_time
from kai_solver.kubeobjects.rulesettings import write_rule_settings
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.links import TOPOLOGY_ANNOTATION
from kai_solver.units import GPU, MILLI, QUEUE_RESOURCES, UNLIMITED, ResourceSchema

Written = dict[str, Any]

_SCALE = {"cpu": 1.0, "memory": 1e6, "gpu": 1e3}


def objects_from_snapshot(snapshot: Snapshot, settings: KubeSettings | None = None) -> RawObjects:
    """Write a snapshot as objects; reading them again gives a snapshot that equals it for a scheduler.

    What Kubernetes has no field for (devices, past usage, why a pod is blocked) is in annotations of ours. Labels
    that the objects need are added; the policy goes into ``schedulerParams`` (`export_kai_snapshot`).

    Parameters
    ----------
    settings
        Names of labels, of the scheduler and of the GPU resource; KAI's where None.
    """
    settings = settings or KubeSettings()
    snapshot = raised(snapshot)
    gangs = [(gang, pod) for gang in snapshot.gangs for pod in gang.pods]
    ours = [pod_object(pod, gang, snapshot, settings) for gang, pod in gangs]
    others = [pod_object(pod, None, snapshot, settings) for pod in snapshot.foreign]
    bindings = [binding_object(pod) for _, pod in gangs] + [binding_object(pod) for pod in snapshot.foreign]
    written = RawObjects(
        pods=(*ours, *others),
        nodes=tuple(_node(node, snapshot, settings) for node in snapshot.nodes),
        queues=tuple(_queue(queue, settings) for queue in snapshot.queues),
        pod_groups=tuple(_pod_group(gang, settings) for gang in snapshot.gangs),
        bind_requests=tuple(binding for binding in bindings if binding),
        priority_classes=tuple(_priority_classes(snapshot)),
        topologies=tuple(_topology(topology) for topology in snapshot.topologies),
        node_resource_topologies=tuple(
            zones_object(node.name, node.numa, snapshot.schema, settings)
            for node in snapshot.nodes
            if node.numa is not None
        ),
        disruption_budgets=tuple(map(_budget, snapshot.budgets)),
    )
    return replace(written, **claim_objects(snapshot.claims, settings))


def _budget(budget: DisruptionBudget) -> Written:
    expressions = [{"key": r.key, "operator": r.operator, "values": list(r.values)} for r in budget.selector]
    policy = "AlwaysAllow" if budget.spares_unready else "IfHealthyBudget"
    return {
        "metadata": {"name": budget.name, "namespace": budget.namespace},
        "spec": {"selector": {"matchExpressions": expressions}, "unhealthyPodEvictionPolicy": policy},
        "status": {"disruptionsAllowed": budget.allowed},
    }


def _node(node: Node, snapshot: Snapshot, settings: KubeSettings) -> Written:
    labels = dict(node.labels)
    if node.gpu_memory_mib:
        labels.setdefault(names.GPU_MEMORY_LABEL, str(node.gpu_memory_mib))
    taints = [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in node.taints]
    allocatable, capacity = (quantities(a, settings.policy.gpu_resources) for a in _amounts(node, snapshot.schema))
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": format_time(snapshot.now_s)}
    return {
        "metadata": {
            "name": node.name,
            "labels": _pooled(labels, settings),
            "annotations": _node_annotations(node),
        },
        "spec": {"taints": taints, "unschedulable": not node.schedulable},
        "status": {"allocatable": allocatable, "capacity": capacity, "conditions": [ready]},
    }


def _node_annotations(node: Node) -> dict[str, str]:
    annotations = {names.OWN_GPU_UUIDS: ",".join(node.gpu_uuids)} if node.gpu_uuids else {}
    if node.gpu_topology:
        annotations[TOPOLOGY_ANNOTATION] = node.gpu_topology
    if node.drain_at_s is not None:
        annotations[names.OWN_DRAIN_AT] = format_time(node.drain_at_s)
    return annotations


def _amounts(node: Node, schema: ResourceSchema) -> tuple[dict[str, int], dict[str, int]]:
    """What may be had of a node, and what it has: failed GPUs too."""
    amounts = schema.mapping(node.allocatable)
    return amounts, {**amounts, "gpu": max(node.gpus * MILLI, node.allocatable[GPU])}


def _queue(queue: Queue, settings: KubeSettings) -> Written:
    resources = {
        name: {
            "quota": _amount(queue.quota[index], _SCALE[name]),
            "limit": _amount(queue.limit[index], _SCALE[name]),
            "overQuotaWeight": queue.weight[index],
        }
        for index, name in enumerate(QUEUE_RESOURCES)
    }
    spec: Written = {"priority": queue.priority, "resources": resources}
    optional = {
        "parentQueue": queue.parent,
        "displayName": queue.display_name,
        "reclaimMinRuntime": _duration(queue.reclaim_min_runtime_s),
        "preemptMinRuntime": _duration(queue.preempt_min_runtime_s),
    }
    spec |= {key: value for key, value in optional.items() if value}
    metadata = {
        "name": queue.name,
        "uid": queue.uid,
        "creationTimestamp": format_time(queue.created_s),
        "labels": _pooled({}, settings),
        "annotations": write_placement(queue.placement)
        | write_rule_settings(queue.rules)
        | ({names.OWN_USAGE: ",".join(map(repr, queue.usage))} if any(queue.usage) else {}),
    }
    return {"metadata": metadata, "spec": spec}


def _amount(amount: int, scale: float) -> float:
    return UNLIMITED if amount == UNLIMITED else amount / scale


def _pod_group(gang: Gang, settings: KubeSettings) -> Written:
    times = {
        names.LAST_START: gang.last_start_s,
        names.LAST_EVICTION: gang.last_eviction_s,
        names.STALE_SINCE: gang.stale_since_s,
    }
    annotations = {name: format_time(moment) for name, moment in times.items() if moment is not None}
    annotations |= write_placement(gang.placement)
    if gang.may_use_spares:
        annotations[names.OWN_MAY_USE_SPARES] = "true"
    if gang.workload:
        annotations[names.OWN_WORKLOAD] = gang.workload
    if gang.set_aside:
        annotations[names.OWN_SET_ASIDE] = gang.set_aside
    spec: Written = {
        "queue": gang.queue,
        "priorityClassName": _class_name(gang),
        "preemptibility": "preemptible" if gang.preemptible else "non-preemptible",
        "preemptionDelay": _duration(gang.preemption_delay_s),
        **_tree(stated_for(gang.root, gang.pods)),
    }
    if gang.staleness_grace_s is not None:
        spec["stalenessGracePeriod"] = _duration(gang.staleness_grace_s)
    metadata = {
        "name": gang.name,
        "namespace": gang.namespace,
        "uid": gang.uid,
        "creationTimestamp": format_time(gang.created_s),
        "labels": _pooled({}, settings),
        "annotations": annotations,
    }
    return {"metadata": metadata, "spec": spec}


def _tree(root: SubGroup) -> Written:
    """Shape of a gang; one podset named ``default`` and nothing else is what KAI calls a gang without subgroups."""
    only = root.children[0] if len(root.children) == 1 else None
    flat = isinstance(only, PodSet) and only.name == "default" and only.topology is None and root.min_subgroups is None
    spec = _topology_field(root.topology)
    if flat and isinstance(only, PodSet):
        return {**spec, "minMember": only.min_member}
    if root.min_subgroups is not None:
        spec["minSubGroup"] = root.min_subgroups
    return {**spec, "subGroups": list(_parts(root, ""))}


def _parts(group: SubGroup, parent: str) -> Iterator[Written]:
    for child in group.children:
        part: Written = {"name": child.name, **({"parent": parent} if parent else {})}
        part |= _topology_field(child.topology)
        if isinstance(child, PodSet):
            yield {**part, "minMember": child.min_member}
        else:
            yield part if child.min_subgroups is None else {**part, "minSubGroup": child.min_subgroups}
            yield from _parts(child, child.name)


def _topology_field(constraint: TopologyConstraint | None) -> Written:
    if constraint is None:
        return {}
    fields = {"requiredTopologyLevel": constraint.required, "preferredTopologyLevel": constraint.preferred}
    return {"topologyConstraint": {"topology": constraint.topology, **fields}}


def _priority_classes(snapshot: Snapshot) -> Iterator[Written]:
    for name, gang in sorted({_class_name(gang): gang for gang in snapshot.gangs}.items()):
        policy = "Never" if gang.never_preempts else "PreemptLowerPriority"
        yield {"metadata": {"name": name}, "value": gang.priority, "preemptionPolicy": policy}


def _class_name(gang: Gang) -> str:
    """A class per value, since a gang remembers the value only."""
    return f"priority-{gang.priority}" + "-never" * gang.never_preempts


def _topology(topology: Topology) -> Written:
    levels = [{"nodeLabel": level.node_label, "alias": level.alias} for level in topology.levels]
    written = [{key: value for key, value in level.items() if value} for level in levels]
    rules = write_rules(topology)
    metadata: Written = {"name": topology.name} | ({"annotations": rules} if rules else {})
    return {"metadata": metadata, "spec": {"levels": written}}


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds:.9f}".rstrip("0").rstrip(".") + "s"


def _pooled(labels: dict[str, str], settings: KubeSettings) -> dict[str, str]:
    return {**labels, settings.node_pool_key: settings.node_pool} if settings.node_pool else labels
