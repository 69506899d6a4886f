"""Pods: what they ask for, and how they stand."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Literal

from kai_solver.domain.constraints import NO_CONSTRAINTS, Constraints
from kai_solver.domain.numa import Container, ZoneShare
from kai_solver.units import MILLI, Vector
from kai_solver.units.shares import WHOLE, charged_milli, parts_of

_ACTIVE = frozenset({"Binding", "Bound", "Running"})
_HOLDING = _ACTIVE | {"Releasing", "StuckInReleasing"}

_MOST_PARTS = 2 * WHOLE
_MOST_MILLI = 1 << 50
"""More than any device, and any number of them, has: larger requests are cut to it, and sums stay in 64 bits."""


Knowing = Literal["fact", "wish", "unknown"]
"""How it is known which devices a pod has. ``fact``: the cluster says so; ``wish``: they were chosen, but a device
plugin may have given it others; ``unknown``."""


class PodStatus(Enum):
    """KAI's pod statuses (``api/pod_status/pod_status.go``) as far as a snapshot can hold them.

    Attributes
    ----------
    holds_resources
        True where the pod occupies its node (KAI: activeUsed).
    is_active
        True where the pod counts toward its gang and its queue (KAI: activeAllocated).
    is_alive
        True where the pod is active or may become so.
    """

    PENDING = "Pending"
    GATED = "Gated"
    BINDING = "Binding"
    BOUND = "Bound"
    RUNNING = "Running"
    RELEASING = "Releasing"
    STUCK_IN_RELEASING = "StuckInReleasing"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"

    def __init__(self, text: str) -> None:
        self.holds_resources = text in _HOLDING
        self.is_active = text in _ACTIVE
        self.is_alive = self.is_active or text in ("Pending", "Gated")


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """GPUs of one pod: ``devices`` devices of its node with ``milli`` thousandths of each.

    Whole GPUs: ``milli == 1000``. A request by memory has ``memory_mib > 0`` and ``milli == 0``: its share
    depends on the node (``parts_on``). Shared devices of one pod are distinct devices of one node.
    ``row``: of whole ones, how their indices must or should follow each other (``links.WISHES``); empty: anyhow.
    """

    devices: int = 0
    milli: int = MILLI
    memory_mib: int = 0
    row: str = ""

    @property
    def is_whole(self) -> bool:
        """True for a request of whole devices (at least one)."""
        return self.devices > 0 and self.milli == MILLI and not self.memory_mib

    @property
    def is_shared(self) -> bool:
        """True for a request of parts of devices."""
        return self.devices > 0 and not self.is_whole

    def milli_on(self, gpu_memory_mib: int) -> int:
        """Thousandths of each device that are charged where devices have ``gpu_memory_mib`` (`units.shares`)."""
        return min(charged_milli(self.milli, self.memory_mib, gpu_memory_mib), _MOST_MILLI // (self.devices or 1))

    def parts_on(self, gpu_memory_mib: int) -> int:
        """Parts of each device that it takes where devices have ``gpu_memory_mib`` (`units.shares`).

        More than `WHOLE`: it does not fit such a node, however much more it is.
        """
        return min(parts_of(self.milli, self.memory_mib, gpu_memory_mib), _MOST_PARTS)


NO_GPU = GpuRequest()

USUAL_GRACE_S = 30.0
"""Kubernetes' default of ``terminationGracePeriodSeconds``."""


@lru_cache(maxsize=4096)
def gpus_asked(devices: int, milli: int = MILLI, memory_mib: int = 0, row: str = "") -> GpuRequest:
    """The request; the same object for the same request, by which likes are known without comparing them."""
    return GpuRequest(devices, milli, memory_mib, row)


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
    wished
        Indices of whole devices that a plan chose for it; its kubelet may have given it others.
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
    ready
        Healthy, for disruption budgets; says something only where it runs.
    is_replaced
        A controller makes another pod in its place when it is evicted. Only such pods are moved: others would be gone.
    claims_gpus
        Some of its claims have GPUs or slices of them, whichever pod pays. Known once ``claims.lower`` has run.
    run_time_s
        Seconds that it runs, at most, from its start; None: not known.
    started_s
        Epoch seconds of its start; None: it has not started, or that is not known.
    grace_s
        Seconds that it may take to end once it is evicted.
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
    ready: bool = True
    wished: tuple[int, ...] = ()
    claims_gpus: bool = False
    is_replaced: bool = True
    run_time_s: float | None = None
    started_s: float | None = None
    grace_s: float = USUAL_GRACE_S
    key: str = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Write the key once: it is asked for all the time."""
        object.__setattr__(self, "key", f"{self.namespace}/{self.name}")

    @property
    def task_order(self) -> tuple[bool, tuple[int, float, str], str]:
        """When it is served among the pods of its podset, smaller first: those that were promised a node come first."""
        return not self.nominated_node, self.order, self.key

    @property
    def known_devices(self) -> tuple[Knowing, tuple[int, ...]]:
        """Which devices it has, and how that is known; empty if that is unknown for some of them."""
        if len(self.devices) == self.gpu.devices:
            return "fact", self.devices
        return ("wish", self.wished) if len(self.wished) == self.gpu.devices else ("unknown", ())
