"""The queue tree: paths, orphans, cycles, flattening."""

import numpy as np
import pytest

from kai_solver.domain import Policy, Queue
from kai_solver.errors import InputError
from kai_solver.fairness import QueueTree, levelled, roll_up


def tree_of(*pairs: tuple[str, str], full_hierarchy: bool = True) -> QueueTree:
    queues = [Queue(name, parent) for name, parent in pairs]
    return QueueTree.from_queues(queues, Policy(full_hierarchy=full_hierarchy))


def test_paths_run_from_the_leaf_to_the_root() -> None:
    tree = tree_of(("leaf", "team"), ("team", "org"), ("org", ""), ("other", ""))
    path = [tree.names[i] for i in tree.path[tree.index["leaf"]]]
    assert path == ["leaf", "team", "org"]
    assert [tree.names[i] for i in tree.roots] == ["org", "other"]
    assert dict(zip(tree.names, tree.is_leaf, strict=True)) == {
        "leaf": True,
        "team": False,
        "org": False,
        "other": True,
    }
    assert tree.parent.tolist() == [1, 2, -1, -1]


def test_a_queue_without_its_parent_is_dropped_with_all_below_it_and_says_why() -> None:
    tree = tree_of(("orphan", "gone"), ("below", "orphan"), ("fine", ""))
    assert tree.names == ("fine",)
    assert set(tree.dropped) == {"orphan", "below"}
    assert '"gone"' in tree.dropped["below"]
    assert "does not exist" in tree.dropped["orphan"]


def test_a_cycle_of_parents_is_dropped_with_all_below_it() -> None:
    tree = tree_of(("a", "b"), ("b", "a"), ("self", "self"), ("below", "a"), ("fine", ""))
    assert tree.names == ("fine",)
    assert set(tree.dropped) == {"a", "b", "self", "below"}
    assert all("cycle" in why for why in tree.dropped.values())


def test_two_queues_of_one_name_are_refused() -> None:
    with pytest.raises(InputError, match="two queues"):
        tree_of(("a", ""), ("a", ""))


def test_no_queues_make_an_empty_tree() -> None:
    tree = tree_of()
    assert tree.size == 0
    assert tree.quota.shape == (0, 3)


def test_without_full_hierarchy_roots_go_and_the_others_share_one_unlimited_parent() -> None:
    tree = tree_of(("org", ""), ("team", "org"), ("leaf", "team"), full_hierarchy=False)
    assert set(tree.names) == {"(default)", "team", "leaf"}
    top = tree.index["(default)"]
    assert tree.roots == (top,)
    assert tree.limits[top] == tree.quotas[top] == (-1, -1, -1)
    assert tree.is_leaf[tree.index["team"]]
    assert tree.is_leaf[tree.index["leaf"]]
    assert "org" in tree.dropped


def test_amounts_are_summed_into_every_ancestor() -> None:
    tree = tree_of(("root", ""), ("a", "root"), ("b", "root"), ("a1", "a"))
    own = np.array([[0, 0, 0], [0, 0, 0], [1, 2, 3], [10, 20, 30]], dtype=np.int64)
    assert roll_up(tree, own).tolist() == [[11, 22, 33], [10, 20, 30], [1, 2, 3], [10, 20, 30]]


def test_levelled_queues_are_the_first_that_differ_from_the_root() -> None:
    tree = tree_of(
        ("r1", ""), ("r2", ""), ("a", "r1"), ("b", "r1"), ("a1", "a"), ("a2", "a"), ("b1", "b"), ("c1", "r2")
    )

    def names(one: str, other: str) -> tuple[str, str]:
        first, second = levelled(tree, tree.index[one], tree.index[other])
        return tree.names[first], tree.names[second]

    assert names("a1", "b1") == ("a", "b")
    assert names("a1", "a2") == ("a1", "a2")
    assert names("a1", "c1") == ("r1", "r2")
    assert names("a1", "r1") == ("r1", "r1")
