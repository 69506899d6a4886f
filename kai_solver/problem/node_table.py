"""What the nodes alone say: their order, what they have, where they lie; the same as long as they are the same."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node, Policy, Snapshot, Topology, counted_gpu_milli
from kai_solver.predicates import NodePredicates
from kai_solver.topology import DomainTree
from kai_solver.units import CPU, GPU, MEMORY, MILLI, ResourceSchema

IntArray = NDArray[np.int64]


def usable_devices(node: Node) -> int:
    """Devices that may be had: those of a node in MIG mode ``mixed`` may not (docs/kai-behaviour.md#mig)."""
    return min(node.gpus, node.allocatable[GPU] // MILLI)


@dataclass(frozen=True, slots=True, eq=False)
class NodeTable:
    """N nodes.

    Attributes
    ----------
    given
        As the snapshot has them. ``nodes``: in order of name; ``index``: by name.
    offered
        What the schedulable nodes have for queues: cpu milli, memory bytes, GPU milli.
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
    schema: ResourceSchema
    policy: Policy
    nodes: tuple[Node, ...]
    index: dict[str, int]
    capacity: IntArray
    gpus: IntArray
    usable: IntArray
    memory_mib: IntArray
    max_memory_mib: int
    min_memory_mib: int
    offered: tuple[int, int, int]
    predicates: NodePredicates
    domains: dict[str, DomainTree]

    def is_of(self, snapshot: Snapshot) -> bool:
        """Whether ``snapshot`` has these nodes, and the same word on how they count."""
        return (
            self.given == snapshot.nodes
            and self.topologies == snapshot.topologies
            and self.schema == snapshot.schema
            and self.policy == snapshot.policy
        )


def survey(snapshot: Snapshot) -> NodeTable:
    """The ground of ``snapshot``."""
    nodes = tuple(sorted(snapshot.nodes, key=lambda node: node.name))
    shape = len(nodes), snapshot.schema.size
    capacity = np.array([n.allocatable for n in nodes], dtype=np.int64).reshape(shape).T.copy()
    capacity[GPU] = 0
    memories = {node.gpu_memory_mib for node in nodes if node.gpus}
    return NodeTable(
        given=snapshot.nodes,
        topologies=snapshot.topologies,
        schema=snapshot.schema,
        policy=snapshot.policy,
        nodes=nodes,
        index={node.name: i for i, node in enumerate(nodes)},
        capacity=capacity,
        gpus=_column([node.gpus for node in nodes]),
        usable=_column([usable_devices(node) for node in nodes]),
        memory_mib=_column([node.gpu_memory_mib for node in nodes]),
        max_memory_mib=max(memories, default=0),
        min_memory_mib=min(memories - {0}, default=0),
        offered=_offered(snapshot),
        predicates=NodePredicates(nodes),
        domains={t.name: DomainTree.from_nodes(t, nodes) for t in snapshot.topologies},
    )


def _offered(snapshot: Snapshot) -> tuple[int, int, int]:
    nodes = [node for node in snapshot.nodes if node.schedulable]
    return (
        sum([node.allocatable[CPU] for node in nodes]),
        sum([node.allocatable[MEMORY] for node in nodes]),
        sum([counted_gpu_milli(node, snapshot.schema, snapshot.policy) for node in nodes]),
    )


def _column(values: list[int]) -> IntArray:
    return np.array(values, dtype=np.int64)
