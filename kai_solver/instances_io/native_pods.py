"""Pods of the native format: templates with replicas, and where some of them run."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_GPU,
    Constraints,
    GpuRequest,
    Node,
    NodeTerm,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Policy,
    Requirement,
    SpreadConstraint,
    Toleration,
    gpus_asked,
    implied_terms,
    paid_gpu_milli,
)
from kai_solver.domain.gpus import GPU_REPLICAS, has_single_mig
from kai_solver.domain.object_limits import bounded
from kai_solver.errors import InputError
from kai_solver.instances_io.native_claims import ClaimReader
from kai_solver.instances_io.native_schema import AffinityDoc, PodDoc, RequirementDoc, SpreadDoc
from kai_solver.instances_io.native_zones import containers, shares
from kai_solver.units import MILLI, ResourceSchema, Vector, parse_duration_s


@dataclass(frozen=True, slots=True)
class GpuPlaces:
    """What nodes say about GPUs beyond their number: labels by node, of those that share, and MIG mode ``single``."""

    labels: Mapping[str, Mapping[str, str]]
    sharing: tuple[Mapping[str, str], ...]
    has_single_mig: bool

    @classmethod
    def of(cls, nodes: Sequence[Node], schema: ResourceSchema, policy: Policy) -> "GpuPlaces":
        """Of all ``nodes``; of nodes with equally many replicas one is kept."""
        shared = [schema.index(name) for name in policy.shared_gpu_resources if name in schema.names]
        sharing = [node.labels for node in nodes if any(node.allocatable[resource] for resource in shared)]
        by_replicas = {labels.get(GPU_REPLICAS, ""): labels for labels in sharing}
        single = any(has_single_mig(node.labels) for node in nodes)
        return cls({node.name: node.labels for node in nodes}, tuple(by_replicas.values()), single)


@dataclass(slots=True)
class PodReader:
    """Expands pod entries; equal constraints become one object."""

    schema: ResourceSchema
    policy: Policy
    places: GpuPlaces
    now_s: float
    claims: ClaimReader = field(default_factory=ClaimReader)
    _interned: dict[Constraints, Constraints] = field(default_factory=dict)

    def pods(self, doc: PodDoc, namespace: str, gang: str, field: str, *, many: bool = False) -> Iterator[Pod]:
        """Pods of the entry at ``field``; ``many``: the gang has other entries, so unnamed pods need the place too."""
        request = self._request(doc)
        whole = named_gpus(doc.resources, 0, self.policy, field)
        gpu = _in_row(_gpu_request(doc, whole, field), doc, field)
        waiting = self._paid(doc, "")
        home = doc.namespace or namespace
        claims, single = bool(doc.claims or doc.claim_templates), self.places.has_single_mig
        implied = implied_terms(gpu, waiting, self.policy, claims=claims, single_mig=single)
        constraints = self._constraints(doc, home, implied)
        parts = containers(doc.containers, self.schema)
        base = doc.name or (f"{gang}-{field.rsplit('[', 1)[1][:-1]}" if many else gang)
        numbered = doc.replicas != 1 or not doc.name
        for index, (status, node) in enumerate(_places(doc, field)):
            name = f"{base}-{index}" if numbered else base
            yield Pod(
                namespace=home,
                name=name,
                request=request,
                gpu=gpu,
                status=self._status(doc, status),
                podset=doc.group,
                node=node,
                devices=doc.devices,
                wished=doc.wished_devices,
                gpu_groups=doc.gpu_groups,
                nominated_node=doc.nominated_node,
                quota_gpu_milli=self._paid(doc, node) if node else waiting,
                constraints=constraints,
                labels=doc.labels,
                order=(0, 0.0, name) if doc.order is None else doc.order,
                guaranteed=doc.guaranteed,
                containers=parts,
                zones=shares(doc.zones) if status.holds_resources else (),
                claims=self.claims.keys(doc.claims, doc.claim_templates, home, name),
                ready=doc.ready,
                is_replaced=doc.replaced,
                run_time_s=doc.run_time,
                started_s=moment_s(doc.started, self.now_s),
                grace_s=doc.grace,
            )

    def _status(self, doc: PodDoc, status: PodStatus) -> PodStatus:
        """The stated status; of a running pod that is being deleted, by how long ago.

        Source: docs/kai-behaviour.md#pod-states.
        """
        deleted_s = moment_s(doc.deleted, self.now_s)
        if deleted_s is None or status is not PodStatus.RUNNING:
            return status
        stuck = deleted_s < self.now_s - self.policy.stuck_in_releasing_s
        return PodStatus.STUCK_IN_RELEASING if stuck else PodStatus.RELEASING

    def _paid(self, doc: PodDoc, node: str) -> int:
        if doc.quota_gpus is not None:
            return round(doc.quota_gpus * MILLI)
        return paid_gpu_milli(doc.resources, self.places.labels.get(node), self.places.sharing, self.policy)

    def _request(self, doc: PodDoc) -> Vector:
        return self.schema.vector({"cpu": doc.cpu, "memory": doc.memory, "pods": doc.pods} | doc.resources)

    def _constraints(self, doc: PodDoc, namespace: str, implied: tuple[tuple[NodeTerm, ...], ...]) -> Constraints:
        selected = tuple(((Requirement(key, "In", (value,)),),) for key, value in doc.node_selector.items())
        stated = tuple(tuple(requirements(term) for term in entry) for entry in doc.node_terms)
        constraints = Constraints(
            node_terms=(*selected, *stated, *(entry for entry in implied if entry not in stated)),
            preferred=tuple((p.weight, requirements(p.term)) for p in doc.preferred),
            tolerations=tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in doc.tolerations),
            affinity=tuple(_affinity(term) for term in doc.affinity),
            anti_affinity=tuple(_affinity(term) for term in doc.anti_affinity),
            spread=tuple(_spread(s) for s in doc.spread),
            preferred_pods=tuple((p.weight, _affinity(p.term)) for p in doc.preferred_pods),
            preferred_spread=tuple(_spread(s) for s in doc.preferred_spread),
            host_ports=doc.host_ports,
            blocked=(*doc.blocked, *self.claims.missing(doc.claim_templates, namespace)),
        )
        constraints = bounded(constraints)
        return NO_CONSTRAINTS if constraints == NO_CONSTRAINTS else self._interned.setdefault(constraints, constraints)


def _places(doc: PodDoc, field: str) -> Iterator[tuple[PodStatus, str]]:
    """Status and node of every replica: those that run first, in the order given."""
    if doc.running and (doc.node or doc.status != "Pending"):
        problem = "running excludes status and node"
        raise InputError(problem, field=f"{field}.running", cure="Give either, not both")
    if (negative := min(doc.running.values(), default=0)) < 0:
        raise InputError(f"{negative} pods cannot run", field=f"{field}.running", cure="Give how many run on each node")
    places = [node for node, number in doc.running.items() for _ in range(min(number, doc.replicas + 1))]
    if len(places) > doc.replicas:
        problem = f"more pods run than the {doc.replicas} replicas"
        raise InputError(problem, field=f"{field}.running", cure="Raise replicas, or let fewer run")
    for index in range(doc.replicas):
        if index < len(places):
            yield PodStatus.RUNNING, places[index]
        else:
            yield PodStatus(doc.status), doc.node


def named_gpus(resources: Mapping[str, int], stated: int, policy: Policy, field: str) -> int:
    """GPUs of an entry that names them as resources (``amd.com/gpu: 8``), as ``gpus``, or equally in both ways.

    Raises
    ------
    InputError
        The two numbers differ.
    """
    named = sum(resources.get(name, 0) for name in policy.gpu_resources)
    if stated and named and stated != named:
        problem = f"{named} GPUs in resources, {stated} in gpus"
        raise InputError(problem, field=f"{field}.resources", cure="Give one of them, or the same number")
    return stated or named


def moment_s(value: float | str | None, now_s: float) -> float | None:
    """Epoch seconds of a field: a number is one already, a duration counts back from now."""
    if isinstance(value, str):
        return now_s - parse_duration_s(value)
    return None if value is None else float(value)


def _gpu_request(doc: PodDoc, named: int, field: str) -> GpuRequest:
    if named:
        if doc.gpu_memory or doc.gpus not in (0, named):
            problem = f"{named} GPUs in resources beside another request of GPUs"
            raise InputError(problem, field=f"{field}.resources", cure="Give one of them, or the same number")
        return gpus_asked(named)
    if doc.gpu_memory:
        if doc.gpus:
            problem = "gpus and gpuMemory exclude each other"
            raise InputError(problem, field=f"{field}.gpuMemory", cure="Ask by number or by memory")
        return gpus_asked(doc.gpu_devices, 0, doc.gpu_memory)
    if 0 < doc.gpus < 1:
        return gpus_asked(doc.gpu_devices, min(max(round(doc.gpus * MILLI), 1), MILLI - 1))
    if doc.gpus != int(doc.gpus):
        problem = f"{doc.gpus:g} GPUs are neither whole nor a share of one"
        raise InputError(
            problem, field=f"{field}.gpus", cure="Ask for whole GPUs, or for a share below 1 of gpuDevices"
        )
    return gpus_asked(int(doc.gpus)) if doc.gpus else NO_GPU


def _in_row(gpu: GpuRequest, doc: PodDoc, field: str) -> GpuRequest:
    if not doc.gpu_row:
        return gpu
    if not gpu.is_whole:
        raise InputError("no whole GPUs are requested", field=f"{field}.gpuRow", cure="Leave it out, or ask for GPUs")
    return gpus_asked(gpu.devices, row=doc.gpu_row) if gpu.devices > 1 else gpu


def _requirement(doc: RequirementDoc) -> Requirement:
    return Requirement(doc.key, doc.operator, doc.values)


def requirements(docs: tuple[RequirementDoc, ...]) -> NodeTerm:
    """A selector, or a term of one: all of it must hold."""
    return tuple(_requirement(doc) for doc in docs)


def _affinity(doc: AffinityDoc) -> PodAffinityTerm:
    return PodAffinityTerm(requirements(doc.selector), doc.topology_key, doc.namespaces)


def _spread(doc: SpreadDoc) -> SpreadConstraint:
    return SpreadConstraint(
        requirements(doc.selector),
        doc.topology_key,
        doc.max_skew,
        doc.min_domains,
        honours_affinity=doc.honours_affinity,
        honours_taints=doc.honours_taints,
    )
