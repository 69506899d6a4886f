"""Resource vectors: tuples of integers in an order that one schema owns.

The first four places are fixed, so that code may index them by name; every extended resource
(``nvidia.com/mig-1g.5gb``, ``rdma/hca``, ...) follows in sorted order.

======  =================  ==========================================
index   name               unit
======  =================  ==========================================
CPU     ``cpu``            thousandths of a core
MEMORY  ``memory``         bytes
GPU     ``gpu``            thousandths of a GPU
PODS    ``pods``           pods
4...    extended           one, as Kubernetes counts them
======  =================  ==========================================
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

Vector = tuple[int, ...]

CPU, MEMORY, GPU, PODS = 0, 1, 2, 3
FIXED = ("cpu", "memory", "gpu", "pods")
QUEUE_RESOURCES = ("cpu", "memory", "gpu")
"""What queues account, in KAI's order of division (resource_division.go): indices CPU, MEMORY, GPU."""

MILLI = 1000
"""Thousandths in one GPU or one core."""

UNLIMITED = -1
"""Quota or limit that does not bind."""


@dataclass(frozen=True, slots=True)
class ResourceSchema:
    """The order of resources in every vector of one snapshot."""

    names: tuple[str, ...] = FIXED

    @classmethod
    def with_extended(cls, extended: Iterable[str]) -> "ResourceSchema":
        """Schema with the fixed four and ``extended`` in sorted order."""
        return cls(FIXED + tuple(sorted(set(extended) - set(FIXED))))

    @property
    def size(self) -> int:
        """Number of resources."""
        return len(self.names)

    def index(self, name: str) -> int:
        """Place of ``name``; raises ``ValueError`` where the schema lacks it."""
        return self.names.index(name)

    def vector(self, amounts: Mapping[str, int]) -> Vector:
        """Vector of ``amounts``, zero where absent; raises ``ValueError`` on an unknown name."""
        unknown = amounts.keys() - set(self.names)
        if unknown:
            raise ValueError(f"resources not in the schema: {sorted(unknown)}")
        return tuple(amounts.get(name, 0) for name in self.names)

    def mapping(self, vector: Vector) -> dict[str, int]:
        """Non-zero entries of ``vector`` by name."""
        return {name: amount for name, amount in zip(self.names, vector, strict=True) if amount}
