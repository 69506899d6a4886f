"""Nodes and topologies: what a cluster offers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from kai_solver.domain.numa import NumaTopology
from kai_solver.units import Vector

TaintEffect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint, as in Kubernetes."""

    key: str
    value: str = ""
    effect: TaintEffect = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Node:
    """A node as the scheduler sees it.

    Attributes
    ----------
    allocatable
        Vector of the snapshot's schema. ``allocatable[GPU]`` is ``1000 * gpus`` where whole GPUs may be
        requested; 0 on nodes in MIG mode ``mixed``, whose slices are extended resources.
    gpus
        Devices of the node that whole or shared requests may use.
    gpu_memory_mib
        Memory of one device, MiB; 0 where unknown. (KAI then takes 100, so that fractions read as percent.)
    schedulable
        False when cordoned or not ready; running pods stay, nothing new is placed, its capacity is not shared out.
    gpu_uuids
        Of devices by index, where the cluster tells; else empty.
    numa
        Its NUMA zones and their policy, where known.
    gpu_topology
        How its GPUs are linked, where it says so itself: a product of the library, or what ``nvidia-smi`` printed.
    drain_at_s
        Epoch seconds at which its pods have to be gone, for maintenance; None: never.
    """

    name: str
    allocatable: Vector
    gpus: int = 0
    gpu_memory_mib: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    schedulable: bool = True
    gpu_uuids: tuple[str, ...] = ()
    numa: NumaTopology | None = None
    gpu_topology: str = ""
    drain_at_s: float | None = None


@dataclass(frozen=True, slots=True)
class TopologyLevel:
    """One level: the node label whose value names the domain, and an alias usable in its place."""

    node_label: str
    alias: str = ""


_LABEL = "label:"
"""What stands before the key of the pod label that names tenants."""


@dataclass(frozen=True, slots=True)
class OneTenant:
    """Every domain of ``level`` (label or alias) is used by one tenant at a time: pods of others get no GPUs there.

    ``tenant``: the pods that are one tenant: those of a ``queue``, of a ``namespace``, or with one value of the pod
    label ``label:<key>`` (those without it are one tenant, too). Pods of other schedulers have no queue: together they
    are one more.
    """

    level: str
    tenant: str = "queue"

    @staticmethod
    def knows(tenant: str) -> bool:
        """Whether ``tenant`` names something by which pods can be told apart."""
        return tenant in ("queue", "namespace") or (tenant.startswith(_LABEL) and len(tenant) > len(_LABEL))

    def of(self, namespace: str, labels: Mapping[str, str], queue: str) -> str:
        """The tenant of a pod, in a text of its own for each tenant; ``queue`` is empty for pods without a gang."""
        if self.tenant == "namespace":
            return f"namespace {namespace}"
        if self.tenant == "queue":
            return f"queue {queue}" if queue else "pods of other schedulers"
        key = self.tenant.removeprefix(_LABEL)
        return f"{key}={labels[key]}" if key in labels else f"pods without {key}"


@dataclass(frozen=True, slots=True)
class SpareNodes:
    """Every domain of ``level`` (label or alias) keeps so many ``nodes`` free, for gangs that may use spares."""

    level: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Topology:
    """Levels of a topology, outermost first (``topologies.kai.scheduler/v1alpha1``).

    ``one_tenant``, ``spares``: rules for the domains of one of its levels each; None where there is none.
    """

    name: str
    levels: tuple[TopologyLevel, ...]
    one_tenant: OneTenant | None = None
    spares: SpareNodes | None = None

    def level_index(self, level: str) -> int | None:
        """Index of ``level`` (label or alias), outermost 0; None where the topology has no such level."""
        for index, candidate in enumerate(self.levels):
            if level in (candidate.node_label, candidate.alias):
                return index
        return None
