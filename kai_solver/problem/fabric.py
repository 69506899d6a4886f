"""Links between the GPUs of the nodes, by which nodes and devices are chosen.

A node counts here where it makes a difference which of its GPUs a pod gets, and where it is known which are free.
Elsewhere every set is as good as any other.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import ClaimDevice, Node, Snapshot
from kai_solver.links import (
    MOST_GPUS,
    PRODUCT_LABEL,
    LinkGraph,
    LinkTables,
    RowWish,
    gpus_of,
    graph_of,
    known_tables,
    links_of_claims,
)
from kai_solver.units import GPU, MILLI

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]
Graphs = tuple[LinkGraph | None, ...]
"""By node; None where links make no difference, or are not known."""

_gpus = lru_cache(maxsize=4096)(gpus_of)


@dataclass(frozen=True, slots=True, eq=False)
class Fabric:
    """Of N nodes.

    Attributes
    ----------
    tables
        Worth of sets of GPUs, by kind of graph.
    kinds
        (N,) number of each node's kind; -1 where links say nothing.
    """

    tables: LinkTables
    kinds: IntArray

    def leaves_choice(self, count: int, nodes: BoolArray) -> bool:
        """Whether links tell the sets of ``count`` GPUs apart somewhere on ``nodes``, a mask: one GPU has none, and of
        all GPUs of a node there is one set.
        """
        sizes = np.array([table.graph.gpus for table in self.tables.tables], dtype=np.int64)[self.kinds]
        return count > 1 and bool(((self.kinds >= 0) & (sizes > count) & nodes).any())

    def pick(self, node: int, free: Sequence[int], count: int, wish: RowWish | None = None) -> tuple[int, ...]:
        """The best ``count`` of the ``free`` GPUs of a node whose links count; none where there are no such."""
        return _gpus(self.tables.pick(int(self.kinds[node]), sum([1 << gpu for gpu in free]), count, wish) or 0)

    def pick_singles(self, node: int, free: Sequence[int], count: int) -> list[int]:
        """The best of the ``free`` GPUs for ``count`` pods of one GPU, one after the other."""
        kind, left, found = int(self.kinds[node]), sum([1 << gpu for gpu in free]), list[int]()
        while len(found) < count and (one := self.tables.pick(kind, left, 1)) is not None:
            left ^= one
            found.append(one.bit_length() - 1)
        return found


def fabric_of(graphs: Graphs, devices_known: BoolArray) -> Fabric | None:
    """Fabric of nodes with these ``graphs``; None where no node counts.

    ``devices_known``: (N,) whether it is known which GPUs are held there.
    """
    if not any(graphs):
        return None
    tables, kinds = known_tables(), np.full(len(graphs), -1, dtype=np.int64)
    known: dict[int, int] = {}
    for at in np.flatnonzero(devices_known).tolist():
        graph = graphs[at]
        if graph is not None:
            if id(graph) not in known:
                known[id(graph)] = tables.add(graph)
            kinds[at] = known[id(graph)]
    return Fabric(tables, kinds) if (kinds >= 0).any() else None


def uneven_graphs(nodes: Sequence[Node], snapshot: Snapshot) -> Graphs:
    """Graphs of ``nodes`` whose links make a difference.

    All GPUs of such a node are a device plugin's, or all are given by claim, and all may be had: else it is
    unknown which of them belong to which.
    """
    claims = snapshot.claims
    lowered = claims.lowered if claims is not None else None
    if lowered is None:
        return tuple([_graph(node) for node in nodes])
    offered = {node.name: node.gpus for node in lowered.nodes}
    by_claim = lowered.gpus
    return tuple([_graph(node, offered.get(node.name, node.gpus), by_claim.get(node.name, ())) for node in nodes])


def _graph(node: Node, offered: int = -1, by_claim: Sequence[ClaimDevice] = ()) -> LinkGraph | None:
    if not node.gpus or node.allocatable[GPU] != node.gpus * MILLI or node.gpus > MOST_GPUS:
        return None
    graph: LinkGraph | None = None
    if not by_claim:
        devices_known = node.gpu_topology or node.numa is not None or PRODUCT_LABEL in node.labels
        graph = graph_of(node) if devices_known else None
    elif not offered:
        graph = _graph_by_claim(node, by_claim)
    return graph if graph is not None and graph.is_known and not graph.is_even else None


def _graph_by_claim(node: Node, devices: Sequence[ClaimDevice]) -> LinkGraph | None:
    """The graph of GPUs given by claim, in the order of their indices."""
    links = links_of_claims(node, devices)
    at = {name: gpu for gpu, name in enumerate(links.devices)}
    order = [at[device.name] for device in devices if device.name in at]
    if not len(at) == len(order) == len(devices):
        return None
    is_sorted = order == sorted(order)
    return links.graph if is_sorted else links.graph.ordered(order)
