"""Labels of nodes and policy about GPUs: which pods may use a node, and what a unit of a resource costs."""

from collections.abc import Iterable, Mapping

from kai_solver.domain.cluster import Node
from kai_solver.domain.constraints import NodeTerm, Requirement
from kai_solver.domain.pods import GpuRequest, Pod
from kai_solver.domain.snapshot import Policy, Snapshot
from kai_solver.errors import nearest
from kai_solver.units import GPU, MILLI, ResourceSchema, mig_slices
from kai_solver.units.resources import FIXED
from kai_solver.units.shares import replica_milli

GPU_WORKER = "node-role.kubernetes.io/gpu-worker"
CPU_WORKER = "node-role.kubernetes.io/cpu-worker"
MIG_STRATEGY = "nvidia.com/mig.strategy"
MIG_ENABLED = "node-role.kubernetes.io/mig-enabled"
GPU_REPLICAS = "nvidia.com/gpu.replicas"
"""Into how many replicas each time-sliced GPU of a node is divided."""

MIXED, SINGLE = "mixed", "single"

_TRUE = ("1", "t", "T", "TRUE", "true", "True")
"""What KAI takes for true in a label, as Go's ``strconv.ParseBool`` does."""

SHAREABLE = Requirement("metadata.name", "Exists")
"""Marks a term that keeps shares of GPUs from nodes, for reasons: it always holds, and no pod states it."""

_WHOLE_OR_NONE = (((Requirement(MIG_STRATEGY, "NotIn", (SINGLE,)),), (Requirement(MIG_ENABLED, "NotIn", _TRUE),)),)


def is_mig_enabled(labels: Mapping[str, str], resources: Iterable[str]) -> bool:
    """Whether a node's MIG strategy counts: its label says so, or without that label it offers slices.

    The strategy is set once for a cluster: nodes with undivided GPUs can have it, too (docs/kai-behaviour.md#mig).
    """
    stated = labels.get(MIG_ENABLED)
    return any(map(mig_slices, resources)) if stated is None else stated in _TRUE


def has_single_mig(labels: Mapping[str, str]) -> bool:
    """Whether a node takes whole devices only, which are slices: MIG is enabled with the strategy ``single``."""
    return labels.get(MIG_STRATEGY) == SINGLE and labels.get(MIG_ENABLED) in _TRUE


def shares_elsewhere(nodes: Iterable[str]) -> tuple[NodeTerm, ...]:
    """The entry of node terms of a pod that asks for a share of a GPU, where those of ``nodes`` cannot be shared."""
    return ((Requirement("metadata.name", "NotIn", tuple(nodes)), SHAREABLE),)


def unit_gpu_milli(resource: str, labels: Mapping[str, str], policy: Policy) -> int:
    """Thousandths of a GPU that one unit of an extended resource counts on a node with ``labels``.

    A MIG slice ``<g>g`` counts g GPUs, as in KAI (docs/kai-behaviour.md#mig). A replica of a time-sliced GPU counts
    1/replicas, rounded down so that all of them are never more than the GPU; a whole one where the label does not tell.
    Anything else counts nothing.
    """
    if resource in policy.shared_gpu_resources:
        return replica_milli(_replicas(labels))
    return MILLI * mig_slices(resource)


def is_of_gpus(resource: str, policy: Policy) -> bool:
    """Whether units of a resource of the schema are GPUs or parts of them: MIG slices, replicas of time-sliced ones."""
    return resource == FIXED[GPU] or unit_gpu_milli(resource, {}, policy) > 0


def resource_like(name: str, snapshot: Snapshot) -> str:
    """The resource that was probably meant by one that no node has: ``nvidia.com/gpu`` by ``nvidia.com/gpus``.

    One of those that some node has, or a name of GPUs; empty where none is like it.
    """
    places = enumerate(snapshot.schema.names)
    had = {other for place, other in places if any(node.allocatable[place] for node in snapshot.nodes)}
    return nearest(name, sorted(had - set(FIXED) | set(snapshot.policy.gpu_resources)))


def parts_of_gpus(schema: ResourceSchema, policy: Policy) -> tuple[int, ...]:
    """Resources that are of GPUs, by their places in the schema."""
    return tuple(place for place, name in enumerate(schema.names) if is_of_gpus(name, policy))


def has_gpus(pod: Pod, parts: Iterable[int]) -> bool:
    """Whether the pod has GPUs of any kind, charged or not: whole ones, shares, ``parts`` of them, those of claims."""
    return bool(pod.gpu.devices or pod.claims_gpus or any(pod.request[part] for part in parts))


def _replicas(labels: Mapping[str, str]) -> int:
    """Replicas of each GPU, 1 to 1000; 1 where the label does not tell."""
    label = labels.get(GPU_REPLICAS, "")
    return min(max(int(label), 1), MILLI) if label.isdecimal() and len(label) < 10 else 1


def paid_gpu_milli(
    amounts: Mapping[str, int], on: Mapping[str, str] | None, offering: Iterable[Mapping[str, str]], policy: Policy
) -> int:
    """Thousandths of a GPU that a queue pays for extended resources of one pod.

    Parameters
    ----------
    amounts
        Units by resource.
    on
        Labels of the pod's node; None where it waits: then it pays as on the dearest node of ``offering``.
    offering
        Labels of all nodes that offer shared GPUs.
    """
    places = list(offering) or [{}] if on is None else [on]
    return sum(
        amount * max(unit_gpu_milli(name, labels, policy) for labels in places)
        for name, amount in amounts.items()
        if amount and (name in policy.shared_gpu_resources or mig_slices(name))
    )


def counted_gpu_milli(node: Node, schema: ResourceSchema, policy: Policy) -> int:
    """Thousandths of GPUs that the node adds to what fair share divides (docs/kai-behaviour.md#fair-share).

    None where ``restrict_node_scheduling`` is on and the node is no GPU worker.
    """
    if policy.restrict_node_scheduling and GPU_WORKER not in node.labels:
        return 0
    units = zip(schema.names, node.allocatable, strict=True)
    return node.allocatable[GPU] + sum(
        amount * unit_gpu_milli(name, node.labels, policy) for name, amount in units if amount and "/" in name
    )


def implied_terms(
    gpu: GpuRequest, paid_milli: int, policy: Policy, *, claims: bool, single_mig: bool
) -> tuple[tuple[NodeTerm, ...], ...]:
    """Node terms that follow from the pod's GPUs and are not written on the pod.

    Parameters
    ----------
    paid_milli
        GPUs that its queue pays for extended resources (MIG slices, shared GPUs).
    claims
        Whether it asks for devices by resource claims: those are taken for GPU work.
    single_mig
        Whether the cluster has nodes of MIG strategy ``single``: they take whole devices only
        (docs/kai-behaviour.md#mig).
    """
    terms = _WHOLE_OR_NONE if single_mig and gpu.is_shared else ()
    if not policy.restrict_node_scheduling:
        return terms
    label = GPU_WORKER if gpu.devices or paid_milli or claims else CPU_WORKER
    return (*terms, ((Requirement(label, "Exists"),),))
