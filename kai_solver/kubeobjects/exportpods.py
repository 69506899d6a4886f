"""Pods as Kubernetes objects."""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from itertools import product
from math import prod
from typing import Any

from kai_solver.domain import (
    USUAL_GRACE_S,
    Constraints,
    Gang,
    NodeTerm,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Requirement,
    Snapshot,
    SpreadConstraint,
)
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.exportclaims import pod_claims
from kai_solver.kubeobjects.exportzones import container_lists, placement_text
from kai_solver.kubeobjects.gpus import group_labels
from kai_solver.kubeobjects.pods import is_lead
from kai_solver.kubeobjects.quantities import quantities
from kai_solver.kubeobjects.raw import format_time
from kai_solver.kubeobjects.selectors import NOTHING, equality_term
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.kubeobjects.volumes import missing_claims
from kai_solver.links import ROW_ANNOTATION
from kai_solver.units import MILLI

Written = dict[str, Any]
NodeEntry = tuple[NodeTerm, ...]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_FOREIGN_SCHEDULER = "default-scheduler"
_BEFORE_RUNNING = (PodStatus.PENDING, PodStatus.GATED, PodStatus.BINDING, PodStatus.BOUND)
_LEAVING = (PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING)
_MOST_TERMS = 10_000
_STUCK_FOR_S = 1.0
"""Beyond the threshold, so that a stuck pod is read as one again."""


def pod_object(pod: Pod, gang: Gang | None, snapshot: Snapshot, settings: KubeSettings) -> Written:
    """One pod; without a gang it belongs to another scheduler."""
    priority, created_s, uid = pod.order
    labels = dict(pod.labels)
    annotations = _annotations(pod, gang)
    if pod.zones:
        annotations[names.NUMA_OBSERVED] = placement_text(pod.zones, settings.policy.gpu_resources)
    if gang is not None:
        labels |= {names.SUBGROUP: pod.podset} if pod.podset != "default" else {}
        if priority and names.TASK_PRIORITY not in labels and not is_lead(labels):
            labels[names.TASK_PRIORITY] = str(-priority)
    if pod.status is not PodStatus.BINDING:
        labels |= group_labels(pod.gpu_groups)
    metadata: Written = {
        "name": pod.name,
        "namespace": pod.namespace,
        "uid": uid,
        "creationTimestamp": format_time(created_s),
        "labels": labels,
        "annotations": annotations,
    }
    if pod.is_replaced:
        metadata["ownerReferences"] = [_controller(pod, gang)]
    if pod.status in _LEAVING:
        metadata["deletionTimestamp"] = format_time(_deleted_s(pod, snapshot, settings))
    return {"metadata": metadata, "spec": _spec(pod, gang, snapshot, settings), "status": _status(pod)}


def _controller(pod: Pod, gang: Gang | None) -> Written:
    """The pod's controller. It is not in a snapshot, so the PodGroup represents it, or a set of its own."""
    if gang is None:
        of = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": pod.name, "uid": f"set-{pod.order[2]}"}
    else:
        of = {"apiVersion": "scheduling.run.ai/v2alpha2", "kind": "PodGroup", "name": gang.name, "uid": gang.uid}
    return of | {"controller": True}


def binding_object(pod: Pod) -> Written | None:
    """The BindRequest of a pod that is being bound; None for all others."""
    if pod.status is not PodStatus.BINDING:
        return None
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.order[2]}
    metadata = {"name": pod.name, "namespace": pod.namespace, "ownerReferences": [owner]}
    groups: Written = {"receivedResourceType": "Fraction" if pod.gpu.is_shared else "Regular"}
    groups |= {"selectedGPUGroups": list(pod.gpu_groups)} if pod.gpu_groups else {}
    return {"metadata": metadata, "spec": {"podName": pod.name, "selectedNode": pod.node, **groups}}


def _annotations(pod: Pod, gang: Gang | None) -> dict[str, str]:
    annotations = {names.POD_GROUP: gang.name} if gang else {}
    if gang and pod.node and pod.status is not PodStatus.BINDING:
        annotations[names.RECEIVED_TYPE] = "Fraction" if pod.gpu.is_shared else "Regular"
    if pod.gpu.is_shared:
        if pod.gpu.memory_mib:
            annotations[names.GPU_MEMORY] = str(pod.gpu.memory_mib)
        else:
            annotations[names.GPU_FRACTION] = str(pod.gpu.milli / MILLI)
        if pod.gpu.devices > 1:
            annotations[names.GPU_FRACTION_DEVICES] = str(pod.gpu.devices)
    if pod.gpu.row:
        annotations[ROW_ANNOTATION] = pod.gpu.row
    if pod.run_time_s is not None:
        annotations[names.OWN_RUN_TIME] = f"{pod.run_time_s:.9f}".rstrip("0").rstrip(".") + "s"
    if pod.devices:
        annotations[names.OWN_DEVICES] = ",".join(map(str, pod.devices))
    if pod.wished:
        annotations[names.OWN_WISHED] = ",".join(map(str, pod.wished))
    if pod.constraints.blocked:
        annotations[names.OWN_BLOCKED] = json.dumps(pod.constraints.blocked)
    return annotations


def _spec(pod: Pod, gang: Gang | None, snapshot: Snapshot, settings: KubeSettings) -> Written:
    amounts = {name: amount for name, amount in snapshot.schema.mapping(pod.request).items() if name != "pods"}
    if pod.gpu.is_whole:
        amounts["gpu"] = pod.gpu.devices * MILLI
    resources = quantities(amounts, settings.policy.gpu_resources)
    container: Written = {"name": "main", "resources": {"requests": resources, "limits": resources}}
    spec: Written = {
        "schedulerName": settings.scheduler_name if gang else _FOREIGN_SCHEDULER,
        "containers": [container | _ports(pod.constraints)],
        **_constraints(pod.constraints),
    }
    if pod.claims:
        spec["resourceClaims"] = pod_claims(pod)
    if missing := missing_claims(pod.constraints.blocked):
        spec["volumes"] = [
            {"name": f"missing-{index}", "persistentVolumeClaim": {"claimName": name}}
            for index, name in enumerate(missing)
        ]
    if pod.containers:
        spec |= container_lists(pod.containers, snapshot.schema, settings, _ports(pod.constraints))
    if pod.node and pod.status is not PodStatus.BINDING:
        spec["nodeName"] = pod.node
    if pod.grace_s != USUAL_GRACE_S:
        spec["terminationGracePeriodSeconds"] = math.ceil(pod.grace_s)
    if pod.status is PodStatus.GATED:
        spec["schedulingGates"] = [{"name": "gated"}]
    return spec


def _status(pod: Pod) -> Written:
    finished = pod.status in (PodStatus.SUCCEEDED, PodStatus.FAILED)
    phase = pod.status.value if finished else "Pending" if pod.status in _BEFORE_RUNNING else "Running"
    quality: Written = {"qosClass": "Guaranteed" if pod.guaranteed else "Burstable"}
    quality |= {} if pod.ready else {"conditions": [{"type": "Ready", "status": "False"}]}
    if pod.started_s is not None:
        quality["startTime"] = format_time(pod.started_s)
    return {"phase": phase, **quality, **({"nominatedNodeName": pod.nominated_node} if pod.nominated_node else {})}


def _deleted_s(pod: Pod, snapshot: Snapshot, settings: KubeSettings) -> float:
    stuck = pod.status is PodStatus.STUCK_IN_RELEASING
    return snapshot.now_s - (settings.policy.stuck_in_releasing_s + _STUCK_FOR_S if stuck else 0.0)


def _ports(constraints: Constraints) -> Written:
    ports = []
    for text in constraints.host_ports:
        number, _, rest = text.partition("/")
        protocol, _, address = rest.partition("/")
        port: Written = {"containerPort": int(number), "hostPort": int(number), "protocol": protocol or "TCP"}
        ports.append(port | ({"hostIP": address} if address else {}))
    return {"ports": ports} if ports else {}


def _constraints(constraints: Constraints) -> Written:
    affinity: Written = {}
    node: Written = {}
    selector, entries = _split_selector(constraints.node_terms)
    if entries:
        node[_REQUIRED] = {"nodeSelectorTerms": [_node_term(term) for term in _any_of(entries)]}
    if constraints.preferred:
        node[_PREFERRED] = [{"weight": w, "preference": _node_term(term)} for w, term in constraints.preferred]
    if node:
        affinity["nodeAffinity"] = node
    for kind, terms in (("podAffinity", constraints.affinity), ("podAntiAffinity", constraints.anti_affinity)):
        sign = 1 if kind == "podAffinity" else -1
        wished = [(sign * weight, term) for weight, term in constraints.preferred_pods if sign * weight > 0]
        written_terms = {_REQUIRED: [_pod_term(term) for term in terms]} if terms else {}
        if wished:
            written_terms[_PREFERRED] = [{"weight": w, "podAffinityTerm": _pod_term(term)} for w, term in wished]
        if written_terms:
            affinity[kind] = written_terms
    written: Written = {"affinity": affinity} if affinity else {}
    if selector:
        written["nodeSelector"] = selector
    if constraints.tolerations:
        written["tolerations"] = [asdict(toleration) for toleration in constraints.tolerations]
    rules = [_spread(s, "DoNotSchedule") for s in constraints.spread]
    rules += [_spread(s, "ScheduleAnyway") for s in constraints.preferred_spread]
    if rules:
        written["topologySpreadConstraints"] = rules
    return written


def _spread(spread: SpreadConstraint, otherwise: str) -> Written:
    return {
        "labelSelector": _selector(spread.selector),
        "topologyKey": spread.topology_key,
        "maxSkew": spread.max_skew,
        "whenUnsatisfiable": otherwise,
        **({"minDomains": spread.min_domains} if spread.min_domains > 1 else {}),
        **({} if spread.honours_affinity else {"nodeAffinityPolicy": "Ignore"}),
        **({"nodeTaintsPolicy": "Honor"} if spread.honours_taints else {}),
    }


def _split_selector(entries: tuple[NodeEntry, ...]) -> tuple[dict[str, str], tuple[NodeEntry, ...]]:
    """The first entry as a node selector where it is one, and the other entries."""
    if not entries or len(entries[0]) != 1:
        return {}, entries
    labels = {r.key: r.values[0] for r in entries[0][0] if r.operator == "In" and len(r.values) == 1}
    is_selector = equality_term(labels) == entries[0][0] and "metadata.name" not in labels
    return (labels, entries[1:]) if is_selector else ({}, entries)


def _any_of(entries: tuple[NodeEntry, ...]) -> list[NodeTerm]:
    """All entries must hold, one term of each: Kubernetes wants one list of which one term must hold."""
    if prod(map(len, entries)) > _MOST_TERMS:
        raise InputError("node terms cannot be written as one node affinity", cure="Use fewer alternatives")
    return [tuple(dict.fromkeys(r for term in choice for r in term)) for choice in product(*entries)]


def _node_term(term: NodeTerm) -> Written:
    expressions = [_requirement(r) for r in term if r.key != "metadata.name"]
    fields = [_requirement(r) for r in term if r.key == "metadata.name"]
    return {"matchExpressions": expressions, **({"matchFields": fields} if fields else {})}


def _pod_term(term: PodAffinityTerm) -> Written:
    written: Written = {"topologyKey": term.topology_key}
    if term.selector != NOTHING:
        written["labelSelector"] = _selector(term.selector)
    if term.namespaces == ("*",):
        return {**written, "namespaceSelector": {}}
    return {**written, **({"namespaces": list(term.namespaces)} if term.namespaces else {})}


def _selector(selector: tuple[Requirement, ...]) -> Mapping[str, Any]:
    return {"matchExpressions": [_requirement(requirement) for requirement in selector]}


def _requirement(requirement: Requirement) -> Written:
    return {"key": requirement.key, "operator": requirement.operator, "values": list(requirement.values)}
