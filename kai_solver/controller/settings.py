"""Settings of the controller: one typed file, environment variables, flags; the last has the last word.

A key of the file may be given as a variable, too: ``KAI_SOLVER_NODE_POOL=a100`` or
``KAI_SOLVER_EVICTIONS__PER_CYCLE=20``. Variables that begin so and are no key are refused.
"""

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from kai_solver.controller.variables import PREFIX, check_variables, variable_of
from kai_solver.domain import Action
from kai_solver.domain.placement import Strategy
from kai_solver.errors import InputError, LimitExceededError, nearest
from kai_solver.errors.values import problem_of
from kai_solver.fairness import UsageParams
from kai_solver.instances_io.limits import Limits
from kai_solver.instances_io.unpack import read_bytes
from kai_solver.instances_io.yaml_text import parse_yaml
from kai_solver.kubeobjects.access import Access, Allowance
from kai_solver.kubeobjects.usagedb import ALLOCATED, CAPACITY, UsageStore, place_of, without_login
from kai_solver.modelfiles.schema import BudgetSeconds, seconds

AnySeconds = Annotated[float, BeforeValidator(seconds), Field(ge=-86_400, le=86_400)]
Seconds = Annotated[float, BeforeValidator(seconds), Field(ge=0, le=86_400)]
Span = Annotated[float, BeforeValidator(seconds), Field(ge=0, le=366 * 86_400)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Evictions(_Part):
    """How fast running pods may be evicted."""

    per_cycle: int = Field(default=0, ge=0, description="The most pods evicted in one cycle; 0: no limit.")
    per_queue: int = Field(default=0, ge=0, description="The most pods of one queue evicted in one cycle; 0: no limit.")
    budgets: Literal["all", "labelled", "none"] = Field(
        default="all",
        description="PodDisruptionBudgets that restrict evictions: all, those in labelled namespaces, or none (KAI).",
    )
    budget_label: str = Field(
        default="kai-solver/budgets",
        min_length=1,
        description="Label of such namespaces, with budgets: labelled. Its value is 'enabled'.",
    )
    budget_grace: Seconds | None = Field(
        default=300.0,
        description="Time for which budgets may keep a gang from room. Then they are ignored as long. Empty: for ever.",
    )


class Leadership(_Part):
    """Which of several replicas leads."""

    enabled: bool = Field(default=True, description="Elect a leader. Without it, run only one replica.")
    name: str = Field(
        default="", description="Name of the Lease. Empty: kai-solver-<scheduler_name>, and the node pool's name."
    )
    live: Seconds = Field(
        default=15.0,
        description="Another replica takes the lead after this time without renewal (Kubernetes: leaseDuration).",
    )
    renew: Seconds = Field(
        default=10.0,
        description="A leader that cannot renew for this time writes nothing until it leads again"
        " (Kubernetes: renewDeadline).",
    )
    retry: Seconds = Field(
        default=2.0, description="Time between attempts to get or renew the Lease (Kubernetes: retryPeriod)."
    )

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        """A leader must know that it lost the Lease before another may begin."""
        if not 0 < self.retry < self.renew < self.live:
            raise ValueError(
                "retry must be above 0 and below renew, and renew below live. Otherwise two replicas could lead"
            )
        return self


class Workers(_Part):
    """Threads."""

    writes: int = Field(
        default=16, ge=1, le=256, description="Concurrent requests to the API server, and as many concurrent evictions."
    )
    gangs: int = Field(default=32, ge=1, le=1024, description="Gangs bound at the same time.")
    waits: int = Field(
        default=64,
        ge=1,
        le=1024,
        description="Pods, and gangs, that wait for volumes, devices or KAI's binder at the same time.",
    )


class Recording(_Part):
    """Where a dry run stores what it would do, and what the scheduler at work did."""

    folder: str = Field(default="", description="Folder for the recording of a dry run. Empty: it is not stored.")
    file_mib: int = Field(default=16, ge=1, le=1024, description="Largest size of one file of the recording, in MiB.")
    files: int = Field(
        default=8, ge=2, le=1000, description="Largest number of files. The oldest is deleted when a new one begins."
    )


class Sharing(_Part):
    """Pods with a part of a GPU."""

    image: str = Field(
        default="ghcr.io/kai-scheduler/kai-scheduler/resourcereservation:v0.16.9",
        description="Image of the reservation pods, KAI's resourcereservation. Empty: no GPU is shared.",
    )
    service_account: str = Field(
        default="kai-resource-reservation", description="Service account of the reservation pods."
    )
    runtime_class: str = Field(default="", description="Runtime class of the reservation pods. Empty: the node's own.")
    wait: Seconds = Field(default=40.0, description="How long a reservation pod may take to report its device.")


class SpareAccess(_Part):
    """Users and namespaces that may use spare nodes."""

    namespaces: tuple[str, ...] = Field(default=(), description="Namespaces, like team-a or team-*.")
    users: tuple[str, ...] = Field(default=(), description="Users of the API server, only at admission.")
    groups: tuple[str, ...] = Field(default=(), description="Groups of the API server, only at admission.")

    def allowance(self) -> Allowance:
        """The rule."""
        return Allowance((), self.namespaces, self.users, self.groups)


class QueueAccess(SpareAccess):
    """Users and namespaces that may use some queues."""

    queues: tuple[str, ...] = Field(min_length=1, description="Queues, like research or research-*.")

    def allowance(self) -> Allowance:
        """The rule."""
        return Allowance(self.queues, self.namespaces, self.users, self.groups)


class AccessRules(_Part):
    """Rights to use queues and spare nodes; what no rule is about is open to all, as in KAI."""

    queues: tuple[QueueAccess, ...] = Field(
        default=(), description="A list of {queues, namespaces, users, groups}. Empty: all may use every queue."
    )
    spares: tuple[SpareAccess, ...] = Field(
        default=(), description="A list of {namespaces, users, groups}. Empty: all may use spare nodes."
    )

    def access(self) -> Access:
        """The rules as the cluster is read by them."""
        return Access(tuple(rule.allowance() for rule in self.queues), tuple(rule.allowance() for rule in self.spares))


class PolicySettings(_Part):
    """Cluster-wide policy; what is left open is the word of KAI's SchedulingShard and Config, else KAI's default."""

    gpu_placement: Strategy | None = Field(
        default=None, description="binpack or spread over nodes, for pods with GPUs (binpack)."
    )
    cpu_placement: Strategy | None = Field(default=None, description="The same for pods without GPUs (binpack).")
    gpu_sharing_placement: Strategy | None = Field(
        default=None, description="Parts of GPUs on few or on many devices (as gpu_placement)."
    )
    restrict_node_scheduling: bool | None = Field(
        default=None,
        description="Pods with GPUs only on nodes labelled gpu-worker, others only on cpu-worker (false).",
    )
    full_hierarchy: bool | None = Field(
        default=None, description="Fair share level by level. false: all leaf queues under one root (true)."
    )
    max_consolidation_gangs: int | None = Field(
        default=None, ge=-1, description="Gangs that may be moved for one; 0: none, -1: any number (-1; KAI: 16)."
    )
    consolidating_reclaim: bool | None = Field(
        default=None, description="Victims of reclaim that fit elsewhere are moved instead (true)."
    )
    staleness_grace: AnySeconds | None = Field(
        default=None, description="How long a gang may run below its minimum; negative: for ever (60)."
    )
    stuck_in_releasing: Seconds | None = Field(
        default=None, description="After this time nothing waits for the place of a deleted pod (120)."
    )
    drain_lead: Seconds | None = Field(
        default=None,
        description="How long before `drain-at` of a node pods move away, beside the grace of each (600).",
    )
    reclaim_min_runtime: Seconds | None = Field(
        default=None, description="How long work runs before it may be reclaimed, if no queue says (0)."
    )
    preempt_min_runtime: Seconds | None = Field(
        default=None, description="How long work runs before it may be preempted, if no queue says (0)."
    )
    reclaim_resolve: Literal["lca", "queue"] | None = Field(
        default=None, description="How reclaim looks up the queue's minimum run time (lca)."
    )
    k_value: float | None = Field(default=None, ge=0, description="Weight of past usage in fair shares (1).")
    saturation_multiplier: float | None = Field(
        default=None, ge=1, description="Factor of the reclaimer's saturation against its siblings' (1)."
    )
    non_preemptible_priority: int | None = Field(
        default=None, description="Priority from which work cannot be preempted (100)."
    )
    gpu_resources: Annotated[tuple[str, ...], Field(min_length=1)] | None = Field(
        default=None, description="Resources that are whole GPUs (nvidia.com/gpu, amd.com/gpu)."
    )
    shared_gpu_resources: tuple[str, ...] | None = Field(
        default=None, description="Resources that are replicas of time-sliced GPUs (nvidia.com/gpu.shared)."
    )
    disabled_actions: frozenset[Action] | None = Field(
        default=None, description="Actions that never run, like [preempt] (none)."
    )
    numa: bool | None = Field(default=None, description="Use NUMA zones that nodes report (true).")
    numa_ignored: tuple[str, ...] | None = Field(
        default=None, description="Resources that need not be in one NUMA zone (none)."
    )
    numa_reconstruct: bool | None = Field(
        default=None, description="Compute what is free in NUMA zones from the pods (true)."
    )


class Amounts(_Part):
    """Expressions of PromQL, one for each resource."""

    cpu: str = Field(default="", description="CPU, in cores.")
    memory: str = Field(default="", description="Memory, in bytes.")
    gpu: str = Field(default="", description="GPUs.")

    def over(self, usual: tuple[str, ...]) -> tuple[str, ...]:
        """What is stated, else the usual one."""
        return tuple(one or other for one, other in zip((self.cpu, self.memory, self.gpu), usual, strict=True))


class PastUsageSettings(_Part):
    """Time-based fair share: the Prometheus that is asked for past usage. Open: the one of KAI's SchedulingShard."""

    url: str = Field(
        default="", description="Address of Prometheus, like http://HOST:9090. Empty: as KAI's SchedulingShard says."
    )
    url_variable: str = Field(
        default="", description="Environment variable with the address, if a password is in it. See `env` of the chart."
    )
    window_type: Literal["sliding", "tumbling"] = Field(
        default="sliding",
        description="sliding: the last `window_size`; tumbling: starts again after each one.",
    )
    window_size: Span = Field(default=604_800.0, description="Length of the window (a week).")
    window_start: float = Field(
        default=0.0, ge=0, description="With tumbling: a moment at which a window begins, in epoch seconds."
    )
    half_life: Span = Field(default=0.0, description="Usage of this age counts half. 0: all counts equally.")
    interval: Seconds = Field(default=60.0, description="How often Prometheus is asked.")
    staleness: Seconds = Field(default=300.0, description="Usage that is older is warned of. It counts all the same.")
    wait: Seconds = Field(default=60.0, description="For how long decisions wait for the first answer.")
    timeout: Seconds = Field(default=10.0, description="How long all answers together may take.")
    resolution: Seconds = Field(default=60.0, description="Distance of the moments that are added up.")
    allocated: Amounts = Field(
        default=Amounts(), description="What queues hold, by the label queue_name. Empty: the metrics of KAI and ours."
    )
    capacity: Amounts = Field(
        default=Amounts(), description="What the cluster has. Empty: the metrics of kube-state-metrics."
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.url:
            try:
                place_of(self.url)
            except InputError as error:
                raise ValueError(f"url {error.problem}. {error.cure}") from None
            if without_login(self.url) != self.url:
                raise ValueError("url has a user or a password. Name an environment variable: url_variable")
        return self

    @property
    def store(self) -> UsageStore | None:
        """The store that is stated; None if that is left open. Durations by which it is asked are at least a second."""
        if not (self.url or self.url_variable):
            return None
        params = UsageParams(
            self.window_type,
            max(1.0, self.window_size),
            self.window_start,
            self.half_life or None,
            max(1.0, self.resolution),
            staleness_s=self.staleness,
        )
        return UsageStore(
            self.url,
            "" if self.url else self.url_variable,
            params,
            max(1.0, self.interval),
            self.wait,
            max(1.0, self.timeout),
            self.allocated.over(ALLOCATED),
            self.capacity.over(CAPACITY),
            "settings.past_usage",
        )


class Admission(_Part):
    """The admission webhook: what is refused, warned of and filled in before an object is kept."""

    enabled: bool = Field(default=False, description="Serve the webhook. The chart has the webhook configurations.")
    bind_address: str = Field(default=":9443", description="Address of the webhook, over TLS.")
    service: str = Field(
        default="kai-solver-admission",
        min_length=1,
        description="Service of the webhook, in the controller's namespace.",
    )
    configuration: str = Field(
        default="kai-solver-admission",
        min_length=1,
        description="Name of its webhook configurations. It keeps their caBundle right, and touches no others.",
    )
    secret: str = Field(
        default="kai-solver-admission",
        min_length=1,
        description="Secret in the controller's namespace for its own certificate.",
    )
    certificate_days: int = Field(
        default=365,
        ge=1,
        le=3650,
        description="Lifetime of the controller's own certificate. It is renewed after two thirds of it.",
    )
    cert_file: str = Field(
        default="", description="A given certificate (PEM) instead of its own. Read again when it changes."
    )
    key_file: str = Field(default="", description="Its key.")
    ca_file: str = Field(
        default="",
        description="Certificate of its signer, for caBundle. Empty: cert-manager or a similar program sets caBundle.",
    )
    gpu_sharing: bool = Field(default=True, description="Allow pods that ask for a part of a GPU.")
    block_nvidia_visible_devices: bool | None = Field(
        default=None,
        description="Pods may not choose devices by NVIDIA_VISIBLE_DEVICES. Empty: as KAI's Config says (false).",
    )
    queue_typo: Literal["refuse", "warn"] = Field(
        default="refuse", description="What happens to an object that names a missing queue."
    )
    quota_warnings: bool = Field(
        default=False, description="Warn if the quotas of a queue's children are above its own."
    )
    guard: bool = Field(
        default=False,
        description="Refuse labels and annotations of schedulers if another account writes them.",
    )
    guard_groups: tuple[str, ...] = Field(
        default=("system:nodes", "system:serviceaccounts:kai-scheduler"),
        description="Groups that may write them, besides its own accounts and those of reservation pods.",
    )
    namespace_label: str = Field(
        default="kai-solver/inject",
        min_length=1,
        description="Pods in namespaces with this label set to 'enabled' get our scheduler name, and a queue.",
    )
    queue: str = Field(
        default="", description="Queue of such pods, if neither they nor their namespace name one. Empty: none."
    )
    runtime_class: str = Field(
        default="nvidia", description="Runtime class of our pods that ask for a part of a GPU. Empty: none."
    )


class ControllerSettings(BaseSettings):
    """Everything that can be set."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        extra="forbid",
        frozen=True,
        nested_model_default_partial_update=True,
    )

    scheduler_name: str = Field(
        default="kai-scheduler",
        min_length=1,
        description="The controller schedules pods with this schedulerName. All others are load.",
    )
    node_pool: str = Field(
        default="", description="Value of the node pool label of its nodes, queues and pods. Empty: those without it."
    )
    node_pool_key: str = Field(default="kai.scheduler/node-pool", min_length=1, description="That label.")
    queue_label_key: str = Field(
        default="kai.scheduler/queue", min_length=1, description="Label that names the queue of a pod or its owner."
    )
    default_queue: str = Field(default="default-queue", min_length=1, description="Queue of work that names no queue.")
    namespace: str = Field(
        default="kai-solver",
        min_length=1,
        description="The controller's own namespace, with its Lease and certificate.",
    )
    signing_secret: str = Field(
        default="kai-solver-signing",
        min_length=1,
        description="Secret in its namespace with the keys that sign annotations. The leader creates it.",
    )
    model: str = Field(default="default", description="Solver model: the name of a shipped one, or a TOML file.")
    budget: BudgetSeconds | None = Field(
        default=None, description="Seconds for one decision, more than 0. Empty: the model's."
    )
    compile_kernels: bool = Field(
        default=True,
        description="Compile the kernels for large clusters in a separate process, if the image does not have them.",
    )
    period: Seconds = Field(
        default=1.0,
        description="Least time between the starts of two cycles.",
    )
    settle: Seconds = Field(
        default=0.05,
        description="Wait after the first change, so that changes which come together are decided together.",
    )
    idle: Seconds = Field(
        default=30.0,
        description="Time between cycles without changes while a pod is pending. Ten times that without pending pods.",
    )
    grouping: Literal["own", "external"] = Field(
        default="own", description="own: pods become gangs here; external: KAI's pod grouper writes PodGroups."
    )
    binding: Literal["own", "bindrequest"] = Field(
        default="own", description="own: pods are bound here; bindrequest: BindRequests for KAI's binder."
    )
    accounting: Literal["own", "external"] = Field(
        default="own",
        description="own: the sums in statuses of Queues and PodGroups are written here; external: KAI's queue "
        "controller and pod-group controller write them.",
    )
    write_pod_groups: bool = Field(
        default=True, description="Write a PodGroup for plain pods, too, as KAI does. Two more writes for each of them."
    )
    status_rate: float = Field(
        default=2000.0,
        ge=1,
        le=10_000,
        description="The most statuses and events a second. A twentieth of it during bindings.",
    )
    dry_run: bool = Field(
        default=False, description="Decide and report, but change nothing. For use beside another scheduler."
    )
    recording: Recording = Field(default=Recording(), description="The recording of a dry run, for kai-solver shadow.")
    volume_wait: Seconds = Field(default=120.0, description="How long the volumes of a pod may take to be bound.")
    binder_wait: Seconds = Field(
        default=300.0, description="How long KAI's binder may take for a pod, with binding: bindrequest."
    )
    sharing: Sharing = Field(default=Sharing(), description="Pods with a part of a GPU.")
    evictions: Evictions = Field(default=Evictions(), description="How fast running pods may be evicted.")
    leadership: Leadership = Field(default=Leadership(), description="Which of several replicas leads.")
    workers: Workers = Field(default=Workers(), description="Threads.")
    admission: Admission = Field(default=Admission(), description="The admission webhook.")
    policy: PolicySettings = Field(
        default=PolicySettings(), description="Cluster-wide policy; empty: as KAI's SchedulingShard and Config say."
    )
    past_usage: PastUsageSettings = Field(
        default=PastUsageSettings(), description="Past usage, for time-based fair share."
    )
    access: AccessRules = Field(default=AccessRules(), description="Rights to use queues and spare nodes.")
    kubeconfig: str = Field(default="", description="Kubeconfig file. Empty: the pod's service account.")
    context: str = Field(default="", description="Context in the kubeconfig. Empty: the current one.")
    metrics_bind_address: str = Field(default=":8080", description="Address that serves /metrics. Empty: none.")
    metrics_authorization: bool = Field(
        default=False, description="Serve /metrics only to callers that RBAC allows, like /explain."
    )
    health_bind_address: str = Field(
        default=":8081", description="Address that serves /healthz and /readyz, to all callers. Empty: none."
    )
    answers_bind_address: str = Field(
        default="127.0.0.1:8082",
        description="Address that serves /explain, /plan, /recording and /get-snapshot, to callers that RBAC allows. "
        "Empty: none.",
    )
    stuck_after: Seconds = Field(
        default=60.0, description="The loop is unhealthy if it does not move for this time beyond its budget."
    )
    metrics_namespace: str = Field(default="kai", min_length=1, description="Prefix of KAI's metrics.")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level that is logged."
    )
    log_format: Literal["json", "console"] = Field(default="json", description="json for machines, console for people.")

    @property
    def lease_name(self) -> str:
        """Name of our Lease, never that of KAI's own scheduler."""
        pool = f"-{self.node_pool}" if self.node_pool else ""
        usual = re.sub(
            r"[^a-z0-9.-]", "-", f"kai-solver-{self.scheduler_name}{pool}".lower()
        )  # as objects may be named
        return self.leadership.name or usual


def load_settings(file: Path | None = None, **flags: Any) -> ControllerSettings:
    """Settings of a YAML file, of the environment, and of flags; a flag that is None was not given.

    Raises
    ------
    InputError
        The file cannot be read, or a key, variable or value is not allowed: names it and what is allowed.
    """
    given = {name: value for name, value in flags.items() if value is not None}
    try:
        found = _over(_document(file) if file is not None else {})(**given)
    except SettingsError as invalid:
        part = next((name for name in ControllerSettings.model_fields if f'"{name}"' in str(invalid)), "")
        cure = f"State each key alone, like {variable_of('evictions.per_cycle')}=20"
        raise InputError("is not valid JSON", field=variable_of(part), cure=cure) from None
    except ValidationError as invalid:
        first = invalid.errors()[0]
        field = ".".join(str(part) for part in first["loc"])
        if first["type"] != "extra_forbidden":
            cure = "controller --show-settings prints each key with what it is for"
            raise InputError(problem_of(first), file=str(file or ""), field=field, cure=cure) from None
        known = sorted(_keys_of(ControllerSettings))
        like = nearest(field, known)
        cure = f"Did you mean {like}?" if like else f"Known keys: {', '.join(known)}"
        raise InputError("unknown setting", file=str(file or ""), field=field, cure=cure) from None
    check_variables(os.environ, _keys_of(ControllerSettings), found.past_usage.url_variable)
    return found


def _keys_of(table: type[BaseModel], before: str = "") -> Iterator[str]:
    """Every key with a dot between the levels: ``evictions.per_cycle``."""
    for name, field in table.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel):
            yield from _keys_of(inner, f"{before}{name}.")
        else:
            yield f"{before}{name}"


def _over(stated: dict[str, Any]) -> type[ControllerSettings]:
    """The settings with a file's at the bottom: flags, then the environment, then the file."""

    class WithFile(ControllerSettings):
        @classmethod
        def settings_customise_sources(
            cls,
            settings_cls: type[BaseSettings],
            init_settings: PydanticBaseSettingsSource,
            env_settings: PydanticBaseSettingsSource,
            dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - the library's signature
            file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=stated)

    return WithFile


_LIMITS = Limits(max_bytes=1 << 20, max_objects=1_000)
"""Of the settings file: all keys, each with its comment, are about 10 KiB."""


def _document(file: Path) -> dict[str, Any]:
    cure = "Write one key a line: period: 1s"
    try:
        documents = parse_yaml(read_bytes(file, _LIMITS), str(file), _LIMITS)
    except LimitExceededError as error:
        raise InputError(error.problem, file=str(file), cure=cure) from None
    if not documents:
        return {}
    found, *more = documents
    if more or not isinstance(found, dict) or not all(isinstance(name, str) for name in found):
        raise InputError("is not one mapping of keys to values", file=str(file), cure=cure)
    return found


def settings_text(settings: ControllerSettings) -> str:
    """All settings as the file that would set them, each with what it does."""
    return "".join(_lines(settings, ""))


def _lines(part: BaseModel, indent: str) -> Iterator[str]:
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        yield f"{indent}# {field.description}\n"
        if isinstance(value, BaseModel):
            yield f"{indent}{name}:\n"
            yield from _lines(value, indent + "  ")
        else:
            plain = part.model_dump(mode="json", include={name})[name]
            written = yaml.safe_dump(plain, default_flow_style=True, explicit_end=False).removesuffix("...\n").strip()
            yield f"{indent}{name}: {written}\n"
