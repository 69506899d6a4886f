"""Pods, and the gangs that they form."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from kai_solver.domain.numa import Container, ZoneShare
from kai_solver.domain.placement import NO_PLACEMENT, Placement
from kai_solver.units import MILLI, Vector


class PodStatus(Enum):
    """KAI's pod statuses (``api/pod_status/pod_status.go``) as far as a snapshot can hold them."""

    PENDING = "Pending"
    GATED = "Gated"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    STUCK_IN_RELEASING = "StuckInReleasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    @property
    def holds_resources(self) -> bool:
        """True where the pod occupies its node (KAI: activeUsed)."""
        return self in _HOLDING

    @property
    def is_active(self) -> bool:
        """True where the pod counts toward its gang and its queue (KAI: activeAllocated)."""
        return self in _ACTIVE

    @property
    def is_alive(self) -> bool:
        """True where the pod is active or may become so."""
        return self in _ACTIVE or self in (PodStatus.PENDING, PodStatus.GATED)


_ACTIVE = frozenset({PodStatus.BINDING, PodStatus.BOUND, PodStatus.RUNNING})
_HOLDING = _ACTIVE | {PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING}


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs of one pod: ``devices`` devices of its node with ``milli`` thousandths of each.

    Whole GPUs: ``milli == 1000``. A request by memory has ``memory_mib > 0`` and ``milli == 0``: its share
    depends on the node (``milli_on``). Shared devices of one pod are distinct devices of one node.
    """

    devices: int = 0
    milli: int = MILLI
    memory_mib: int = 0

    @property
    def is_whole(self) -> bool:
        """True for a request of whole devices (at least one)."""
        return self.devices > 0 and self.milli == MILLI and not self.memory_mib

    @property
    def is_shared(self) -> bool:
        """True for a request of parts of devices."""
        return self.devices > 0 and not self.is_whole

    def milli_on(self, gpu_memory_mib: int) -> int:
        """Thousandths of each device on a node whose devices have ``gpu_memory_mib``.

        KAI rounds a request by memory up to a hundredth of a GPU (reference 3.11); 0 MiB is read as 100.
        May exceed 1000: then it does not fit such a node.
        """
        if not self.memory_mib:
            return self.milli
        return -(-self.memory_mib * 100 // (gpu_memory_mib or 100)) * 10


NO_GPU = GpuRequest()


@dataclass(frozen=True, slots=True)
class Requirement:
    """One expression of a node or label selector: key, operator (In, NotIn, Exists, ...), values."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"]
    values: tuple[str, ...] = ()


NodeTerm = tuple[Requirement, ...]
"""Requirements that must all hold. The key ``metadata.name`` stands for the node's name."""


@dataclass(frozen=True, slots=True)
class Toleration:
    """As in Kubernetes; the empty key with ``Exists`` tolerates everything, the empty effect every effect."""

    key: str = ""
    operator: Literal["Equal", "Exists"] = "Equal"
    value: str = ""
    effect: str = ""


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """(Anti-)affinity to pods whose labels match, inside one value of ``topology_key``.

    ``namespaces`` empty means the pod's own namespace; ``("*",)`` means all.
    """

    selector: tuple[Requirement, ...]
    topology_key: str
    namespaces: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SpreadConstraint:
    """A ``topologySpreadConstraint``: how unevenly matching pods of the namespace may lie over the domains.

    Attributes
    ----------
    max_skew
        Most matching pods of a domain less those of the emptiest one.
    min_domains
        With fewer domains than this the emptiest counts as empty.
    honours_affinity, honours_taints
        Whether nodes that the pod's node affinity, or taints, keep it from count as domains
        (``nodeAffinityPolicy`` and ``nodeTaintsPolicy``; the defaults are Kubernetes').
    """

    selector: tuple[Requirement, ...]
    topology_key: str
    max_skew: int = 1
    min_domains: int = 1
    honours_affinity: bool = True
    honours_taints: bool = False


@dataclass(frozen=True, slots=True)
class Constraints:
    """Where a pod may run. Equal constraints are one object where an importer interns them (cheap classes).

    Attributes
    ----------
    node_terms
        Conjunction of disjunctions: for every entry at least one of its terms must hold (node selector, required
        node affinity and each volume's node affinity are one entry each).
    preferred
        (weight, term) of preferred node affinity.
    preferred_pods
        (weight, term) of preferred pod affinity; a negative weight is preferred anti-affinity.
    spread, preferred_spread
        Spread that must hold (``DoNotSchedule``), and that should (``ScheduleAnyway``).
    blocked
        Reasons, in words, why no node can take the pod until something else changes (a missing claim, a
        missing ConfigMap). Empty for most.
    """

    node_terms: tuple[tuple[NodeTerm, ...], ...] = ()
    preferred: tuple[tuple[int, NodeTerm], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    affinity: tuple[PodAffinityTerm, ...] = ()
    anti_affinity: tuple[PodAffinityTerm, ...] = ()
    spread: tuple[SpreadConstraint, ...] = ()
    host_ports: tuple[str, ...] = ()
    blocked: tuple[str, ...] = ()
    preferred_pods: tuple[tuple[int, PodAffinityTerm], ...] = ()
    preferred_spread: tuple[SpreadConstraint, ...] = ()

    @property
    def binds_pods(self) -> bool:
        """True where the pod may be kept off a node by the pods that are elsewhere."""
        return bool(self.affinity or self.anti_affinity or self.spread or self.host_ports)

    @property
    def speaks_of_pods(self) -> bool:
        """True where the places of other pods matter at all, be it for a preference."""
        return bool(self.binds_pods or self.preferred_pods or self.preferred_spread)


NO_CONSTRAINTS = Constraints()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod.

    Attributes
    ----------
    namespace, name
        ``key`` is ``namespace/name``, unique in a snapshot.
    request
        Vector of the snapshot's schema, without GPUs (those are in ``gpu``); ``request[PODS] == 1``.
        Extended resources, MIG slices among them, are here.
    gpu
        Whole or shared GPUs.
    quota_gpu_milli
        GPUs that the queue pays beside ``gpu``: a MIG slice ``<g>g`` pays ``1000 * g``.
    podset
        Name of the leaf of its gang's tree.
    node
        Node it runs on or is bound to; empty when none.
    devices
        Indices of the devices it holds, where known. Pods of one node that share a device have it in common.
        Pods of unknown devices get some when the problem is built.
    gpu_groups
        KAI's names of the shared devices it sits on (one per device); equal name and node, same device.
    nominated_node
        Where an earlier cycle promised it a place.
    order
        Order in its gang: (-task priority, creation time, uid); smaller first; the last is the first victim.
    labels
        For pod (anti-)affinity.
    guaranteed
        QoS class Guaranteed: the kubelet aligns its CPU and memory too, and not only its devices.
    containers
        Where it has more than one, and some node has NUMA zones; else empty: one container asks for all of it.
    zones
        What it holds of its node's NUMA zones, where known.
    claims
        Keys of its resource claims. What they come to is in the other fields once ``claims.lower`` has been there.
    """

    namespace: str
    name: str
    request: Vector
    gpu: GpuRequest = NO_GPU
    status: PodStatus = PodStatus.PENDING
    podset: str = "default"
    node: str = ""
    devices: tuple[int, ...] = ()
    gpu_groups: tuple[str, ...] = ()
    nominated_node: str = ""
    quota_gpu_milli: int = 0
    constraints: Constraints = NO_CONSTRAINTS
    labels: Mapping[str, str] = field(default_factory=dict)
    order: tuple[int, float, str] = (0, 0.0, "")
    guaranteed: bool = False
    containers: tuple[Container, ...] = ()
    zones: tuple[ZoneShare, ...] = ()
    claims: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class TopologyConstraint:
    """Required and preferred level (node label or alias) of a topology; empty where not asked for."""

    topology: str
    required: str = ""
    preferred: str = ""


@dataclass(frozen=True, slots=True)
class PodSet:
    """A leaf of a gang's tree: pods alike in role; at least ``min_member`` of them or none of the gang."""

    name: str
    min_member: int
    topology: TopologyConstraint | None = None


@dataclass(frozen=True, slots=True)
class SubGroup:
    """An inner node of a gang's tree.

    ``min_subgroups`` None: all children are needed; K: any K of them; 0: a fully elastic subtree.
    """

    name: str = ""
    children: tuple["SubGroup | PodSet", ...] = ()
    min_subgroups: int | None = None
    topology: TopologyConstraint | None = None

    @property
    def needed(self) -> int:
        """How many children must be satisfied."""
        return len(self.children) if self.min_subgroups is None else min(self.min_subgroups, len(self.children))

    def podsets(self) -> Iterator[PodSet]:
        """All leaves, depth first."""
        for child in self.children:
            if isinstance(child, PodSet):
                yield child
            else:
                yield from child.podsets()


def flat_gang(min_member: int, topology: TopologyConstraint | None = None) -> SubGroup:
    """Tree of a gang without subgroups: one podset named ``default``."""
    return SubGroup(children=(PodSet("default", min_member),), topology=topology)


@dataclass(frozen=True, slots=True)
class Gang:
    """A PodGroup with its pods: what is scheduled all or nothing.

    Attributes
    ----------
    pods
        All pods, finished ones included; order is the importer's.
    preemptible
        Effective: stated, else priority below the policy's ``non_preemptible_priority``.
    never_preempts
        ``preemptionPolicy: Never``: may not cause victims by preempt.
    last_start_s, last_eviction_s, stale_since_s
        Epoch seconds, None where it never happened.
    preemption_delay_s
        Wait after ``max(created_s, last_eviction_s)`` before it may cause victims or moves.
    staleness_grace_s
        None: the policy's; negative: never evicted for staleness.
    placement
        Where its pods should and must go; wins over its queues' (field by field).
    workload
        Name that gangs of one namespace have in common which are replicas of one workload (a Deployment's); empty: the
        gang is the workload. ``placement`` is about the pods of all of them.
    set_aside
        Why the gang cannot be considered at all (unknown queue, broken tree, two sizes in one job).
        Its running pods still count as load and are never touched.
    queue_source
        Who named the queue, in words, where the importer knows (for people; no part of what a gang is).
    """

    namespace: str
    name: str
    queue: str
    root: SubGroup
    pods: tuple[Pod, ...] = ()
    priority: int = 50
    preemptible: bool = True
    never_preempts: bool = False
    created_s: float = 0.0
    last_start_s: float | None = None
    last_eviction_s: float | None = None
    stale_since_s: float | None = None
    preemption_delay_s: float = 0.0
    staleness_grace_s: float | None = None
    placement: Placement = NO_PLACEMENT
    workload: str = ""
    set_aside: str = ""
    uid: str = ""
    queue_source: str = field(default="", compare=False)

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @property
    def family(self) -> str:
        """What its placement is about: the gang, or all gangs of its workload in its namespace."""
        return f"{self.namespace}/{self.workload}/" if self.workload else self.key
