"""The native format ``kai-solver/v1``, read into a snapshot; :mod:`native_write` is the way back."""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from kai_solver.domain import (
    DisruptionBudget,
    Gang,
    Node,
    Notice,
    OneTenant,
    Placement,
    PodSet,
    Policy,
    Queue,
    Snapshot,
    SpareNodes,
    SubGroup,
    Taint,
    Topology,
    TopologyConstraint,
    TopologyLevel,
    flat_gang,
    setting_fault,
)
from kai_solver.domain.object_limits import MOST_LEVELS
from kai_solver.errors import InputError
from kai_solver.instances_io.fields import validate
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.native_claims import ClaimReader, read_claims
from kai_solver.instances_io.native_pods import GpuPlaces, PodReader, moment_s, named_gpus, requirements
from kai_solver.instances_io.native_schema import (
    FORMAT,
    ExpectDoc,
    GangDoc,
    GroupDoc,
    InstanceDoc,
    NodeDoc,
    PlacementDoc,
    PolicyDoc,
    QueueDoc,
    SharesDoc,
    TopologyConstraintDoc,
    TopologyDoc,
    WeightsDoc,
)
from kai_solver.instances_io.native_size import check_size
from kai_solver.instances_io.native_usage import Usage, read_usage
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.instances_io.native_zones import named_resources, topology
from kai_solver.instances_io.validate import refuse_duplicates, sanitize
from kai_solver.links import check_topology
from kai_solver.units import GPU, MILLI, UNLIMITED, ResourceSchema, parse_duration_s

__all__ = ["NativeInstance", "load_native", "native_from_snapshot", "snapshot_from_native"]

_PLACE = re.compile(r"\{i(?:(//|%)([1-9]\d{0,6}))?(?::0?(\d))?\}")
_WEEK_S, _HOUR_S = 604_800.0, 3600.0


@dataclass(frozen=True, slots=True)
class NativeInstance:
    """A native file: its snapshot, and what its author expects of a plan."""

    snapshot: Snapshot
    expect: ExpectDoc | None = None
    description: str = ""


def snapshot_from_native(document: Mapping[str, Any], file: str = "") -> Snapshot:
    """Snapshot of a native document; see :func:`load_native`."""
    return load_native(document, file).snapshot


def load_native(
    document: Mapping[str, Any], file: str = "", *, now_s: float | None = None, limits: Limits = DEFAULT_LIMITS
) -> NativeInstance:
    """Read a native document.

    Parameters
    ----------
    now_s
        In place of the file's ``now``.
    limits
        Objects that it may stand for; ``count`` and ``replicas`` multiply.

    Raises
    ------
    LimitExceededError
        It stands for more objects.
    InputError
        Names the field (``gangs[3].pods[0].gpus``) and a cure.
    """
    if document.get("format") != FORMAT:
        problem = f"{document.get('format')!r} is not a version that can be read"
        raise InputError(problem, file=file, field="format", cure=f"Write {FORMAT}")
    instance = validate(InstanceDoc, document, file)
    check_size(instance, limits, file)
    try:
        snapshot = _Reader(instance, instance.now if now_s is None else now_s).snapshot()
        refuse_duplicates(snapshot)
    except InputError as error:
        raise error.in_file(file) from None
    return NativeInstance(sanitize(snapshot), instance.expect, instance.description)


class _Reader:
    """Turns one validated document into domain objects."""

    def __init__(self, instance: InstanceDoc, now_s: float) -> None:
        self._doc = instance
        self._now_s = now_s
        self._schema = _schema(instance)
        self._policy = _policy(instance.policy)
        self._node_list = tuple(
            node for place, nodes in enumerate(instance.nodes) for node in self._nodes(nodes, f"nodes[{place}]")
        )
        self._claims = ClaimReader.of(instance.resource_claim_templates)
        self._pods = PodReader(
            self._schema, self._policy, GpuPlaces.of(self._node_list, self._schema, self._policy), now_s, self._claims
        )

    def snapshot(self) -> Snapshot:
        doc = self._doc
        usage, notices = self._past_usage()
        gangs = tuple(self._gangs())
        return Snapshot(
            now_s=self._now_s,
            schema=self._schema,
            nodes=self._node_list,
            queues=tuple(self._queue(queue, index, usage) for index, queue in enumerate(doc.queues)),
            gangs=gangs,
            topologies=tuple(_topology(t, f"topologies.{t.name}") for t in doc.topologies),
            foreign=tuple(
                pod
                for index, entry in enumerate(doc.foreign)
                for pod in self._pods.pods(entry, "default", f"foreign-{index}", f"foreign[{index}]")
            ),
            policy=self._policy,
            notices=(*(Notice(n.kind, n.object, n.text) for n in doc.notices), *notices),
            name=doc.name,
            claims=read_claims(
                doc.device_classes,
                doc.resource_slices,
                doc.resource_claims,
                self._claims.made.values(),
                doc.claim_queue_label,
                _filler,
            ),
            budgets=tuple(
                DisruptionBudget(b.namespace, b.name, requirements(b.selector), b.allowed, b.spares_unready)
                for b in doc.disruption_budgets
            ),
            refused=frozenset(doc.refused),
        )

    def _nodes(self, doc: NodeDoc, field: str) -> Iterator[Node]:
        devices = named_gpus(doc.resources, doc.gpus, self._policy, field)
        gpus = devices if doc.allocatable_gpus is None else doc.allocatable_gpus
        amounts = {"cpu": doc.cpu, "memory": doc.memory, "pods": doc.pods, self._schema.names[GPU]: gpus * MILLI}
        vector = self._schema.vector(amounts | doc.resources)
        taints = tuple(Taint(t.key, t.value, t.effect) for t in doc.taints)
        numa = topology(doc.numa, self._schema, f"nodes.{doc.name}.numa")
        if doc.gpu_topology:
            check_topology(doc.gpu_topology, devices, f"{field}.gpuTopology")
        said = doc.drain_at
        drain_at_s = self._now_s + parse_duration_s(said) if isinstance(said, str) else self._moment(said)
        for index in range(doc.count):
            fill = _filler(index)
            labels = {fill(key): fill(value) for key, value in doc.labels.items()}
            name = _name(doc.name, doc.count, index)
            yield Node(
                name,
                vector,
                devices,
                doc.gpu_memory,
                labels,
                taints,
                doc.schedulable,
                doc.gpu_uuids,
                numa,
                doc.gpu_topology,
                drain_at_s,
            )

    def _queue(self, doc: QueueDoc, index: int, usage: Mapping[str, Usage]) -> Queue:
        created = self._moment(doc.created)
        for rule, text in doc.rules.items():
            fault = setting_fault(rule, text)
            if fault:
                problem, _, cure = fault.partition(". ")
                raise InputError(problem, field=f"queues[{index}].rules.{rule}", cure=cure)
        return Queue(
            name=doc.name,
            parent=doc.parent,
            priority=doc.priority,
            created_s=self._now_s - _WEEK_S + index if created is None else created,
            quota=_shares(doc.quota, default_gpu=0),
            limit=_shares(doc.limit, default_gpu=UNLIMITED),
            weight=_weights(doc.weight, 1.0),
            reclaim_min_runtime_s=doc.reclaim_min_runtime,
            preempt_min_runtime_s=doc.preempt_min_runtime,
            usage=usage.get(doc.name) or _weights(doc.usage, 0.0),
            placement=_placement(doc.placement),
            rules=tuple(sorted(doc.rules.items())),
            display_name=doc.display_name,
            uid=doc.uid,
        )

    def _past_usage(self) -> tuple[Mapping[str, Usage], tuple[Notice, ...]]:
        """Usage by queue as the history tells it, and notices; a queue that states its own must not be in it."""
        if self._doc.usage_history is None:
            return {}, ()
        parent = {queue.name: queue.parent for queue in self._doc.queues}
        usage, notices = read_usage(self._doc.usage_history, parent, self._now_s)
        for place, queue in enumerate(self._doc.queues):
            if queue.name in usage and "usage" in queue.model_fields_set:
                problem = "usageHistory gives the usage of this queue too"
                raise InputError(problem, field=f"queues[{place}].usage", cure="Give one of the two")
        return usage, notices

    def _gangs(self) -> Iterator[Gang]:
        total = sum(doc.count for doc in self._doc.gangs)
        number = 0
        for place, doc in enumerate(self._doc.gangs):
            for index in range(doc.count):
                yield self._gang(doc, index, self._now_s - _HOUR_S + _HOUR_S * number / total, f"gangs[{place}]")
                number += 1

    def _gang(self, doc: GangDoc, index: int, default_created_s: float, field: str) -> Gang:
        name = _name(doc.name, doc.count, index)
        pods = tuple(
            pod
            for place, entry in enumerate(doc.pods)
            for pod in self._pods.pods(
                _filled(entry, index), doc.namespace, name, f"{field}.pods[{place}]", many=len(doc.pods) > 1
            )
        )
        created = self._moment(doc.created)
        preemptible = doc.preemptible
        return Gang(
            namespace=doc.namespace,
            name=name,
            queue=doc.queue,
            root=_tree(doc, len(pods), field),
            pods=pods,
            priority=doc.priority,
            preemptible=doc.priority < self._doc.policy.non_preemptible_priority
            if preemptible is None
            else preemptible,
            never_preempts=doc.never_preempts,
            created_s=default_created_s if created is None else created,
            last_start_s=self._moment(doc.last_start),
            last_eviction_s=self._moment(doc.last_eviction),
            stale_since_s=self._moment(doc.stale_since),
            preemption_delay_s=doc.preemption_delay,
            staleness_grace_s=doc.staleness_grace,
            placement=_placement(doc.placement),
            workload=_filler(index)(doc.workload),
            may_use_spares=doc.may_use_spares,
            set_aside=doc.set_aside,
            uid=doc.uid,
        )

    def _moment(self, value: float | str | None) -> float | None:
        return moment_s(value, self._now_s)


def _schema(doc: InstanceDoc) -> ResourceSchema:
    named = [*doc.resources, *(name for node in doc.nodes for name in node.resources)]
    named += [name for gang in doc.gangs for pod in gang.pods for name in pod.resources]
    named += [name for pod in doc.foreign for name in pod.resources]
    zones = [zone for node in doc.nodes if node.numa is not None for zone in node.numa.zones]
    pods = [*doc.foreign, *(pod for gang in doc.gangs for pod in gang.pods)]
    containers = [container for pod in pods for container in pod.containers]
    named += named_resources(*zones, *(z.available for z in zones if z.available is not None), *containers)
    return ResourceSchema.with_extended(named)


def _filler(index: int) -> Callable[[str], str]:
    """Fills ``{i}``, ``{i:03}``, ``{i//8}``, ``{i%8}`` in a text."""

    def number(match: re.Match[str]) -> str:
        operator, operand, width = match[1], int(match[2] or 1), int(match[3] or 0)
        value = index // operand if operator == "//" else index % operand if operator else index
        return f"{value:0{width}}"

    return lambda text: _PLACE.sub(number, text)


def _name(pattern: str, count: int, index: int) -> str:
    filled = _filler(index)(pattern)
    return f"{pattern}-{index}" if filled == pattern and count > 1 else filled


def _filled(entry: Any, index: int) -> Any:
    """A pod template for the ``index``-th of several gangs of one entry, with the placeholders in names filled in."""
    if not _PLACE.search(f"{entry.name} {entry.node} {' '.join(entry.running)}"):
        return entry
    fill = _filler(index)
    running = {fill(node): number for node, number in entry.running.items()}
    return entry.model_copy(update={"name": fill(entry.name), "node": fill(entry.node), "running": running})


def _shares(doc: SharesDoc, *, default_gpu: int) -> tuple[int, int, int]:
    cpu, memory, gpu = doc.cpu, doc.memory, doc.gpu
    return (
        UNLIMITED if cpu is None else cpu,
        UNLIMITED if memory is None else memory,
        default_gpu if gpu is None else gpu,
    )


def _weights(doc: WeightsDoc, default: float) -> tuple[float, float, float]:
    cpu, memory, gpu = (default if value is None else value for value in (doc.cpu, doc.memory, doc.gpu))
    return cpu, memory, gpu


def _topology(doc: TopologyDoc, field: str) -> Topology:
    levels = tuple(TopologyLevel(level.label, level.alias) for level in doc.levels)
    if len(levels) > MOST_LEVELS:
        problem = f"{len(levels):,} levels; at most {MOST_LEVELS} are read"
        raise InputError(problem, field=f"{field}.levels", cure="List those that matter")
    alone, spares = doc.one_tenant, doc.spares
    found = Topology(
        doc.name,
        levels,
        None if alone is None else OneTenant(alone.level, alone.tenant),
        None if spares is None else SpareNodes(spares.level, spares.nodes),
    )
    for name, rule in (("oneTenant", alone), ("spares", spares)):
        if rule is not None and found.level_index(rule.level) is None:
            problem = f"{rule.level!r} is not a level of the topology"
            raise InputError(problem, field=f"{field}.{name}.level", cure="Write a label or alias of its levels")
    return found


def _constraint(doc: TopologyConstraintDoc | None) -> TopologyConstraint | None:
    return None if doc is None else TopologyConstraint(doc.topology, doc.required, doc.preferred)


def _placement(doc: PlacementDoc) -> Placement:
    return Placement(**{name: getattr(doc, name) for name in PlacementDoc.model_fields})


def _tree(doc: GangDoc, pods: int, field: str) -> SubGroup:
    topology = _constraint(doc.topology)
    if doc.groups is None:
        return flat_gang(pods if doc.min_member is None else doc.min_member, topology)
    if doc.min_member is not None:
        problem = "minMember and groups exclude each other"
        raise InputError(problem, field=f"{field}.minMember", cure="Give minMember in the groups that hold pods")
    children = tuple(_part(part, f"{field}.groups[{place}]") for place, part in enumerate(doc.groups))
    return SubGroup("", children, doc.min_groups, topology)


def _part(doc: GroupDoc, field: str) -> SubGroup | PodSet:
    if doc.groups is None:
        if doc.min_groups is not None:
            problem = "minGroups without groups"
            raise InputError(problem, field=f"{field}.minGroups", cure="Give groups, or minMember instead")
        return PodSet(doc.name, 1 if doc.min_member is None else doc.min_member, _constraint(doc.topology))
    if doc.min_member is not None:
        problem = "minMember and groups exclude each other"
        raise InputError(problem, field=f"{field}.minMember", cure="Give minMember in the groups that hold pods")
    children = tuple(_part(part, f"{field}.groups[{place}]") for place, part in enumerate(doc.groups))
    return SubGroup(doc.name, children, doc.min_groups, _constraint(doc.topology))


def _policy(doc: PolicyDoc) -> Policy:
    seconds = {"staleness_grace", "reclaim_min_runtime", "preempt_min_runtime", "stuck_in_releasing", "drain_lead"}
    values = {f"{name}_s" if name in seconds else name: getattr(doc, name) for name in PolicyDoc.model_fields}
    return replace(Policy(), **values)
