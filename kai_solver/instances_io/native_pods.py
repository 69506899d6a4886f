"""Pods of the native format: templates with replicas, and where some of them run."""

from collections.abc import Iterator
from dataclasses import dataclass, field

from kai_solver.domain import (
    NO_CONSTRAINTS,
    NO_GPU,
    Constraints,
    GpuRequest,
    NodeTerm,
    Pod,
    PodAffinityTerm,
    PodStatus,
    Requirement,
    SpreadConstraint,
    Toleration,
)
from kai_solver.errors import InputError
from kai_solver.instances_io.native_schema import AffinityDoc, PodDoc, RequirementDoc, SpreadDoc
from kai_solver.units import MILLI, ResourceSchema, Vector


@dataclass(slots=True)
class PodReader:
    """Expands pod entries; equal constraints become one object."""

    schema: ResourceSchema
    _interned: dict[Constraints, Constraints] = field(default_factory=dict)

    def pods(self, doc: PodDoc, namespace: str, gang: str, field: str, *, many: bool = False) -> Iterator[Pod]:
        """Pods of the entry at ``field``; ``many``: the gang has other entries, so unnamed pods need the place too."""
        request = self._request(doc)
        gpu = _gpu_request(doc, field)
        constraints = self._constraints(doc)
        base = doc.name or (f"{gang}-{field.rsplit('[', 1)[1][:-1]}" if many else gang)
        numbered = doc.replicas != 1 or not doc.name
        for index, (status, node) in enumerate(_places(doc, field)):
            name = f"{base}-{index}" if numbered else base
            yield Pod(
                namespace=doc.namespace or namespace,
                name=name,
                request=request,
                gpu=gpu,
                status=status,
                podset=doc.group,
                node=node,
                devices=doc.devices,
                gpu_groups=doc.gpu_groups,
                nominated_node=doc.nominated_node,
                quota_gpu_milli=round(doc.quota_gpus * MILLI),
                constraints=constraints,
                labels=doc.labels,
                order=(0, 0.0, name) if doc.order is None else doc.order,
            )

    def _request(self, doc: PodDoc) -> Vector:
        return self.schema.vector({"cpu": doc.cpu, "memory": doc.memory, "pods": doc.pods} | doc.resources)

    def _constraints(self, doc: PodDoc) -> Constraints:
        selected = tuple(((Requirement(key, "In", (value,)),),) for key, value in doc.node_selector.items())
        constraints = Constraints(
            node_terms=selected + tuple(tuple(_term(term) for term in entry) for entry in doc.node_terms),
            preferred=tuple((p.weight, _term(p.term)) for p in doc.preferred),
            tolerations=tuple(Toleration(t.key, t.operator, t.value, t.effect) for t in doc.tolerations),
            affinity=tuple(_affinity(term) for term in doc.affinity),
            anti_affinity=tuple(_affinity(term) for term in doc.anti_affinity),
            spread=tuple(_spread(s) for s in doc.spread),
            preferred_pods=tuple((p.weight, _affinity(p.term)) for p in doc.preferred_pods),
            preferred_spread=tuple(_spread(s) for s in doc.preferred_spread),
            host_ports=doc.host_ports,
            blocked=doc.blocked,
        )
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


def _gpu_request(doc: PodDoc, field: str) -> GpuRequest:
    if doc.gpu_memory:
        if doc.gpus:
            problem = "gpus and gpuMemory exclude each other"
            raise InputError(problem, field=f"{field}.gpuMemory", cure="Ask by number or by memory")
        return GpuRequest(doc.gpu_devices, 0, doc.gpu_memory)
    if 0 < doc.gpus < 1:
        return GpuRequest(doc.gpu_devices, max(round(doc.gpus * MILLI), 1))
    if doc.gpus != int(doc.gpus):
        problem = f"{doc.gpus:g} GPUs are neither whole nor a share of one"
        raise InputError(
            problem, field=f"{field}.gpus", cure="Ask for whole GPUs, or for a share below 1 of gpuDevices"
        )
    return GpuRequest(int(doc.gpus)) if doc.gpus else NO_GPU


def _requirement(doc: RequirementDoc) -> Requirement:
    return Requirement(doc.key, doc.operator, doc.values)


def _term(docs: tuple[RequirementDoc, ...]) -> NodeTerm:
    return tuple(_requirement(doc) for doc in docs)


def _affinity(doc: AffinityDoc) -> PodAffinityTerm:
    return PodAffinityTerm(_term(doc.selector), doc.topology_key, doc.namespaces)


def _spread(doc: SpreadDoc) -> SpreadConstraint:
    return SpreadConstraint(
        _term(doc.selector),
        doc.topology_key,
        doc.max_skew,
        doc.min_domains,
        honours_affinity=doc.honours_affinity,
        honours_taints=doc.honours_taints,
    )
