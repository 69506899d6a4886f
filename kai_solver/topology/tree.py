"""The domains of a topology: which nodes form a rack, a block, a zone.

Source: docs/kai-behaviour.md#topology; KAI: ``plugins/topology``.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Node, Topology

if TYPE_CHECKING:
    import networkx as nx

NodeIndices = NDArray[np.int64]
LabelPath = tuple[str, ...]
"""A domain's label values, outermost first: racks of one name in two zones are two racks."""

ROOT_LEVEL = -1


class Domain(NamedTuple):
    """A domain: its level (outermost 0, the whole tree -1) and its position within the level."""

    level: int
    position: int


ROOT = Domain(ROOT_LEVEL, 0)
"""The whole tree: all nodes that bear every label of the topology."""


@dataclass(frozen=True, slots=True, eq=False)
class DomainTree:
    """L levels over N nodes.

    Attributes
    ----------
    domain_of
        (L, N) index of the node's domain within its level; -1 on every level where the node lacks any label of the
        topology, since such nodes are outside the tree.
    names
        Per level and domain, the path of label values. Sorted, so that indices do not depend on the order of nodes.
    parents
        Per level, (D,) index of each domain's domain one level up; all 0 (the root) on the outermost level.
    nodes
        Per level and domain, the indices of its nodes, ascending.
    members
        Indices of all nodes inside the tree, ascending.
    """

    topology: Topology
    domain_of: NDArray[np.int32]
    names: tuple[tuple[LabelPath, ...], ...]
    parents: tuple[NDArray[np.int32], ...]
    nodes: tuple[tuple[NodeIndices, ...], ...]
    members: NodeIndices

    @classmethod
    def from_nodes(cls, topology: Topology, nodes: Sequence[Node]) -> "DomainTree":
        """Domains of ``nodes`` under ``topology``; the last level may be ``kubernetes.io/hostname``."""
        labels = [level.node_label for level in topology.levels]
        paths = [_label_path(node, labels) for node in nodes]
        members = np.array([i for i, path in enumerate(paths) if path], dtype=np.int64)
        domain_of = np.full((len(labels), len(nodes)), -1, dtype=np.int32)
        names: list[tuple[LabelPath, ...]] = []
        parents: list[NDArray[np.int32]] = []
        above: dict[LabelPath, int] = {(): 0}
        for level in range(len(labels)):
            index = {name: i for i, name in enumerate(sorted({path[: level + 1] for path in paths if path}))}
            domain_of[level, members] = [index[paths[i][: level + 1]] for i in members]
            names.append(tuple(index))
            parents.append(np.array([above[name[:-1]] for name in index], dtype=np.int32))
            above = index
        return cls(
            topology=topology,
            domain_of=domain_of,
            names=tuple(names),
            parents=tuple(parents),
            nodes=tuple(_nodes_by_domain(row, len(domains)) for row, domains in zip(domain_of, names, strict=True)),
            members=members,
        )

    def level_index(self, level: str) -> int | None:
        """Index of ``level`` (label or alias), outermost 0; None where the topology has no such level."""
        return self.topology.level_index(level)

    def nodes_of(self, domain: Domain) -> NodeIndices:
        """Indices of the nodes of ``domain``, ascending."""
        return self.members if domain.level == ROOT_LEVEL else self.nodes[domain.level][domain.position]

    def parent_of(self, domain: Domain) -> Domain:
        """The domain one level up; the root is its own parent."""
        if domain.level <= 0:
            return ROOT
        return Domain(domain.level - 1, int(self.parents[domain.level][domain.position]))

    def line(self, level: int, position: int) -> tuple[int, ...]:
        """Positions of a domain's ancestors from the outermost level down to itself."""
        found = [position]
        for above in range(level, 0, -1):
            found.append(int(self.parents[above][found[-1]]))
        return tuple(reversed(found))

    def title(self, domain: Domain) -> str:
        """The domain's name in messages, ``zone-a/rack-1``; the topology's name for the root."""
        return self.topology.name if domain.level == ROOT_LEVEL else "/".join(self.names[domain.level][domain.position])

    def as_graph(self) -> "nx.DiGraph[Any]":
        """The tree for export: vertices are ``Domain`` with ``name``, ``level`` (label) and ``nodes`` (count)."""
        import networkx as nx  # 0.3 s of a cold start, and only exports and plots need it

        graph: nx.DiGraph[Any] = nx.DiGraph(name=self.topology.name)
        graph.add_node(ROOT, name=self.topology.name, level="", nodes=len(self.members))
        for level, domains in enumerate(self.names):
            label = self.topology.levels[level].node_label
            for index in range(len(domains)):
                domain = Domain(level, index)
                graph.add_node(domain, name=self.title(domain), level=label, nodes=len(self.nodes_of(domain)))
                graph.add_edge(self.parent_of(domain), domain)
        return graph


def _label_path(node: Node, labels: Sequence[str]) -> LabelPath:
    """Values of all ``labels``; empty where one is missing."""
    if any(label not in node.labels for label in labels):
        return ()
    return tuple(node.labels[label] for label in labels)


def _nodes_by_domain(domain_of: NDArray[np.int32], count: int) -> tuple[NodeIndices, ...]:
    order = np.argsort(domain_of, kind="stable").astype(np.int64)
    edges = np.searchsorted(domain_of[order], np.arange(count + 1))
    return tuple(order[edges[i] : edges[i + 1]] for i in range(count))
