"""Tables of queues have the types that kernels are compiled for, whatever the cluster has."""

import numpy as np

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree
from kai_solver.fairness.queue_tables import tree_of


def test_a_cluster_without_queues_has_tables_too() -> None:
    tree = tree_of(QueueTree.from_queues([], Policy()), [], [], 1.0, lambda rows: np.array(rows, dtype=np.int64))
    assert len(tree.parent) == len(tree.depth) == 0
    assert all(np.array(table).shape == (1, 3) for table in (tree.quota, tree.allocatable, tree.share))


def test_the_multiplier_is_a_float_of_at_least_one() -> None:
    queues, row = QueueTree.from_queues([Queue("q")], Policy()), [(-1, -1, -1)]
    found = [tree_of(queues, row, row, multiplier, list).multiplier for multiplier in (2, 0.5)]
    assert found == [2.0, 1.0]
    assert all(isinstance(multiplier, float) for multiplier in found)
