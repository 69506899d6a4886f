"""Domain trees, level ranges and the order of candidate domains."""

import networkx as nx
import numpy as np
import pytest

from kai_solver.domain import Node, Topology, TopologyLevel
from kai_solver.topology import ROOT, Domain, DomainTree

ZONES = Topology(
    "net",
    (
        TopologyLevel("example.com/zone", "zone"),
        TopologyLevel("example.com/rack", "rack"),
        TopologyLevel("kubernetes.io/hostname"),
    ),
)


def host(name: str, zone: str, rack: str) -> Node:
    labels = {"example.com/zone": zone, "example.com/rack": rack, "kubernetes.io/hostname": name}
    return Node(name, (0, 0, 0, 110), labels=labels)


NODES = (
    host("n0", "b", "r1"),
    host("n1", "a", "r1"),
    host("n2", "a", "r2"),
    Node("bare", (0, 0, 0, 110), labels={"example.com/zone": "a"}),
    host("n4", "a", "r1"),
)


@pytest.fixture
def tree() -> DomainTree:
    return DomainTree.from_nodes(ZONES, NODES)


def test_domains_are_paths_of_label_values(tree: DomainTree) -> None:
    assert tree.names[0] == (("a",), ("b",))
    assert tree.names[1] == (("a", "r1"), ("a", "r2"), ("b", "r1"))
    assert tree.domain_of[0].tolist() == [1, 0, 0, -1, 0]
    assert tree.domain_of[1].tolist() == [2, 0, 1, -1, 0]


def test_a_node_without_one_of_the_labels_is_outside_on_every_level(tree: DomainTree) -> None:
    assert tree.domain_of[:, 3].tolist() == [-1, -1, -1]
    assert tree.members.tolist() == [0, 1, 2, 4]
    assert tree.nodes_of(ROOT).tolist() == [0, 1, 2, 4]


def test_nodes_and_parents_of_domains(tree: DomainTree) -> None:
    assert [rack.tolist() for rack in tree.nodes[1]] == [[1, 4], [2], [0]]
    assert tree.parent_of(Domain(1, 2)) == Domain(0, 1)
    assert tree.parent_of(Domain(0, 1)) == ROOT == tree.parent_of(ROOT)
    assert tree.title(Domain(1, 2)) == "b/r1"
    assert tree.title(ROOT) == "net"


def test_hostname_as_last_level_makes_every_node_a_domain(tree: DomainTree) -> None:
    assert [name[-1] for name in tree.names[2]] == ["n1", "n4", "n2", "n0"]
    assert all(len(nodes) == 1 for nodes in tree.nodes[2])


def test_levels_are_found_by_label_and_by_alias(tree: DomainTree) -> None:
    assert tree.level_index("rack") == tree.level_index("example.com/rack") == 1
    assert tree.level_index("row") is None


def test_the_order_of_nodes_does_not_change_domains() -> None:
    one, other = DomainTree.from_nodes(ZONES, NODES), DomainTree.from_nodes(ZONES, NODES[::-1])
    assert one.names == other.names
    assert one.domain_of[1].tolist() == other.domain_of[1].tolist()[::-1]


def test_the_graph_is_a_tree_over_all_domains(tree: DomainTree) -> None:
    graph = tree.as_graph()
    assert nx.is_arborescence(graph)
    assert len(graph) == 1 + 2 + 3 + 4
    assert graph.nodes[Domain(1, 0)] == {"name": "a/r1", "level": "example.com/rack", "nodes": 2}


def gpus(*free: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([[amount] for amount in free], dtype=np.int64)
