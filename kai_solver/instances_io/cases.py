"""Behaviour cases of KAI's own tests (``kai-case/1``) as snapshots, with what is expected of a run.

The defaults are those of KAI's table tests (docs/kai-behaviour.md#test-tables, ``instances/cases/CASES.md``).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kai_solver.domain import (
    DEFAULT_QUEUE_PRIORITY,
    Action,
    Node,
    Notice,
    Policy,
    Queue,
    QueueVector,
    Snapshot,
    Topology,
    TopologyLevel,
)
from kai_solver.domain.gpus import MIG_ENABLED, MIG_STRATEGY
from kai_solver.errors import InputError
from kai_solver.instances_io.case_claims import CaseClaims
from kai_solver.instances_io.case_jobs import JobReader
from kai_solver.instances_io.case_schema import CaseDoc, InstanceDoc, NodeDoc, QueueDoc, SchedulerDoc, ShareDoc
from kai_solver.instances_io.case_schema import unknown_fields as _unknown_fields
from kai_solver.instances_io.case_zones import CaseZones
from kai_solver.instances_io.fields import validate
from kai_solver.instances_io.validate import sanitize
from kai_solver.units import GPU, MILLI, UNLIMITED, ResourceSchema

CASE_NOW_S = 1_700_000_000.0
"""The moment of every case: ages in the files are relative to it."""

TYPE_LABEL = "kai.scheduler/type"
_LARGEST = 2**53
_QUEUES_BEGAN_S = CASE_NOW_S - 7 * 86_400


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A behaviour case.

    Attributes
    ----------
    kind, actions, rounds, rounds_after_match
        The run: one session judged as it stands, or cycles on fresh sessions.
    gangs, pods
        Keys in the snapshot by job name and by task id, as ``expected`` names them.
    deleted_when_evicted
        Gangs whose evicted pods stay Releasing between rounds instead of turning Pending at once.
    expected, actual, params
        Raw, as in the file; ``expected`` is None for instances without one.
    """

    name: str
    suite: str
    file: str
    snapshot: Snapshot
    kind: Literal["single_session", "integration"]
    actions: tuple[Action, ...]
    rounds: int = 1
    rounds_after_match: int = 0
    gangs: Mapping[str, str] = field(default_factory=dict)
    pods: Mapping[str, str] = field(default_factory=dict)
    deleted_when_evicted: frozenset[str] = frozenset()
    expected: Mapping[str, Any] | None = None
    actual: Mapping[str, Any] | None = None
    params: Mapping[str, Any] = field(default_factory=dict)
    description: str = ""


def load_case(document: Mapping[str, Any], file: str = "") -> CaseFile:
    """Read one case.

    Raises
    ------
    InputError
        A field is missing or has an invalid value.
    """
    try:
        return _case_file(validate(CaseDoc, document, file), file)
    except InputError as error:
        raise error.in_file(file) from None


def _case_file(case: CaseDoc, file: str) -> CaseFile:
    claims = CaseClaims(case.instance.dra, _queue_label(case.instance.scheduler), _claims_on(case.instance))
    zones = CaseZones.of(case.instance.scheduler)
    reader = JobReader(_schema(case.instance), CASE_NOW_S, claims, zones, _affinity_on(case.instance.scheduler))
    gangs = tuple(reader.gang(job, case.instance) for job in case.instance.jobs)
    snapshot = Snapshot(
        now_s=CASE_NOW_S,
        schema=reader.schema,
        nodes=tuple(_node(node, reader.schema, zones) for node in case.instance.nodes),
        queues=tuple(_queue(queue) for queue in case.instance.queues),
        gangs=gangs,
        topologies=tuple(
            Topology(t.name, tuple(TopologyLevel(level.node_label, level.alias) for level in t.levels))
            for t in case.instance.topologies
        ),
        policy=_policy(case.instance.scheduler),
        notices=_notices(case, reader, claims),
        name=case.name,
        claims=claims.read(),
    )
    return CaseFile(
        name=case.name,
        suite=case.suite,
        file=file,
        snapshot=sanitize(snapshot),
        kind=case.run.kind,
        actions=_actions(case.run.actions, file),
        rounds=case.run.rounds,
        rounds_after_match=case.run.rounds_after_match,
        gangs=reader.gang_keys,
        pods=reader.pod_keys,
        deleted_when_evicted=frozenset(reader.gang_keys[j.name] for j in case.instance.jobs if j.delete_when_evicted),
        expected=case.expected,
        actual=case.actual,
        params=case.instance.scheduler.params.model_dump() if case.instance.scheduler else {},
        description=case.description,
    )


def _actions(names: tuple[str, ...], file: str) -> tuple[Action, ...]:
    try:
        return tuple(Action(name) for name in names)
    except ValueError:
        known = ", ".join(action.value for action in Action)
        problem = f"{list(names)} names an unknown action"
        raise InputError(problem, file=file, field="run.actions", cure=f"Known: {known}") from None


def _schema(instance: InstanceDoc) -> ResourceSchema:
    slices = [name for node in instance.nodes for name in node.mig_instances]
    asked = [name for job in instance.jobs for task in job.tasks for name in task.mig]
    return ResourceSchema.with_extended(slices + asked)


def _node(node: NodeDoc, schema: ResourceSchema, zones: CaseZones) -> Node:
    gpus = 0 if node.mig_strategy == "mixed" else node.gpus
    amounts = {"cpu": round(node.cpu_cores * MILLI), "memory": round(node.memory_bytes), "pods": node.max_pods}
    amounts |= node.mig_instances | {schema.names[GPU]: gpus * MILLI}
    mig = {MIG_STRATEGY: node.mig_strategy, MIG_ENABLED: "true"} if node.mig_strategy else {}
    labels = {TYPE_LABEL: node.name} | mig | node.labels
    numa = zones.topology(node, schema)
    return Node(node.name, schema.vector(amounts), gpus, node.gpu_memory_mib, labels, numa=numa)


def _queue(queue: QueueDoc) -> Queue:
    if queue.resources_unset:
        shares = [ShareDoc(quota=0, limit=0)] * 3
    else:
        unlimited = ShareDoc(quota=UNLIMITED, over_quota_weight=1)
        shares = [queue.cpu_milli or unlimited, queue.memory_mb or unlimited, queue.gpu or ShareDoc(quota=0)]
    scales = (1, 10**6, MILLI)
    return Queue(
        name=queue.name,
        parent=queue.parent,
        priority=DEFAULT_QUEUE_PRIORITY if queue.priority is None else queue.priority,
        created_s=_QUEUES_BEGAN_S + 60 * queue.creation_offset_minutes,
        quota=_vector([share.quota for share in shares], scales),
        limit=_vector([share.limit for share in shares], scales),
        # A department of the tables has weight -1 beside an unlimited quota: nothing is left over to weigh.
        weight=(
            max(shares[0].over_quota_weight, 0.0),
            max(shares[1].over_quota_weight, 0.0),
            max(shares[2].over_quota_weight, 0.0),
        ),
        reclaim_min_runtime_s=queue.reclaim_min_runtime_s,
        preempt_min_runtime_s=queue.preempt_min_runtime_s,
        uid=queue.name,
    )


def _vector(amounts: list[float], scales: tuple[int, int, int]) -> QueueVector:
    """Amounts in our units; the tables' largest (10^18 bytes) end at the largest exact one, which never binds."""
    cpu, memory, gpu = (
        UNLIMITED if amount < 0 else min(round(amount * scale), _LARGEST)
        for amount, scale in zip(amounts, scales, strict=True)
    )
    return cpu, memory, gpu


def _queue_label(scheduler: SchedulerDoc | None) -> str:
    return (scheduler or SchedulerDoc()).params.queue_label_key


def _claims_on(instance: InstanceDoc) -> bool:
    return instance.scheduler is None or instance.scheduler.dynamic_resources_enabled


def _affinity_on(scheduler: SchedulerDoc | None) -> bool:
    """Whether pod (anti-)affinity is enforced: plugin ``podaffinity`` or ``predicates``, or KAI's defaults."""
    return scheduler is None or any(p.name in ("podaffinity", "predicates") for p in scheduler.plugins)


def _policy(scheduler: SchedulerDoc | None) -> Policy:
    """Policy of a case; the tables never apply ``full_hierarchy_fairness: false``."""
    if scheduler is None:
        return Policy()
    params, names = scheduler.params, {plugin.name for plugin in scheduler.plugins}
    placement = next((p.arguments for p in scheduler.plugins if p.name == "nodeplacement"), {})
    proportion = next((p.arguments for p in scheduler.plugins if p.name == "proportion"), {})
    minimum = next((p.arguments for p in scheduler.plugins if p.name == "minruntime"), {})
    return Policy(
        gpu_placement="spread" if placement.get("gpu") == "spread" else "binpack",
        cpu_placement="spread" if placement.get("cpu") == "spread" else "binpack",
        gpu_sharing_placement="spread" if "gpuspread" in names and "gpupack" not in names else "binpack",
        max_consolidation_gangs=max(params.max_consolidation_preemptees, UNLIMITED),
        consolidating_reclaim=params.allow_consolidating_reclaim,
        staleness_grace_s=params.default_staleness_grace_period_s,
        saturation_multiplier=max(_number(proportion, "relcaimerSaturationMultiplier"), 1.0),
        k_value=max(_number(proportion, "kValue"), 0.0),
        reclaim_resolve="queue" if minimum.get("reclaimResolveMethod") == "queue" else "lca",
    )


def _number(arguments: Mapping[str, str], name: str) -> float:
    """A plugin's argument, 1 where it is absent; arguments are text, as in KAI's own configuration."""
    text = arguments.get(name, "1")
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        field = f"instance.scheduler.plugins.arguments.{name}"
        raise InputError(f"{text!r} is not a number", field=field, cure="Give a number, or leave it out")
    return number


def _notices(case: CaseDoc, reader: JobReader, claims: CaseClaims) -> tuple[Notice, ...]:
    found = [*reader.notices, *claims.notices, *reader.zones.notices]
    unknown = sorted(_unknown_fields(case))
    if unknown:
        found.append(Notice("warning", "case", f"fields not known to this version: {', '.join(unknown)}"))
    return tuple(found)
