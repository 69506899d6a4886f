"""Domain trees, level ranges and the order of candidate domains."""

import networkx as nx
import numpy as np
import pytest

from kai_solver.domain import Node, Topology, TopologyConstraint, TopologyLevel
from kai_solver.topology import ROOT, Domain, DomainTree, LevelRange, candidate_domains, level_range

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


def test_a_topology_without_nodes_has_no_domains() -> None:
    tree = DomainTree.from_nodes(ZONES, ())
    assert tree.names == ((), (), ())
    assert candidate_domains(tree, LevelRange(1, 0), np.array([1]), np.zeros((0, 1), dtype=np.int64)) == []


def test_the_graph_is_a_tree_over_all_domains(tree: DomainTree) -> None:
    graph = tree.as_graph()
    assert nx.is_arborescence(graph)
    assert len(graph) == 1 + 2 + 3 + 4
    assert graph.nodes[Domain(1, 0)] == {"name": "a/r1", "level": "example.com/rack", "nodes": 2}


def test_a_range_runs_from_the_preferred_level_up_to_the_required_one(tree: DomainTree) -> None:
    trees = {"net": tree}
    assert level_range(TopologyConstraint("net", required="zone"), trees) == LevelRange(0, 0)
    assert level_range(TopologyConstraint("net", required="zone", preferred="rack"), trees) == LevelRange(1, 0)
    assert level_range(TopologyConstraint("net", preferred="rack"), trees) == LevelRange(1, -1)
    assert level_range(TopologyConstraint("net", required="rack", preferred="zone"), trees) == LevelRange(1, 1)


def test_what_is_missing_is_said(tree: DomainTree) -> None:
    assert level_range(TopologyConstraint("gone", "rack"), {"net": tree}) == "Requested topology gone does not exist"
    missing = level_range(TopologyConstraint("net", required="row"), {"net": tree})
    assert isinstance(missing, str)
    assert "row" in missing
    assert "example.com/rack" in missing


def gpus(*free: int) -> np.ndarray[tuple[int, int], np.dtype[np.int64]]:
    return np.array([[amount] for amount in free], dtype=np.int64)


def test_the_tightest_domain_comes_first_and_too_small_ones_are_left_out(tree: DomainTree) -> None:
    free = gpus(8, 1, 4, 99, 1)  # racks: a/r1 2, a/r2 4, b/r1 8
    assert candidate_domains(tree, LevelRange(1, 1), np.array([4]), free) == [Domain(1, 1), Domain(1, 2)]


def test_deeper_levels_come_before_higher_ones_and_the_root_last(tree: DomainTree) -> None:
    free = gpus(2, 2, 1, 99, 2)  # racks 4, 1, 2; zones a 5, b 2
    found = candidate_domains(tree, LevelRange(1, -1), np.array([4]), free)
    assert found == [Domain(1, 0), Domain(0, 0), ROOT]


def test_equal_domains_come_by_name(tree: DomainTree) -> None:
    assert candidate_domains(tree, LevelRange(1, 1), np.array([2]), gpus(2, 1, 2, 0, 1)) == [
        Domain(1, 0),
        Domain(1, 1),
        Domain(1, 2),
    ]


def test_a_demanded_resource_that_a_domain_lacks_rules_it_out(tree: DomainTree) -> None:
    free = np.array([[8, 0], [8, 1], [8, 0], [8, 8], [8, 0]], dtype=np.int64)
    assert candidate_domains(tree, LevelRange(1, 1), np.array([1, 1]), free) == [Domain(1, 0)]


def test_an_over_committed_node_takes_nothing_from_its_neighbours(tree: DomainTree) -> None:
    free = gpus(0, 4, 0, 0, -3)  # a/r1: 4 on one node, 3 too many on the other
    assert candidate_domains(tree, LevelRange(1, 1), np.array([4]), free) == [Domain(1, 0)]


def test_pods_alike_are_counted_in_slots_per_node(tree: DomainTree) -> None:
    free = gpus(3, 3, 3, 0, 3)  # two pods of 2 GPUs each: one slot a node although a/r1 has 6 GPUs and b/r1 3
    slots = np.array([1, 1, 1, 0, 1], dtype=np.int64)
    found = candidate_domains(tree, LevelRange(1, 1), np.array([4]), free, pods=2, slots=slots)
    assert found == [Domain(1, 0)]
