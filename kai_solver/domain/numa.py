"""NUMA zones of nodes, and what of a pod the kubelet's Topology Manager keeps inside them.

Source: docs/kai-behaviour.md#numa.
"""

from dataclasses import dataclass
from typing import Literal

from kai_solver.units import Vector

NumaPolicy = Literal["none", "best-effort", "restricted", "single-numa-node"]
NumaScope = Literal["container", "pod"]


@dataclass(frozen=True, slots=True)
class NumaZone:
    """One zone. ``available``: what is free there as reported; None: what its pods leave of ``allocatable``."""

    name: str
    allocatable: Vector
    available: Vector | None = None


@dataclass(frozen=True, slots=True)
class NumaTopology:
    """Topology Manager of one node.

    Attributes
    ----------
    zones
        In the kubelet's order: of zones that fit equally well it takes the first.
    resources
        Indices of the resources that are counted by zone; all others are the whole node's.
    """

    policy: NumaPolicy
    scope: NumaScope
    zones: tuple[NumaZone, ...]
    resources: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ZoneShare:
    """What a pod holds of one zone, by name of the resource, in the schema's units."""

    zone: str
    amounts: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Container:
    """One container of a pod: its request, whole GPUs included.

    ``init``: it has ended before the others start. ``sidecar``: started in its turn among those, and stays.
    """

    request: Vector
    role: Literal["app", "sidecar", "init"] = "app"
