"""The behaviour-case format (``kai-case/1``), as written in ``instances/cases/CASES.md``.

Fields that are not known here are kept by pydantic and named in a notice: more cases exist than ship with kai-solver.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from kai_solver.instances_io.fields import Whole

Name = Annotated[str, Field(min_length=1)]
Text = Annotated[str, Field(min_length=1)]
Count = Annotated[int, Field(ge=0, le=10_000_000)]
Amount = Annotated[float, Field(ge=0, le=1e12)]
Bytes = Annotated[float, Field(ge=0, le=2**53)]
Number = Annotated[float, Field(ge=-1e12, le=1e15)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False, frozen=True, defer_build=True)


class ZoneDoc(_Part):
    """A NUMA zone; quantities as Kubernetes writes them."""

    id: Name
    allocatable: dict[str, str | float] = Field(default_factory=dict)
    available: dict[str, str | float] = Field(default_factory=dict)


class NumaDoc(_Part):
    """Topology Manager of a node."""

    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    scope: Literal["container", "pod"] = "container"
    zones: tuple[ZoneDoc, ...] = ()


class NodeDoc(_Part):
    """A node; ``cpu_cores`` and ``memory_bytes`` default to what KAI's tables take."""

    name: Name
    gpus: int = Field(default=0, ge=0, le=100_000)
    gpu_memory_mib: Count = 100
    gpu_memory_synced: bool | None = None
    cpu_cores: Amount = 20_000
    memory_bytes: Bytes = 20e9
    max_pods: Count = 110
    labels: dict[str, str] = Field(default_factory=dict)
    mig_strategy: Literal["", "none", "single", "mixed"] = ""
    mig_instances: dict[str, Count] = Field(default_factory=dict)
    numa: NumaDoc | None = None


class ShareDoc(_Part):
    """Quota, limit and weight of one resource in a queue."""

    quota: Number
    limit: Number = -1
    over_quota_weight: Number = 0


class QueueDoc(_Part):
    """A queue or department."""

    name: Name
    parent: str = ""
    kind: str = ""
    priority: Whole | None = None
    creation_offset_minutes: Number = 0
    gpu: ShareDoc | None = None
    cpu_milli: ShareDoc | None = None
    memory_mb: ShareDoc | None = None
    reclaim_min_runtime_s: Number | None = None
    preempt_min_runtime_s: Number | None = None
    resources_unset: bool = False


class TopologyConstraintDoc(_Part):
    """Levels that a (sub)group asks for."""

    topology: str
    required_level: str = ""
    preferred_level: str = ""


class PodSetDoc(_Part):
    """A leaf of the tree."""

    name: Name
    min_available: Whole = 1
    topology_constraint: TopologyConstraintDoc | None = None


class SubGroupDoc(_Part):
    """An inner node of the tree."""

    name: str = ""
    min_subgroups: Whole | None = None
    topology_constraint: TopologyConstraintDoc | None = None
    subgroups: tuple["SubGroupDoc", ...] = ()
    pod_sets: tuple[PodSetDoc, ...] = ()


class RequestDoc(_Part):
    """What each task of a job asks for."""

    gpus: float = Field(default=0, ge=0, le=100_000)
    gpu_devices: int = Field(default=1, ge=1, le=1000)
    gpu_memory_mib: Count = 0
    cpu_cores: Amount = 1
    memory_bytes: Bytes = 1e9


class TaskDoc(_Part):
    """A pod."""

    id: Name
    state: str = "Pending"
    node: str = ""
    gpu_groups: tuple[str, ...] = ()
    subgroup: str = ""
    gpus: float | None = Field(default=None, ge=0, le=100_000)
    priority: Whole = 0
    mig: dict[str, Count] = Field(default_factory=dict)
    legacy_mig: bool = False
    allowed_nodes: tuple[str, ...] = ()
    pod_labels: dict[str, str] = Field(default_factory=dict)
    pod_affinity_topology_key: str = ""
    pod_anti_affinity_topology_key: str = ""
    resource_claims: tuple[str, ...] = ()
    resource_claim_templates: dict[str, str] = Field(default_factory=dict)
    persistent_volume_claims: tuple[str, ...] = ()
    annotations: dict[str, str] = Field(default_factory=dict)


class JobDoc(_Part):
    """A pod group."""

    name: Name
    namespace: str = ""
    queue: str
    priority: Whole = 50
    preemptibility: Literal["preemptible", "non-preemptible", ""] = ""
    age_minutes: Number = 0
    last_start_minutes_ago: Number | None = None
    task_request: RequestDoc = Field(default_factory=RequestDoc)
    best_effort: bool = False
    min_available: Whole | None = None
    subgroup_tree: SubGroupDoc | None = None
    preemption_delay_s: Number = 0
    stale_for_s: Number | None = None
    staleness_grace_period_s: Number | None = None
    qos_class: str = ""
    delete_when_evicted: bool = False
    tasks: tuple[TaskDoc, ...] = ()


class LevelDoc(_Part):
    """A level of a topology."""

    node_label: str
    alias: str = ""


class TopologyDoc(_Part):
    """A topology, outermost level first."""

    name: Name
    levels: tuple[LevelDoc, ...]


class SliceDoc(_Part):
    """Devices that a node publishes."""

    name: str = ""
    node: str = ""
    device_class: str = ""
    devices: int = Field(default=0, ge=0, le=100_000)


class DeviceResultDoc(_Part):
    """A device that was given to a claim; ``pool`` is its node."""

    pool: str = ""
    device: str = ""
    driver: str = ""
    request: str = ""


class DeviceResultsDoc(_Part):
    """Devices that were given to a claim."""

    results: tuple[DeviceResultDoc, ...] = ()


class AllocationDoc(_Part):
    """What a claim was given."""

    devices: DeviceResultsDoc = Field(default_factory=DeviceResultsDoc)


class ConsumerDoc(_Part):
    """A pod that a claim is reserved for."""

    name: str = ""
    resource: str = ""
    uid: str = ""


class ClaimStatusDoc(_Part):
    """Status of a ResourceClaim."""

    allocation: AllocationDoc | None = None
    reserved_for: tuple[ConsumerDoc, ...] = Field(default=(), alias="reservedFor")


class ClaimDoc(_Part):
    """A ResourceClaim."""

    name: Name
    namespace: str = ""
    device_class: str = ""
    count: int = Field(default=1, ge=0, le=100_000)
    labels: dict[str, str] = Field(default_factory=dict)
    status: ClaimStatusDoc = Field(default_factory=ClaimStatusDoc)


class DraDoc(_Part):
    """Dynamic resource allocation."""

    device_classes: tuple[str, ...] = ()
    resource_slices: tuple[SliceDoc, ...] = ()
    resource_claims: tuple[ClaimDoc, ...] = ()


class PluginDoc(_Part):
    """A plugin and its arguments."""

    name: str
    arguments: dict[str, str] = Field(default_factory=dict)


class ParamsDoc(_Part):
    """Flags of the scheduler; those not named here have no meaning for kai-solver."""

    max_consolidation_preemptees: Whole = -1
    allow_consolidating_reclaim: bool = True
    default_staleness_grace_period_s: Number = 60.0
    queue_label_key: str = "kai.scheduler/queue"
    full_hierarchy_fairness: bool = True
    use_scheduling_signatures: bool = True


class SchedulerDoc(_Part):
    """How the scheduler is set."""

    plugins: tuple[PluginDoc, ...] = ()
    params: ParamsDoc = Field(default_factory=ParamsDoc)
    search_budgets: dict[str, Any] = Field(default_factory=dict)
    dynamic_resources_enabled: bool = False


class InstanceDoc(_Part):
    """The cluster."""

    nodes: tuple[NodeDoc, ...]
    queues: tuple[QueueDoc, ...]
    jobs: tuple[JobDoc, ...] = ()
    topologies: tuple[TopologyDoc, ...] = ()
    dra: DraDoc | None = None
    scheduler: SchedulerDoc | None = None


class RunDoc(_Part):
    """What is run."""

    kind: Literal["single_session", "integration"] = "single_session"
    actions: tuple[str, ...] = ("allocate", "consolidation", "reclaim", "preempt", "stalegangeviction")
    rounds: int = Field(default=1, ge=1, le=10_000)
    rounds_after_match: int = Field(default=0, ge=0, le=10_000)
    delay_between_rounds_ms: float = 0


class StatementDoc(BaseModel):
    """What a case of our own says beside its assertions (``docs/conformance.md``)."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kai: Text
    known_by: Literal["read", "run"]
    reference: Text
    ours: Text
    needs_solver: bool = False


class CaseDoc(_Part):
    """The whole file."""

    schema_: Literal["kai-case/1"] = Field(alias="schema")
    suite: str = ""
    index: int | None = None
    name: str
    description: str = ""
    source: dict[str, Any] = Field(default_factory=dict)
    statement: StatementDoc | None = None
    instance: InstanceDoc
    run: RunDoc = Field(default_factory=RunDoc)
    expected: dict[str, Any] | None = None
    actual: dict[str, Any] | None = None


def unknown_fields(part: BaseModel, path: str = "") -> set[str]:
    """Paths of fields below ``part`` that the format does not know, list indices left out."""
    found = {f"{path}{name}" for name in part.model_extra or ()}
    for name, value in vars(part).items():
        if isinstance(value, BaseModel):
            found |= unknown_fields(value, f"{path}{name}.")
        elif value and type(value) is tuple and isinstance(value[0], BaseModel):
            found.update(*(unknown_fields(item, f"{path}{name}.") for item in value))
    return found
