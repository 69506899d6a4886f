"""Eligibility of single gangs, and minimum run times."""

from dataclasses import replace

import pytest

from kai_solver.domain import Gang, Pod, PodStatus, Policy, Queue, flat_gang
from kai_solver.fairness import (
    QueueTree,
    consolidation_victim,
    may_consolidate,
    may_disturb,
    may_preempt,
    preempt_min_runtime_s,
    preempt_victim,
    protected_until_s,
    reclaim_min_runtime_s,
    reclaim_victim,
)

RUNNING = (Pod("ns", "p", (0, 0, 0, 1), status=PodStatus.RUNNING, node="n0"),)
VICTIM = Gang("ns", "victim", "a", flat_gang(1), RUNNING, priority=50)
ASKING = Gang("ns", "asking", "a", flat_gang(1), priority=60)


def test_preempt_takes_strictly_lower_priority_in_the_same_queue() -> None:
    assert preempt_victim(ASKING, VICTIM)
    assert not preempt_victim(ASKING, replace(VICTIM, priority=60))
    assert not preempt_victim(ASKING, replace(VICTIM, queue="b"))


def test_reclaim_takes_from_other_queues_whatever_the_priority() -> None:
    assert reclaim_victim(ASKING, replace(VICTIM, queue="b", priority=99))
    assert not reclaim_victim(ASKING, VICTIM)


def test_consolidation_moves_any_gang_but_the_one_it_serves() -> None:
    assert consolidation_victim(ASKING, replace(VICTIM, queue="b", priority=99))
    assert not consolidation_victim(VICTIM, VICTIM)
    assert may_consolidate(ASKING)
    assert not may_consolidate(replace(ASKING, preemptible=False))


@pytest.mark.parametrize(
    "spared",
    [
        replace(VICTIM, preemptible=False),
        replace(VICTIM, pods=()),
        replace(VICTIM, pods=(replace(RUNNING[0], status=PodStatus.RELEASING),)),
        replace(VICTIM, set_aside="broken tree"),
    ],
)
def test_nobody_takes_what_is_not_preemptible_not_active_or_set_aside(spared: Gang) -> None:
    assert not preempt_victim(ASKING, spared)
    assert not reclaim_victim(ASKING, replace(spared, queue="b"))
    assert not consolidation_victim(ASKING, spared)


def test_the_preemption_delay_runs_from_creation_or_the_last_eviction() -> None:
    gang = replace(ASKING, created_s=100.0, preemption_delay_s=50.0)
    assert not may_disturb(gang, 149.0)
    assert may_disturb(gang, 150.0)
    assert not may_disturb(replace(gang, last_eviction_s=140.0), 150.0)
    assert may_disturb(replace(gang, last_eviction_s=20.0), 150.0)


def test_a_gang_that_never_preempts_may_still_disturb_otherwise() -> None:
    never = replace(ASKING, never_preempts=True)
    assert not may_preempt(never, 1e9)
    assert may_disturb(never, 1e9)
    assert may_preempt(ASKING, 1e9)


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
    return reclaim_min_runtime_s(TREE, policy, TREE.index[reclaimer], TREE.index[victim])


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
    found = {name: preempt_min_runtime_s(TREE, policy, TREE.index[name]) for name in ("a1", "b1", "alone")}
    assert found == {"a1": 10.0, "b1": 30.0, "alone": 5.0}


def test_protection_ends_after_the_minimum_run_time() -> None:
    assert protected_until_s(100.0, 60.0) == 160.0
    assert protected_until_s(100.0, 0.0) < 0
    assert protected_until_s(None, 60.0) < 0
