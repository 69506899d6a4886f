"""What the nodes alone say: their order, what they have, where they lie; the same as long as they are the same."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node, Topology
from kai_solver.predicates import NodePredicates
from kai_solver.topology import DomainTree
from kai_solver.units import GPU, MILLI

IntArray = NDArray[np.int64]


def usable_devices(node: Node) -> int:
    """Devices that may be had: those of a node in MIG mode ``mixed`` may not (reference 1.5)."""
    return min(node.gpus, node.allocatable[GPU] // MILLI)


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """N nodes.

    Attributes
    ----------
    given
        As the snapshot has them. ``nodes``: in order of name; ``index``: by name.
    capacity
        (R, N) as `Problem` has it.
    gpus, usable
        (N,) devices, and those of them that may be had.
    memory_mib
        (N,) of one device.
    max_memory_mib, min_memory_mib
        Of nodes with devices; the smallest of those that tell. 0 where there are none.
    """

    given: tuple[Node, ...]
    topologies: tuple[Topology, ...]
    nodes: tuple[Node, ...]
    index: dict[str, int]
    capacity: IntArray
    gpus: IntArray
    usable: IntArray
    memory_mib: IntArray
    max_memory_mib: int
    min_memory_mib: int
    predicates: NodePredicates
    domains: dict[str, DomainTree]


def survey(given: tuple[Node, ...], topologies: tuple[Topology, ...], resources: int) -> Ground:
    """The ground of ``given``, whose vectors have ``resources`` entries."""
    nodes = tuple(sorted(given, key=lambda node: node.name))
    capacity = np.array([n.allocatable for n in nodes], dtype=np.int64).reshape(len(nodes), resources).T.copy()
    capacity[GPU] = 0
    memories = {node.gpu_memory_mib for node in nodes if node.gpus}
    return Ground(
        given=given,
        topologies=topologies,
        nodes=nodes,
        index={node.name: i for i, node in enumerate(nodes)},
        capacity=capacity,
        gpus=_column([node.gpus for node in nodes]),
        usable=_column([usable_devices(node) for node in nodes]),
        memory_mib=_column([node.gpu_memory_mib for node in nodes]),
        max_memory_mib=max(memories, default=0),
        min_memory_mib=min(memories - {0}, default=0),
        predicates=NodePredicates(nodes),
        domains={t.name: DomainTree.from_nodes(t, nodes) for t in topologies},
    )


def _column(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
