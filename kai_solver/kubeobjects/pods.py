"""Pods: what they ask for, where they are, and in which state (docs/kai-behaviour.md#pod-states)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache

from kai_solver.domain import USUAL_GRACE_S, Constraints, GpuRequest, Pod, PodStatus, ZoneShare, implied_terms
from kai_solver.domain.gpus import shares_elsewhere
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.bindings import Binding, binding_of
from kai_solver.kubeobjects.claims import ClaimBook
from kai_solver.kubeobjects.constraints import ConstraintReader, marks
from kai_solver.kubeobjects.gpus import gpu_groups, gpu_request, warn_of_bytes, with_row
from kai_solver.kubeobjects.maintenance import read_run_time_s
from kai_solver.kubeobjects.nodes import NodeReading
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.ownkeys import strays
from kai_solver.kubeobjects.pluginonly import NO_OFFERS, PluginOnly
from kai_solver.kubeobjects.raw import Raw, parse_time_s
from kai_solver.kubeobjects.resources import Amounts, pod_request
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.kubeobjects.shares import Reservations, Share, parse_share, warn_unproven
from kai_solver.kubeobjects.zones import NO_PARTS, RawContainers, is_guaranteed, read_containers, zone_shares
from kai_solver.units import ResourceSchema, Vector, parse_whole

_LEAD_RANK = -(10**9)
"""Masters, launchers and heads come before every task priority (docs/kai-behaviour.md#order)."""

_LEAD_ROLES = ("master", "launcher")


@dataclass(frozen=True, slots=True)
class RawPod:
    """A pod before its gang and the schema are known; ``strays``: what is wrong with annotations of ours.

    ``unproven``: it runs and requests a part of a GPU, and only values that users can write name the GPU.
    """

    raw: Raw
    namespace: str
    name: str
    uid: str
    labels: dict[str, str]
    annotations: dict[str, str]
    scheduler: str
    status: PodStatus
    node: str
    amounts: Amounts
    gpu: GpuRequest
    paid_gpu_milli: int
    constraints: Constraints
    gpu_groups: tuple[str, ...]
    devices: tuple[int, ...]
    nominated_node: str
    order: tuple[int, float, str]
    guaranteed: bool
    containers: RawContainers
    zones: tuple[ZoneShare, ...]
    claims: tuple[str, ...] = ()
    ready: bool = True
    wished: tuple[int, ...] = ()
    strays: tuple[str, ...] = ()
    unproven: bool = False
    is_replaced: bool = False
    run_time_s: float | None = None
    started_s: float | None = None
    grace_s: float = USUAL_GRACE_S
    key: str = field(init=False, repr=False, compare=False)
    """``namespace/name``."""

    def __post_init__(self) -> None:
        """Write the key once: it is asked for all the time."""
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    def finish(self, schema: ResourceSchema, podset: str = "default") -> Pod:
        """The pod with its vector, in its podset."""
        extended = {name: amount for name, amount in self.amounts.items() if name in schema.names and name != "gpu"}
        return Pod(
            namespace=self.namespace,
            name=self.name,
            request=_shared(schema.vector({**extended, "pods": 1})),
            gpu=self.gpu,
            status=self.status,
            podset=podset,
            node=self.node,
            devices=self.devices,
            gpu_groups=self.gpu_groups,
            nominated_node=self.nominated_node,
            quota_gpu_milli=self.paid_gpu_milli,
            constraints=self.constraints,
            labels=self.labels | marks(self.constraints),
            order=self.order,
            guaranteed=self.guaranteed,
            containers=self.containers.finish(schema),
            zones=self.zones,
            claims=self.claims,
            ready=self.ready,
            wished=self.wished,
            is_replaced=self.is_replaced,
            run_time_s=self.run_time_s,
            started_s=self.started_s,
            grace_s=self.grace_s,
        )


@lru_cache(maxsize=4096)
def _shared(request: Vector) -> Vector:
    """The request; the same object for the same request, by which a problem knows pods of one kind.

    It holds on to a pod for each object that it meets: without this, to 1,000 pods that are gone.
    """
    return request


def without_claims(raw: Raw) -> Raw:
    """A pod without the annotations that state its request and its devices.

    Of the fields that are read here, users can change only these while the pod runs; the API server checked the rest.
    """
    said = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES)
    kept = {name: text for name, text in raw.strings("metadata.annotations").items() if name not in said}
    metadata = {name: part.value for name, part in raw.fields("metadata")}
    value = {name: part.value for name, part in raw.fields()}
    return Raw({**value, "metadata": {**metadata, "annotations": kept}})


def _nominated(raw: Raw, node: str) -> str:
    """The node that the pod was promised; none once it is bound, though the API server may keep the field."""
    nominated = raw.text("status.nominatedNodeName")
    return "" if nominated == node else nominated


def _has_controller(raw: Raw) -> bool:
    """Whether a controller replaces the pod when it is evicted; a node does not, although it owns its static pods."""
    owners = raw.items("metadata.ownerReferences")
    return any(owner.get("controller").value is True and owner.text("kind") != "Node" for owner in owners)


@dataclass(frozen=True, slots=True)
class PodReader:
    """Reads pods, given what else is in the cluster.

    ``reservations``: what reservation pods say of shared devices. ``has_zones``: some node has NUMA
    zones that count; else it does not matter what of a pod is aligned.
    """

    bindings: dict[str, Binding]
    reservations: Reservations
    constraints: ConstraintReader
    nodes: NodeReading
    settings: KubeSettings
    now_s: float
    notices: Notices
    has_zones: bool = False
    claims: ClaimBook = field(default_factory=ClaimBook)
    plugin_only: PluginOnly = NO_OFFERS

    def read(self, raw: Raw, twin: RawPod | None = None) -> RawPod:
        """Read one pod; ``twin``: one that states the same (`twins.stated_by`), stands alone, and asks for no share.

        Raises
        ------
        InputError
            A field is missing, of the wrong type or not usable; names the field.
        """
        name, namespace = raw.required("metadata.name"), raw.text("metadata.namespace") or "default"
        uid = raw.text("metadata.uid")
        labels, annotations = raw.strings("metadata.labels"), raw.strings("metadata.annotations")
        if twin is not None:
            amounts, gpu = twin.amounts, twin.gpu
        else:
            if not raw.items("spec.containers"):
                raise InputError("has no containers", field="spec.containers", cure="Add one, or check the indentation")
            amounts = pod_request(raw.get("spec"), self.settings.policy.gpu_resources)
            gpu = gpu_request(amounts.get("gpu", 0), annotations)
            gpu = with_row(gpu, annotations, f"Pod {namespace}/{name}", self.notices)
            warn_of_bytes(gpu, f"Pod {namespace}/{name}", self.notices)
        binding = binding_of(self.bindings, f"{namespace}/{name}", uid)
        status = self._status(raw, binding)
        node = _node(raw, status, binding)
        paid_milli = self.nodes.paid_gpu_milli(amounts, node, self.settings.policy)
        if twin is not None and twin.paid_gpu_milli == paid_milli:
            keys, constraints = twin.claims, twin.constraints
        else:
            keys, lacking = self.claims.of_pod(raw)
            constraints = self._constraints(raw, labels, amounts, gpu, paid_milli, lacking)
        share, unproven = self._share(uid, labels, annotations, status, node, binding, gpu)
        gpu = share.gpu
        if unproven and not share.groups:
            warn_unproven(f"{namespace}/{name}", node, self.notices)
        return RawPod(
            raw=raw,
            namespace=namespace,
            name=name,
            uid=uid,
            labels=labels,
            annotations=annotations,
            scheduler=raw.text("spec.schedulerName"),
            status=status,
            node=node,
            amounts=amounts,
            gpu=gpu,
            paid_gpu_milli=paid_milli,
            constraints=constraints,
            gpu_groups=share.groups,
            devices=self._devices(node, share.groups, annotations),
            nominated_node=_nominated(raw, node),
            order=(_rank(labels), raw.created_s(self.now_s), uid),
            guaranteed=self.has_zones and is_guaranteed(raw, self.settings.policy.gpu_resources),
            containers=read_containers(raw.get("spec"), self.settings.policy.gpu_resources)
            if self.has_zones
            else NO_PARTS,
            zones=self._zones(f"{namespace}/{name}", status, annotations, binding, uid),
            claims=keys,
            ready=_ready(raw, status),
            wished=self._wished(gpu, status, annotations, uid),
            strays=strays(annotations, "Pod"),
            unproven=unproven,
            is_replaced=_has_controller(raw),
            run_time_s=_run_time_s(raw, annotations, f"Pod {namespace}/{name}", self.notices),
            started_s=parse_time_s(raw.text("status.startTime")),
            grace_s=_grace_s(raw),
        )

    def _constraints(
        self,
        raw: Raw,
        labels: dict[str, str],
        amounts: Amounts,
        gpu: GpuRequest,
        paid_milli: int,
        lacking: tuple[str, ...],
    ) -> Constraints:
        """The pod's own rules, those that its request implies, and the reason that keeps it from every node."""
        claims, single = bool(raw.items("spec.resourceClaims")), self.nodes.has_single_mig
        implied = implied_terms(gpu, paid_milli, self.settings.policy, claims=claims, single_mig=single)
        if gpu.is_shared and self.nodes.not_shared:
            implied = (*implied, shares_elsewhere(self.nodes.not_shared))
        terms, refused = self.plugin_only.of_pod(amounts)
        constraints = self.constraints.read(raw, labels, (*implied, *terms))
        shares = (self.settings.no_shares,) if gpu.is_shared and self.settings.no_shares else ()
        lacking = (*lacking, *refused, *shares)
        return replace(constraints, blocked=(*constraints.blocked, *lacking)) if lacking else constraints

    def is_still(self, pod: RawPod) -> bool:
        """Whether the state that was read still holds while the object is unchanged: a deletion may take too long."""
        is_timed = pod.status in (PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING)
        return not is_timed or self._status(pod.raw, None) is pod.status

    def read_again(self, pod: RawPod, raw: Raw) -> RawPod:
        """The pod after a change of its state and node alone; no request to bind it is open.

        Raises
        ------
        InputError
            As `read`.
        """
        status = self._status(raw, None)
        return replace(
            pod,
            raw=raw,
            status=status,
            ready=_ready(raw, status),
            wished=self._wished(pod.gpu, status, pod.annotations, pod.uid),
            node=(node := _node(raw, status, None)),
            nominated_node=_nominated(raw, node),
            zones=self._zones(pod.key, status, pod.annotations, None, pod.uid),
            started_s=parse_time_s(raw.text("status.startTime")),
        )

    def _zones(
        self, key: str, status: PodStatus, annotations: Mapping[str, str], binding: Binding | None, uid: str
    ) -> tuple[ZoneShare, ...]:
        """NUMA zones that the pod holds; a record that cannot be read is reported, and ignored."""
        if not self.has_zones or not status.holds_resources:
            return ()
        trust = self.settings.trust
        kept = (names.NUMA_OBSERVED, names.NUMA_PREDICTED)
        annotations = {name: value for name in kept if (value := trust.signed(annotations, name, uid))}
        try:
            return zone_shares(annotations, self.settings.policy.gpu_resources, binding.zones if binding else ())
        except InputError as error:
            self.notices.warn(f"Pod {key}", f"its NUMA zones are not known: {error}")
            return ()

    def _status(self, raw: Raw, binding: Binding | None) -> PodStatus:
        """KAI's mapping, in its order (``pod_info.getTaskStatus``)."""
        phase = raw.text("status.phase") or "Pending"
        deleted_s = raw.time_s("metadata.deletionTimestamp")
        if phase == "Pending":
            return _pending_status(raw, deleted_s is not None, binding)
        if phase in ("Succeeded", "Failed"):
            return PodStatus(phase)
        if phase == "Unknown":
            return PodStatus.STUCK_IN_RELEASING  # its node is lost: it holds its place, and nothing may count on it
        if phase != "Running":
            raise InputError(f"{phase!r} is not a phase", field="status.phase", cure="Write Pending, Running, ...")
        if deleted_s is None:
            return PodStatus.RUNNING
        stuck = deleted_s < self.now_s - self.settings.policy.stuck_in_releasing_s
        return PodStatus.STUCK_IN_RELEASING if stuck else PodStatus.RELEASING

    def _share(
        self,
        uid: str,
        labels: Mapping[str, str],
        annotations: Mapping[str, str],
        status: PodStatus,
        node: str,
        binding: Binding | None,
        gpu: GpuRequest,
    ) -> tuple[Share, bool]:
        """The pod's part of shared devices, or its request, and whether only users state it (see ``shares``)."""
        named, trust = gpu_groups(labels), self.settings.trust
        asked = binding.gpu_groups if binding is not None and status.holds_resources else ()
        if not trust.strict:
            return Share(named or asked, gpu), False
        if not status.holds_resources:
            return Share((), gpu), False
        given = self.reservations.users.get((node, uid))
        given = given or parse_share(trust.signed(annotations, names.OWN_SHARE, uid))
        if given is not None:
            return given, False
        if not gpu.is_shared or uid.endswith(names.PROMISED):
            return Share((), gpu), False  # a promised pod has no device yet, and reserves room for one
        if asked:
            return Share(asked, gpu), False
        is_reserved = bool(named) and all((node, group) in self.reservations.groups for group in named)
        return (Share(named, gpu) if is_reserved else Share(())), True

    def _devices(self, node: str, groups: tuple[str, ...], annotations: Mapping[str, str]) -> tuple[int, ...]:
        """Indices of the devices of all groups, from reservation pods, or else from our own export."""
        found = tuple(self.reservations.devices.get((node, group), -1) for group in groups)
        if found and min(found) >= 0:
            return found
        stated = self.settings.trust.stated(annotations, names.OWN_DEVICES)
        return _indices(stated) if stated else ()

    def _wished(self, gpu: GpuRequest, status: PodStatus, annotations: Mapping[str, str], uid: str) -> tuple[int, ...]:
        """Whole devices that a plan chose when the pod was bound; none if the annotation has any other text."""
        if names.OWN_WISHED not in annotations or not gpu.is_whole or not status.holds_resources:
            return ()
        parts = self.settings.trust.signed(annotations, names.OWN_WISHED, uid).split(",")
        found = tuple(number for part in parts if (number := parse_whole(part, 4)) is not None)
        return found if len(parts) == len(found) == gpu.devices else ()


def started_s(pods: Iterable[Raw]) -> float | None:
    """Epoch seconds of when the first of some pods was bound, as the API server noted it; None where it did not.

    KAI notes the start of a gang on its PodGroup, as soon as one of its pods has a place
    (docs/kai-behaviour.md#min-runtime); plain pods need no PodGroup here, and say it themselves.
    """
    found = (_scheduled_s(pod) for pod in pods)
    return min((stamp_s for stamp_s in found if stamp_s is not None), default=None)


def _scheduled_s(pod: Raw) -> float | None:
    """When the pod was bound, else when its kubelet took it up; None where neither can be read."""
    try:
        for condition in pod.items("status.conditions"):
            if condition.text("type") == "PodScheduled" and condition.text("status") == "True":
                return condition.time_s("lastTransitionTime") or pod.time_s("status.startTime")
        return pod.time_s("status.startTime")
    except InputError:
        return None


def _pending_status(raw: Raw, deleted: bool, binding: Binding | None) -> PodStatus:
    if deleted:
        return PodStatus.RELEASING
    if raw.text("spec.nodeName"):
        return PodStatus.BOUND
    if binding is not None:
        return PodStatus.BINDING
    return PodStatus.GATED if raw.items("spec.schedulingGates") else PodStatus.PENDING


def _node(raw: Raw, status: PodStatus, binding: Binding | None) -> str:
    """Where the pod holds resources; finished and waiting pods hold none."""
    if not status.holds_resources:
        return ""
    return raw.text("spec.nodeName") or (binding.node if binding else "")


def _grace_s(raw: Raw) -> float:
    """Seconds that it may take to end."""
    stated_s = raw.get("spec.terminationGracePeriodSeconds")
    return float(max(0, stated_s.integer())) if stated_s else USUAL_GRACE_S


def _run_time_s(raw: Raw, annotations: Mapping[str, str], name: str, notices: Notices) -> float | None:
    """Seconds that the pod runs, at most: to its deadline, or less if it says so."""
    deadline_s = raw.integer("spec.activeDeadlineSeconds")
    stated_s = read_run_time_s(annotations, name, notices)
    found = [seconds for seconds in (deadline_s, stated_s) if seconds]
    return float(min(found)) if found else None


def _ready(raw: Raw, status: PodStatus) -> bool:
    """Where it runs: whether no condition says that it is not ready (a kubelet always writes one, a file may not)."""
    conditions = raw.items("status.conditions") if status is PodStatus.RUNNING else ()
    stated = [found.value for found in conditions if isinstance(found.value, dict)]  # no reason to lose the pod
    return all(found.get("status") == "True" for found in stated if found.get("type") == "Ready")


def _rank(labels: Mapping[str, str]) -> int:
    """First part of a pod's order: leading roles, then the task priority label (docs/kai-behaviour.md#order)."""
    text = labels.get(names.TASK_PRIORITY, "0")
    number = parse_whole(text[1:] if text[:1] in ("+", "-") else text, 9) or 0
    priority = -number if text.startswith("-") else number
    return -priority + (_LEAD_RANK if is_lead(labels) else 0)


def is_lead(labels: Mapping[str, str]) -> bool:
    """Whether the pod is a training job's master or launcher, or the head of a Ray cluster."""
    return labels.get(names.JOB_ROLE) in _LEAD_ROLES or labels.get(names.RAY_NODE_TYPE) == "head"


def _indices(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.isdecimal() and len(part) <= 4 for part in parts):
        raise InputError(f"{text!r} is not a list of indices", field=names.OWN_DEVICES, cure="Write 0,1,2")
    return tuple(int(part) for part in parts)
