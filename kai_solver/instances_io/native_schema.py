"""The project's own format, ``kai-solver/v1``: small enough to write by hand, complete enough to lose nothing.

Defaults are for people, and differ from KAI's in one place: a queue's limit that is not given is **unlimited** (in a
KAI Queue it is 0: nothing is allowed). Each field says its default; ``docs/instances.md`` has examples.
"""

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from kai_solver.domain import USUAL_GRACE_S, Action
from kai_solver.instances_io.fields import (
    LARGEST_COUNT,
    LARGEST_SECONDS,
    Amount,
    AmountOrUnlimited,
    Coming,
    Mebibytes,
    Millis,
    MillisOrUnlimited,
    Moment,
    Seconds,
    Strict,
    Whole,
)
from kai_solver.instances_io.native_claims_schema import ClaimDoc, DeviceClassDoc, SliceDoc, TemplateDoc
from kai_solver.instances_io.native_usage import UsageHistoryDoc, as_gpus
from kai_solver.instances_io.native_zones import ContainerDoc, NumaDoc, ShareDoc
from kai_solver.units import GPU_RESOURCES, SHARED_GPU_RESOURCES

FORMAT = "kai-solver/v1"

Strategy = Literal["binpack", "spread"]


class TaintDoc(Strict):
    """A node's taint."""

    key: str
    value: str = ""
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodeDoc(Strict):
    """A node, or ``count`` like it: ``{i}``, ``{i:03}``, ``{i//8}`` and ``{i%8}`` in names and labels are filled in."""

    name: str = Field(min_length=1)
    count: int = Field(default=1, ge=0, le=100_000)
    gpus: int = Field(default=0, ge=0, le=1000)
    allocatable_gpus: int | None = Field(default=None, ge=0, le=1000)
    """Whole GPUs that may be requested, where not ``gpus``: 0 on nodes in MIG mode ``mixed``."""
    gpu_memory: Mebibytes = 0
    """Of one GPU: a quantity (``80Gi``), or MiB; 0 unknown."""
    gpu_uuids: tuple[str, ...] = ()
    cpu: Millis = 128_000
    memory: Amount = 2**40
    pods: int = Field(default=110, ge=0, le=LARGEST_COUNT)
    resources: dict[str, Amount] = Field(default_factory=dict)
    """Extended resources, MIG slices among them."""
    labels: dict[str, str] = Field(default_factory=dict)
    taints: tuple[TaintDoc, ...] = ()
    schedulable: bool = True
    numa: NumaDoc | None = None
    """NUMA zones; without them nothing is aligned."""
    gpu_topology: str = ""
    """How its GPUs are linked: a product (``kai-solver devices --list``), or what ``nvidia-smi topo -m`` printed."""
    drain_at: Coming = None
    """When its pods have to be gone, for maintenance."""


class SharesDoc(Strict):
    """Quota or limit by resource; what is not given is unlimited, but a quota of GPUs is 0."""

    cpu: MillisOrUnlimited | None = None
    memory: AmountOrUnlimited | None = None
    gpu: MillisOrUnlimited | None = None


class WeightsDoc(Strict):
    """Over-quota weight, or past usage, by resource."""

    cpu: float | None = Field(default=None, ge=0)
    memory: float | None = Field(default=None, ge=0)
    gpu: float | None = Field(default=None, ge=0)


Shares = Annotated[SharesDoc, BeforeValidator(as_gpus, json_schema_input_type=SharesDoc | float | str)]
Weights = Annotated[WeightsDoc, BeforeValidator(as_gpus, json_schema_input_type=WeightsDoc | float)]


class PlacementDoc(Strict):
    """Where the pods of a workload should and must go; what is not given is the queue's, then the policy's word."""

    nodes: Strategy | None = None
    """``spread``: nodes with the fewest pods of the workload first; ``binpack``: the fullest that fits."""
    devices: Strategy | None = None
    """Of shared GPUs."""
    max_gpus_per_node: int | None = Field(default=None, ge=1, le=LARGEST_COUNT)
    max_pods_per_node: int | None = Field(default=None, ge=1, le=LARGEST_COUNT)
    min_nodes: int | None = Field(default=None, ge=1, le=LARGEST_COUNT)


class QueueDoc(Strict):
    """A queue. ``quota``, ``limit`` and ``weight`` as one number are GPUs; CPU and memory stay unlimited."""

    name: str = Field(min_length=1)
    parent: str = ""
    priority: Whole = 100
    quota: Shares = SharesDoc()
    """Default: no GPUs; CPU and memory unlimited."""
    limit: Shares = SharesDoc()
    """Default: unlimited. 0 allows nothing."""
    weight: Weights = WeightsDoc()
    """Default: 1 for every resource."""
    usage: Weights = WeightsDoc()
    """Past usage as a share of capacity; default: what ``usageHistory`` says of the queue, else 0."""
    created: Moment = None
    """Default: a week ago, earlier queues of the file first."""
    reclaim_min_runtime: Seconds | None = None
    preempt_min_runtime: Seconds | None = None
    placement: PlacementDoc = PlacementDoc()
    """Of the workloads of this queue and of those below it."""
    rules: dict[str, str] = Field(default_factory=dict)
    """Settings of optional rules, by the rule's name."""
    display_name: str = ""
    uid: str = ""


class LevelDoc(Strict):
    """A level of a topology."""

    label: str
    alias: str = ""


def _as_level(value: Any) -> Any:
    return {"label": value} if isinstance(value, str) else value


Level = Annotated[LevelDoc, BeforeValidator(_as_level, json_schema_input_type=LevelDoc | str)]


class OneTenantDoc(Strict):
    """Domains of a level that are used by one tenant at a time: see docs/domains.md."""

    level: str
    """Label or alias of a level of the topology."""
    tenant: str = Field(default="queue", pattern=r"^(queue|namespace|label:.+)$")
    """``queue``, ``namespace``, or ``label:`` and the key of a pod label."""


class SpareNodesDoc(Strict):
    """Nodes that every domain of a level keeps free: see docs/domains.md."""

    level: str
    """Label or alias of a level of the topology."""
    nodes: int = Field(default=1, ge=1, le=LARGEST_COUNT)


class TopologyDoc(Strict):
    """A topology, outermost level first; a level is a node label, or a label with its alias."""

    name: str = Field(min_length=1)
    levels: tuple[Level, ...] = Field(min_length=1)
    one_tenant: OneTenantDoc | None = None
    spares: SpareNodesDoc | None = None


class TopologyConstraintDoc(Strict):
    """Required and preferred level of a topology, by label or alias."""

    topology: str
    required: str = ""
    preferred: str = ""


class GroupDoc(Strict):
    """A part of a gang: a leaf with ``minMember``, or an inner part with ``groups``."""

    name: str = ""
    min_member: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    min_groups: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    groups: tuple["GroupDoc", ...] | None = None
    topology: TopologyConstraintDoc | None = None


class RequirementDoc(Strict):
    """One expression of a selector; the key ``metadata.name`` is the node's name."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"] = "In"
    values: tuple[str, ...] = ()


class PreferredDoc(Strict):
    """Preferred node affinity."""

    weight: Whole
    term: tuple[RequirementDoc, ...]


class TolerationDoc(Strict):
    """As in Kubernetes."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


class AffinityDoc(Strict):
    """Pod (anti-)affinity: pods of a label selector, within one value of a node label."""

    selector: tuple[RequirementDoc, ...] = ()
    topology_key: str
    namespaces: tuple[str, ...] = ()


class PreferredPodsDoc(Strict):
    """Preferred pod affinity; a negative weight is preferred anti-affinity."""

    weight: int = Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT)
    term: AffinityDoc


class SpreadDoc(Strict):
    """Topology spread: matching pods of a domain less those of the emptiest are at most ``maxSkew``."""

    selector: tuple[RequirementDoc, ...] = ()
    topology_key: str
    max_skew: int = Field(default=1, ge=1, le=LARGEST_COUNT)
    min_domains: int = Field(default=1, ge=1, le=LARGEST_COUNT)
    """With fewer domains than this the emptiest counts as empty."""
    honours_affinity: bool = True
    """Nodes that the pod's selectors rule out are no domains (``nodeAffinityPolicy``)."""
    honours_taints: bool = False
    """Nor are those whose taints it does not tolerate (``nodeTaintsPolicy``)."""


class PodDoc(Strict):
    """A pod, or ``replicas`` like it.

    ``gpus`` below 1 is a share of one device (of each of ``gpuDevices``); ``gpuMemory`` asks by memory instead.
    ``running: {node-0: 2}`` says how many of the replicas run where; the rest is pending.
    """

    name: str = ""
    namespace: str = ""
    replicas: int = Field(default=1, ge=0, le=100_000)
    gpus: float = Field(default=0, ge=0, le=1000)
    gpu_devices: int = Field(default=1, ge=1, le=1000)
    gpu_memory: Mebibytes = 0
    gpu_row: Literal["", "contiguous-required", "contiguous-preferred", "aligned-required", "aligned-preferred"] = ""
    """Of several whole GPUs: how their indices must or should follow each other."""
    quota_gpus: float | None = Field(default=None, ge=-1000, le=100_000)
    """GPUs that the queue pays beside ``gpus``, less where another pod pays. Default: g for each MIG slice ``<g>g``,
    1/replicas for each replica of a time-sliced GPU."""
    cpu: Millis = 0
    memory: Amount = 0
    pods: int = Field(default=1, ge=0, le=1000)
    resources: dict[str, Amount] = Field(default_factory=dict)
    group: str = "default"
    running: dict[str, Whole] = Field(default_factory=dict)
    status: Literal[
        "Pending",
        "Gated",
        "Binding",
        "Bound",
        "Running",
        "Releasing",
        "StuckInReleasing",
        "Succeeded",
        "Failed",
    ] = "Pending"
    deleted: Moment = None
    """When a Running pod was deleted: it is Releasing, then StuckInReleasing."""
    node: str = ""
    devices: tuple[Whole, ...] = ()
    wished_devices: tuple[Whole, ...] = ()
    """Whole GPUs that a plan chose for it, if it is unknown which ones it has."""
    gpu_groups: tuple[str, ...] = ()
    nominated_node: str = ""
    labels: dict[str, str] = Field(default_factory=dict)
    order: tuple[Whole, float, str] | None = None
    """(-priority in the gang, creation, uid); smaller first. Default (0, 0, the pod's name)."""
    node_selector: dict[str, str] = Field(default_factory=dict)
    node_terms: tuple[tuple[tuple[RequirementDoc, ...], ...], ...] = ()
    """For every entry one of its terms must hold."""
    preferred: tuple[PreferredDoc, ...] = ()
    tolerations: tuple[TolerationDoc, ...] = ()
    affinity: tuple[AffinityDoc, ...] = ()
    anti_affinity: tuple[AffinityDoc, ...] = ()
    spread: tuple[SpreadDoc, ...] = ()
    """Spread that must hold; ``preferredSpread`` should."""
    preferred_pods: tuple[PreferredPodsDoc, ...] = ()
    preferred_spread: tuple[SpreadDoc, ...] = ()
    host_ports: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    guaranteed: bool = False
    """QoS class Guaranteed: where NUMA zones count, its CPU and memory are aligned too, not only its devices."""
    containers: tuple[ContainerDoc, ...] = ()
    """Where it has several, for NUMA: what each asks for, beside what the pod asks for in all."""
    zones: tuple[ShareDoc, ...] = ()
    """NUMA zones that it holds where it runs; not given: not known."""
    claims: tuple[str, ...] = ()
    """Names of resource claims, in the pod's namespace."""
    claim_templates: tuple[str, ...] = ()
    """Names of claim templates: each replica gets a claim of its own of each."""
    ready: bool = True
    """Where it runs: healthy, for disruption budgets."""
    replaced: bool = True
    """A controller makes another pod in its place when it is evicted; else it is never moved."""
    run_time: Seconds | None = Field(default=None, gt=0)
    """How long it runs, at most; not given: not known."""
    started: Moment = None
    """When it started; not given: not known."""
    grace: Seconds = Field(default=USUAL_GRACE_S, ge=0)
    """How long it may take to end once it is evicted."""


class BudgetDoc(Strict):
    """A disruption budget: of the pods of its namespace that ``selector`` matches, ``allowed`` may be evicted now."""

    name: str = Field(min_length=1)
    namespace: str = "default"
    selector: tuple[RequirementDoc, ...] = ()
    """Default: all pods of the namespace."""
    allowed: int = Field(default=0, ge=0, le=LARGEST_COUNT)
    spares_unready: bool = False
    """Pods that are not ready may go, and are not counted."""


class GangDoc(Strict):
    """A gang, or ``count`` like it (``{i}`` in its name and in ``running`` nodes).

    Without ``groups`` it is flat: at least ``minMember`` of its pods (default all) or none.
    """

    name: str = Field(min_length=1)
    namespace: str = "default"
    count: int = Field(default=1, ge=0, le=100_000)
    queue: str
    priority: Whole = 50
    preemptible: bool | None = None
    """Default: priority below the policy's ``nonPreemptiblePriority``."""
    never_preempts: bool = False
    min_member: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    min_groups: int | None = Field(default=None, ge=0, le=LARGEST_COUNT)
    groups: tuple[GroupDoc, ...] | None = None
    topology: TopologyConstraintDoc | None = None
    created: Moment = None
    """Default: an hour ago, earlier gangs of the file first."""
    last_start: Moment = None
    last_eviction: Moment = None
    stale_since: Moment = None
    preemption_delay: Seconds = 0.0
    staleness_grace: Seconds | None = None
    placement: PlacementDoc = PlacementDoc()
    """Wins over the queue's, field by field."""
    workload: str = ""
    """Gangs of one namespace and workload are replicas: ``placement`` is about the pods of all of them."""
    may_use_spares: bool = False
    """Its pods may take nodes that domains keep free."""
    set_aside: str = ""
    uid: str = ""
    pods: tuple[PodDoc, ...] = ()


class PolicyDoc(Strict):
    """What the cluster's owner decided; defaults are those of ``domain.Policy``."""

    gpu_placement: Strategy = "binpack"
    cpu_placement: Strategy = "binpack"
    gpu_sharing_placement: Strategy = "binpack"
    max_consolidation_gangs: Whole = Field(default=-1, ge=-1)
    consolidating_reclaim: bool = True
    staleness_grace: Seconds = 60.0
    saturation_multiplier: float = Field(default=1.0, ge=1)
    k_value: float = Field(default=1.0, ge=0)
    non_preemptible_priority: Whole = 100
    reclaim_min_runtime: Seconds = 0.0
    preempt_min_runtime: Seconds = 0.0
    reclaim_resolve: Literal["lca", "queue"] = "lca"
    full_hierarchy: bool = True
    gpu_resources: tuple[str, ...] = Field(default=GPU_RESOURCES, min_length=1)
    """Names in ``resources`` that are whole GPUs."""
    shared_gpu_resources: tuple[str, ...] = SHARED_GPU_RESOURCES
    """Names in ``resources`` that are replicas of time-sliced GPUs; the label ``nvidia.com/gpu.replicas`` says how
    many make one GPU."""
    restrict_node_scheduling: bool = False
    """Pods with GPUs only on nodes labelled ``node-role.kubernetes.io/gpu-worker``, others only on ``cpu-worker``."""
    stuck_in_releasing: Seconds = 120.0
    """A pod ``deleted`` for longer holds its place, and nothing waits for it."""
    drain_lead: Seconds = Field(default=600.0, ge=0)
    """How long before a node is drained pods are moved away, beside the ``grace`` of each."""
    disabled_actions: frozenset[Action] = frozenset()
    """Actions that never run, whatever the model names."""


class NoticeDoc(Strict):
    """What an importer could not use as it stood."""

    kind: Literal["warning", "set-aside"]
    object: str
    text: str


class ExpectDoc(Strict):
    """What a plan for this instance should come to, for tests; what is not given is not expected.

    ``placed`` and ``pending`` are gangs (``namespace/name``, or a name in namespace default) or how many there are;
    ``evictions`` and ``moves`` are at most so many pods.
    """

    placed: tuple[str, ...] | int | None = None
    pending: tuple[str, ...] | int | None = None
    proven: tuple[str, ...] | None = None
    evictions: Whole | None = None
    moves: Whole | None = None
    link_loss: Whole | None = None
    """At most what gangs may lose by their slowest links."""
    source: Literal["bound", "greedy", "cp-sat"] | None = None
    beats_greedy: bool | None = None
    actions: tuple[str, ...] | None = None
    """Actions to run, if not the model's."""


class InstanceDoc(Strict):
    """An instance of format ``kai-solver/v1``."""

    format: Literal["kai-solver/v1"]
    name: str = ""
    description: str = ""
    now: float = Field(default=1_700_000_000.0, ge=-LARGEST_SECONDS, le=LARGEST_SECONDS)
    """Epoch seconds of the moment; a duration elsewhere (``created: 10m``) means that long before it."""
    resources: tuple[str, ...] = ()
    """Extended resources, where more than nodes and pods name."""
    nodes: tuple[NodeDoc, ...] = ()
    queues: tuple[QueueDoc, ...] = ()
    usage_history: UsageHistoryDoc | None = None
    topologies: tuple[TopologyDoc, ...] = ()
    gangs: tuple[GangDoc, ...] = ()
    foreign: tuple[PodDoc, ...] = ()
    device_classes: tuple[DeviceClassDoc, ...] = ()
    resource_slices: tuple[SliceDoc, ...] = ()
    resource_claim_templates: tuple[TemplateDoc, ...] = ()
    resource_claims: tuple[ClaimDoc, ...] = ()
    claim_queue_label: str = "kai.scheduler/queue"
    """Label of a shared claim of GPUs that must name the queue of the pods that use it."""
    disruption_budgets: tuple[BudgetDoc, ...] = ()
    refused: tuple[str, ...] = ()
    """Pods (``namespace/name``) whose eviction was refused lately: they are not tried again yet."""
    policy: PolicyDoc = PolicyDoc()
    notices: tuple[NoticeDoc, ...] = ()
    expect: ExpectDoc | None = None


def json_schema() -> dict[str, Any]:
    """JSON Schema of the format, as published in ``instances/schema``."""
    schema = InstanceDoc.model_json_schema(by_alias=True)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"Instance of format {FORMAT}",
    } | {key: value for key, value in schema.items() if key != "title"}
