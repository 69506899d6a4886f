"""A snapshot as a native document: only what is not the format's default is written."""

from dataclasses import fields
from typing import Any

from kai_solver.claims import raised
from kai_solver.domain import (
    USUAL_GRACE_S,
    Action,
    Constraints,
    DisruptionBudget,
    Gang,
    GpuRequest,
    Node,
    OneTenant,
    Placement,
    Pod,
    PodAffinityTerm,
    PodSet,
    Policy,
    Queue,
    QueueVector,
    Requirement,
    Snapshot,
    SpareNodes,
    SpreadConstraint,
    SubGroup,
    TopologyConstraint,
)
from kai_solver.instances_io.native_claims import claims_to_native, pod_claims
from kai_solver.instances_io.native_schema import FORMAT
from kai_solver.instances_io.native_zones import written_containers, written_core, written_shares, written_topology
from kai_solver.units import CPU, GPU, MEMORY, MILLI, PODS, UNLIMITED, ResourceSchema, Vector

_FIXED = 4


def native_from_snapshot(snapshot: Snapshot) -> dict[str, Any]:
    """Native document (plain JSON types) from which :func:`native.load_native` reads the same snapshot again."""
    snapshot = raised(snapshot)
    head = {"format": FORMAT, "now": snapshot.now_s} | claims_to_native(snapshot.claims)
    return head | _present(
        name=snapshot.name,
        resources=list(snapshot.schema.names[_FIXED:]),
        nodes=[_node(node, snapshot.schema) for node in snapshot.nodes],
        queues=[_queue(queue) for queue in snapshot.queues],
        topologies=[
            {"name": t.name, "levels": [_present(label=x.node_label, alias=x.alias) for x in t.levels]}
            | _given(oneTenant=_one_tenant(t.one_tenant), spares=_spares(t.spares))
            for t in snapshot.topologies
        ],
        gangs=[_gang(gang, snapshot.schema) for gang in snapshot.gangs],
        foreign=[_pod(pod, snapshot.schema) for pod in snapshot.foreign],
        disruptionBudgets=[_budget(budget) for budget in snapshot.budgets],
        refused=sorted(snapshot.refused),
        policy=_policy(snapshot.policy),
        notices=[{"kind": n.kind, "object": n.object, "text": n.text} for n in snapshot.notices],
    )


def _present(**values: Any) -> dict[str, Any]:
    """``values`` without those that are empty, zero, false or None: defaults of the format."""
    return {key: value for key, value in values.items() if value not in (None, "", 0, False, [], {}, ())}


def _core_or_unlimited(amount: int) -> int | str:
    return "unlimited" if amount == UNLIMITED else written_core(amount)


def _extended(vector: Vector, schema: ResourceSchema) -> dict[str, int]:
    return {name: amount for name, amount in zip(schema.names[_FIXED:], vector[_FIXED:], strict=True) if amount}


def _node(node: Node, schema: ResourceSchema) -> dict[str, Any]:
    document: dict[str, Any] = {
        "name": node.name,
        "cpu": written_core(node.allocatable[CPU]),
        "memory": node.allocatable[MEMORY],
        "pods": node.allocatable[PODS],
    }
    if node.allocatable[GPU] != node.gpus * MILLI:
        document["allocatableGpus"] = node.allocatable[GPU] // MILLI
    if not node.schedulable:
        document["schedulable"] = False
    if node.drain_at_s is not None:
        document["drainAt"] = node.drain_at_s
    return document | _present(
        gpus=node.gpus,
        gpuMemory=node.gpu_memory_mib,
        gpuUuids=list(node.gpu_uuids),
        resources=_extended(node.allocatable, schema),
        labels=dict(node.labels),
        taints=[_present(key=t.key, value=t.value) | {"effect": t.effect} for t in node.taints],
        numa=written_topology(node.numa, schema),
        gpuTopology=node.gpu_topology,
    )


def _queue(queue: Queue) -> dict[str, Any]:
    return {
        "name": queue.name,
        "priority": queue.priority,
        "created": queue.created_s,
        "quota": _shares(queue.quota),
        "limit": _shares(queue.limit),
        "weight": dict(zip(("cpu", "memory", "gpu"), queue.weight, strict=True)),
    } | _given(
        parent=queue.parent or None,
        usage=dict(zip(("cpu", "memory", "gpu"), queue.usage, strict=True)) if any(queue.usage) else None,
        reclaimMinRuntime=queue.reclaim_min_runtime_s,
        preemptMinRuntime=queue.preempt_min_runtime_s,
        placement=_placement(queue.placement) or None,
        rules=dict(queue.rules) or None,
        displayName=queue.display_name or None,
        uid=queue.uid or None,
    )


def _given(**values: Any) -> dict[str, Any]:
    """``values`` without None: here 0 and None differ."""
    return {key: value for key, value in values.items() if value is not None}


def _shares(vector: QueueVector) -> dict[str, int | str]:
    memory = vector[MEMORY]
    return {
        "cpu": _core_or_unlimited(vector[CPU]),
        "memory": "unlimited" if memory == UNLIMITED else memory,
        "gpu": _core_or_unlimited(vector[GPU]),
    }


def _gang(gang: Gang, schema: ResourceSchema) -> dict[str, Any]:
    return (
        {
            "name": gang.name,
            "namespace": gang.namespace,
            "queue": gang.queue,
            "priority": gang.priority,
            "preemptible": gang.preemptible,
            "created": gang.created_s,
        }
        | _tree(gang.root)
        | _present(
            neverPreempts=gang.never_preempts,
            placement=_placement(gang.placement),
            workload=gang.workload,
            mayUseSpares=gang.may_use_spares,
            setAside=gang.set_aside,
            uid=gang.uid,
        )
        | _given(
            lastStart=gang.last_start_s,
            lastEviction=gang.last_eviction_s,
            staleSince=gang.stale_since_s,
            preemptionDelay=gang.preemption_delay_s or None,
            stalenessGrace=gang.staleness_grace_s,
        )
        | {"pods": [_pod(pod, schema, gang.namespace) for pod in gang.pods]}
    )


def _placement(placement: Placement) -> dict[str, Any]:
    return _given(
        nodes=placement.nodes,
        devices=placement.devices,
        maxGpusPerNode=placement.max_gpus_per_node,
        maxPodsPerNode=placement.max_pods_per_node,
        minNodes=placement.min_nodes,
    )


def _tree(root: SubGroup) -> dict[str, Any]:
    """A gang's tree: a flat one as ``minMember``, any other as ``groups``."""
    topology = _given(topology=_constraint(root.topology))
    match root.children:
        case (PodSet(name="default", topology=None) as leaf,) if root.min_subgroups is None:
            return topology | {"minMember": leaf.min_member}
        case _:
            return topology | _given(minGroups=root.min_subgroups, groups=[_part(child) for child in root.children])


def _part(part: SubGroup | PodSet) -> dict[str, Any]:
    shared = _present(name=part.name) | _given(topology=_constraint(part.topology))
    if isinstance(part, PodSet):
        return shared | {"minMember": part.min_member}
    return shared | _given(minGroups=part.min_subgroups, groups=[_part(child) for child in part.children])


def _spares(rule: SpareNodes | None) -> dict[str, Any] | None:
    return None if rule is None else {"level": rule.level, "nodes": rule.nodes}


def _one_tenant(rule: OneTenant | None) -> dict[str, str] | None:
    return None if rule is None else {"level": rule.level, "tenant": rule.tenant}


def _constraint(constraint: TopologyConstraint | None) -> dict[str, str] | None:
    if constraint is None:
        return None
    named = {"topology": constraint.topology}
    return named | _present(required=constraint.required, preferred=constraint.preferred)


def _pod(pod: Pod, schema: ResourceSchema, namespace: str = "default") -> dict[str, Any]:
    document: dict[str, Any] = {"name": pod.name} | _gpus(pod.gpu)
    if pod.namespace != namespace:
        document["namespace"] = pod.namespace
    if pod.request[PODS] != 1:
        document["pods"] = pod.request[PODS]
    extended = _extended(pod.request, schema)
    if pod.quota_gpu_milli or extended:
        document["quotaGpus"] = pod.quota_gpu_milli / MILLI
    if pod.podset != "default":
        document["group"] = pod.podset
    if pod.status.value != "Pending":
        document["status"] = pod.status.value
    if not pod.ready:
        document["ready"] = False
    if not pod.is_replaced:
        document["replaced"] = False
    if pod.run_time_s is not None:
        document["runTime"] = pod.run_time_s
    if pod.started_s is not None:
        document["started"] = pod.started_s
    if pod.grace_s != USUAL_GRACE_S:
        document["grace"] = pod.grace_s
    if pod.order != (0, 0.0, pod.name):
        document["order"] = list(pod.order)
    return (
        document
        | _present(
            cpu=written_core(pod.request[CPU]),
            memory=pod.request[MEMORY],
            resources=extended,
            node=pod.node,
            devices=list(pod.devices),
            wishedDevices=list(pod.wished),
            gpuRow=pod.gpu.row,
            gpuGroups=list(pod.gpu_groups),
            nominatedNode=pod.nominated_node,
            labels=dict(pod.labels),
            guaranteed=pod.guaranteed,
            containers=written_containers(pod.containers, schema),
            zones=written_shares(pod.zones),
            claims=pod_claims(pod.claims, pod.namespace),
        )
        | _constraints(pod.constraints)
    )


def _gpus(gpu: GpuRequest) -> dict[str, Any]:
    if not gpu.devices:
        return {}
    if gpu.is_whole:
        return {"gpus": gpu.devices}
    amount = {"gpuMemory": gpu.memory_mib} if gpu.memory_mib else {"gpus": gpu.milli / MILLI}
    return amount if gpu.devices == 1 else amount | {"gpuDevices": gpu.devices}


def _constraints(constraints: Constraints) -> dict[str, Any]:
    return _present(
        nodeTerms=[[_term(term) for term in entry] for entry in constraints.node_terms],
        preferred=[{"weight": weight, "term": _term(term)} for weight, term in constraints.preferred],
        tolerations=[
            _present(key=t.key, value=t.value, effect=t.effect) | {"operator": t.operator}
            for t in constraints.tolerations
        ],
        affinity=[_affinity(term) for term in constraints.affinity],
        antiAffinity=[_affinity(term) for term in constraints.anti_affinity],
        spread=[_spread(s) for s in constraints.spread],
        preferredPods=[{"weight": weight, "term": _affinity(term)} for weight, term in constraints.preferred_pods],
        preferredSpread=[_spread(s) for s in constraints.preferred_spread],
        hostPorts=list(constraints.host_ports),
        blocked=list(constraints.blocked),
    )


def _term(term: tuple[Requirement, ...]) -> list[dict[str, Any]]:
    return [{"key": r.key, "operator": r.operator} | _present(values=list(r.values)) for r in term]


def _affinity(term: PodAffinityTerm) -> dict[str, Any]:
    asked = {"selector": _term(term.selector), "topologyKey": term.topology_key}
    return asked | _present(namespaces=list(term.namespaces))


def _spread(spread: SpreadConstraint) -> dict[str, Any]:
    written = {"selector": _term(spread.selector), "topologyKey": spread.topology_key, "maxSkew": spread.max_skew}
    written |= {"minDomains": spread.min_domains} if spread.min_domains > 1 else {}
    written |= {} if spread.honours_affinity else {"honoursAffinity": False}
    return written | ({"honoursTaints": True} if spread.honours_taints else {})


def _budget(budget: DisruptionBudget) -> dict[str, Any]:
    return {"name": budget.name, "namespace": budget.namespace} | _present(
        selector=_term(budget.selector), allowed=budget.allowed, sparesUnready=budget.spares_unready
    )


def _policy(policy: Policy) -> dict[str, Any]:
    """Fields of ``policy`` that are not the defaults, under the format's names."""
    default, document = Policy(), {}
    for item in fields(Policy):
        value = getattr(policy, item.name)
        if value != getattr(default, item.name):
            if item.name == "disabled_actions":
                value = [action.value for action in Action if action in value]
            first, *rest = item.name.removesuffix("_s").split("_")
            document[first + "".join(part.capitalize() for part in rest)] = value
    return document
