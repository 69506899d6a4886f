"""Minimum run times: whose setting counts, and how long it protects."""

import pytest

from kai_solver.domain import Action, Policy, Queue
from kai_solver.fairness import NEVER_STARTED_S, QueueTree, is_unprotected, min_runtime_s

TREE = QueueTree.from_queues(
    [
        Queue("org", reclaim_min_runtime_s=1.0, preempt_min_runtime_s=10.0),
        Queue("a", "org"),
        Queue("b", "org", reclaim_min_runtime_s=2.0),
        Queue("a1", "a"),
        Queue("b1", "b", reclaim_min_runtime_s=3.0, preempt_min_runtime_s=30.0),
        Queue("b2", "b"),
        Queue("alone"),
    ],
    Policy(),
)


def reclaim_runtime(reclaimer: str, victim: str, policy: Policy) -> float:
    return min_runtime_s(TREE, policy, Action.RECLAIM, TREE.index[reclaimer], TREE.index[victim])


@pytest.mark.parametrize(
    ("reclaimer", "victim", "seconds"),
    [
        ("a1", "b1", 2.0),
        ("b2", "b1", 3.0),
        ("b1", "b2", 2.0),
        ("b1", "a1", 1.0),
        ("alone", "b1", 1.0),
        ("b1", "alone", 7.0),
    ],
)
def test_reclaim_looks_below_the_lowest_common_ancestor(reclaimer: str, victim: str, seconds: float) -> None:
    assert reclaim_runtime(reclaimer, victim, Policy(reclaim_min_runtime_s=7.0)) == seconds


def test_reclaim_by_queue_looks_from_the_victims_leaf() -> None:
    policy = Policy(reclaim_resolve="queue", reclaim_min_runtime_s=7.0)
    assert reclaim_runtime("a1", "b1", policy) == 3.0
    assert reclaim_runtime("a1", "b2", policy) == 2.0
    assert reclaim_runtime("a1", "alone", policy) == 7.0


def test_preempt_takes_the_nearest_setting_upward() -> None:
    policy = Policy(preempt_min_runtime_s=5.0)
    queues = {name: TREE.index[name] for name in ("a1", "b1", "alone")}
    found = {name: min_runtime_s(TREE, policy, Action.PREEMPT, queue, queue) for name, queue in queues.items()}
    assert found == {"a1": 10.0, "b1": 30.0, "alone": 5.0}


@pytest.mark.parametrize("action", [Action.ALLOCATE, Action.CONSOLIDATION])
def test_other_actions_know_no_minimum_run_time(action: Action) -> None:
    assert min_runtime_s(TREE, Policy(), action, TREE.index["a1"], TREE.index["b1"]) == 0.0


def test_protection_ends_after_the_minimum_run_time() -> None:
    assert not is_unprotected(100.0, 60.0, 159.0)
    assert is_unprotected(100.0, 60.0, 160.0)
    assert is_unprotected(200.0, 0.0, 100.0)
    assert is_unprotected(NEVER_STARTED_S, 60.0, 100.0)
