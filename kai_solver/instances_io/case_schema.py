"""The behaviour-case format (``kai-case/1``), as written in ``instances/cases/CASES.md``.

Fields that are not known here are kept by pydantic and named in a notice: more cases exist than ship with kai-solver.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

SCHEMA = "kai-case/1"


class _Part(BaseModel):
    model_config = ConfigDict(extra="allow", allow_inf_nan=False, frozen=True)


class NodeDoc(_Part):
    """A node; ``cpu_cores`` and ``memory_bytes`` default to what KAI's tables take."""

    name: str
    gpus: int = Field(default=0, ge=0, le=100_000)
    gpu_memory_mib: int = Field(default=100, ge=0)
    gpu_memory_synced: bool | None = None
    cpu_cores: float = Field(default=20_000, ge=0)
    memory_bytes: float = Field(default=20e9, ge=0)
    max_pods: int = Field(default=110, ge=0)
    labels: dict[str, str] = {}
    mig_strategy: Literal["", "none", "single", "mixed"] = ""
    mig_instances: dict[str, int] = {}
    numa: dict[str, Any] | None = None


class ShareDoc(_Part):
    """Quota, limit and weight of one resource in a queue."""

    quota: float
    limit: float = -1
    over_quota_weight: float = 0


class QueueDoc(_Part):
    """A queue or department."""

    name: str
    parent: str = ""
    kind: str = ""
    priority: int | None = None
    creation_offset_minutes: float = 0
    gpu: ShareDoc | None = None
    cpu_milli: ShareDoc | None = None
    memory_mb: ShareDoc | None = None
    reclaim_min_runtime_s: float | None = None
    preempt_min_runtime_s: float | None = None
    resources_unset: bool = False


class TopologyConstraintDoc(_Part):
    """Levels that a (sub)group asks for."""

    topology: str
    required_level: str = ""
    preferred_level: str = ""


class PodSetDoc(_Part):
    """A leaf of the tree."""

    name: str
    min_available: int = 1
    topology_constraint: TopologyConstraintDoc | None = None


class SubGroupDoc(_Part):
    """An inner node of the tree."""

    name: str = ""
    min_subgroups: int | None = None
    topology_constraint: TopologyConstraintDoc | None = None
    subgroups: list["SubGroupDoc"] = []
    pod_sets: list[PodSetDoc] = []


class RequestDoc(_Part):
    """What each task of a job asks for."""

    gpus: float = Field(default=0, ge=0, le=100_000)
    gpu_devices: int = Field(default=1, ge=1, le=1000)
    gpu_memory_mib: int = Field(default=0, ge=0)
    cpu_cores: float = Field(default=1, ge=0)
    memory_bytes: float = Field(default=1e9, ge=0)


class TaskDoc(_Part):
    """A pod."""

    id: str
    state: str = "Pending"
    node: str = ""
    gpu_groups: list[str] = []
    subgroup: str = ""
    gpus: float | None = Field(default=None, ge=0, le=100_000)
    priority: int = 0
    mig: dict[str, int] = {}
    legacy_mig: bool = False
    allowed_nodes: list[str] = []
    pod_labels: dict[str, str] = {}
    pod_affinity_topology_key: str = ""
    pod_anti_affinity_topology_key: str = ""
    resource_claims: list[str] = []
    resource_claim_templates: dict[str, str] = {}
    persistent_volume_claims: list[str] = []
    annotations: dict[str, str] = {}


class JobDoc(_Part):
    """A pod group."""

    name: str
    namespace: str = ""
    queue: str
    priority: int = 50
    preemptibility: Literal["preemptible", "non-preemptible", ""] = ""
    age_minutes: float = 0
    last_start_minutes_ago: float | None = None
    task_request: RequestDoc = RequestDoc()
    best_effort: bool = False
    min_available: int | None = None
    subgroup_tree: SubGroupDoc | None = None
    preemption_delay_s: float = 0
    stale_for_s: float | None = None
    staleness_grace_period_s: float | None = None
    qos_class: str = ""
    delete_when_evicted: bool = False
    tasks: list[TaskDoc] = []


class LevelDoc(_Part):
    """A level of a topology."""

    node_label: str
    alias: str = ""


class TopologyDoc(_Part):
    """A topology, outermost level first."""

    name: str
    levels: list[LevelDoc]


class SliceDoc(_Part):
    """Devices that a node publishes."""

    name: str = ""
    node: str = ""
    device_class: str = ""
    devices: int = Field(default=0, ge=0, le=100_000)


class ClaimDoc(_Part):
    """A ResourceClaim."""

    name: str
    namespace: str = ""
    device_class: str = ""
    count: int = Field(default=1, ge=0, le=100_000)
    labels: dict[str, str] = {}
    status: dict[str, Any] = {}


class DraDoc(_Part):
    """Dynamic resource allocation."""

    device_classes: list[str] = []
    resource_slices: list[SliceDoc] = []
    resource_claims: list[ClaimDoc] = []


class PluginDoc(_Part):
    """A plugin and its arguments."""

    name: str
    arguments: dict[str, str] = {}


class SchedulerDoc(_Part):
    """How the scheduler is set."""

    plugins: list[PluginDoc] = []
    params: dict[str, Any] = {}
    search_budgets: dict[str, Any] = {}
    dynamic_resources_enabled: bool = False


class InstanceDoc(_Part):
    """The cluster."""

    nodes: list[NodeDoc]
    queues: list[QueueDoc]
    jobs: list[JobDoc] = []
    topologies: list[TopologyDoc] = []
    dra: DraDoc | None = None
    scheduler: SchedulerDoc | None = None


class RunDoc(_Part):
    """What is run."""

    kind: Literal["single_session", "integration"] = "single_session"
    actions: list[str] = ["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]
    rounds: int = Field(default=1, ge=1, le=10_000)
    rounds_after_match: int = Field(default=0, ge=0, le=10_000)
    delay_between_rounds_ms: float = 0


class CaseDoc(_Part):
    """The whole file."""

    schema_: Literal["kai-case/1"] = Field(alias="schema")
    suite: str = ""
    index: int | None = None
    name: str
    description: str = ""
    source: dict[str, Any] = {}
    instance: InstanceDoc
    run: RunDoc = RunDoc()
    expected: dict[str, Any] | None = None
    actual: dict[str, Any] | None = None


def unknown_fields(part: BaseModel, path: str = "") -> set[str]:
    """Paths of fields below ``part`` that the format does not know, list indices left out."""
    found = {f"{path}{name}" for name in part.model_extra or ()}
    for name in part.model_fields_set:
        value = getattr(part, name, None)
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, BaseModel):
                found |= unknown_fields(item, f"{path}{name}.")
    return found
