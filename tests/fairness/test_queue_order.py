"""Queue order, rule by rule, and job order."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueOrder, QueueTree, compare_queues, dominant_share, gang_order_key, queue_key

TOTAL = (100, 100, 100_000)
FREE = (-1, -1, -1)
Vec = tuple[int, int, int]


def first_of(
    left: dict[str, Any],
    right: dict[str, Any],
    *,
    shares: Sequence[Vec] = ((50, 50, 50_000),) * 2,
    allocatable: Sequence[Vec] = ((50, 50, 50_000),) * 2,
    allocated: Sequence[Vec] = ((0, 0, 0),) * 2,
    jobs: Sequence[Vec] = ((1, 1, 1000),) * 2,
    victims: Sequence[Vec] = ((0, 0, 0),) * 2,
) -> int:
    """-1 where ``left`` is served first, 1 where ``right`` is."""
    tree = QueueTree.from_queues([Queue("left", **left), Queue("right", **right)], Policy())
    keys = [queue_key(tree, shares, allocatable, TOTAL, q, allocated[q], jobs[q], victims[q]) for q in range(tree.size)]
    forth = compare_queues(tree, allocatable, 0, keys[0], 1, keys[1])
    assert forth == -compare_queues(tree, allocatable, 1, keys[1], 0, keys[0])
    return forth


def test_rule_1_a_queue_over_its_share_in_all_resources_goes_after() -> None:
    left: dict[str, Any] = {"priority": 900, "quota": FREE}
    assert first_of(left, {}, allocated=((51, 51, 51_000), (9, 9, 9_000))) == 1


def test_rule_1_over_in_two_of_three_resources_is_not_over() -> None:
    left: dict[str, Any] = {"priority": 900}
    assert first_of(left, {}, allocated=((51, 51, 50_000), (9, 9, 9_000))) == -1


def test_rule_2_a_queue_within_its_quota_with_the_job_goes_first() -> None:
    assert first_of({"quota": (1, 1, 1000)}, {"priority": 900}) == -1
    assert first_of({"quota": (1, 1, 999)}, {"priority": 900}) == 1
    assert first_of({"quota": (-1, -1, 1000)}, {"priority": 900}) == -1


def test_rule_3_higher_priority_goes_first() -> None:
    assert first_of({"priority": 100}, {"priority": 101}, allocated=((0, 0, 0), (9, 9, 9_000))) == 1


def test_rule_4_use_without_any_allocatable_share_goes_after() -> None:
    allocatable = ((50, 50, 0), (50, 50, 50_000))
    assert first_of({}, {}, allocatable=allocatable, allocated=((0, 0, 0), (40, 40, 40_000))) == 1
    jobs = ((1, 1, 0), (1, 1, 0))
    assert first_of({}, {}, allocatable=allocatable, allocated=((0, 0, 0), (40, 40, 40_000)), jobs=jobs) == -1


def test_rule_5_the_smaller_dominant_share_with_the_job_goes_first() -> None:
    assert first_of({}, {}, jobs=((1, 1, 8000), (1, 9, 1000))) == -1
    assert first_of({}, {}, jobs=((1, 1, 8000), (1, 7, 1000))) == 1


def test_rule_5_victims_are_taken_off() -> None:
    allocated, victims = ((0, 0, 9000), (0, 0, 5000)), ((0, 0, 8000), (0, 0, 0))
    assert first_of({}, {}, allocated=allocated) == 1
    assert first_of({}, {}, allocated=allocated, victims=victims) == -1


def test_rule_6_at_equal_share_with_the_job_the_one_with_less_now_goes_first() -> None:
    assert first_of({}, {}, allocated=((0, 0, 2000), (0, 0, 1000)), jobs=((0, 0, 1000), (0, 0, 2000))) == 1


def test_rule_7_the_weaker_queue_goes_first() -> None:
    allocatable = ((50, 50, 50_000), (50, 60, 50_000))
    assert first_of({"created_s": 9.0}, {}, allocatable=allocatable, jobs=((0, 0, 1000),) * 2) == -1
    unlimited = ((50, 50, 50_000), (50, -1, 50_000))
    assert first_of({"created_s": 9.0}, {}, allocatable=unlimited, jobs=((0, 0, 1000),) * 2) == -1


def test_rule_8_the_older_queue_goes_first_then_the_uid() -> None:
    assert first_of({"created_s": 2.0}, {"created_s": 1.0}) == 1
    assert first_of({"uid": "b"}, {"uid": "a"}) == 1


def test_incomparable_allocatable_shares_fall_through_to_age() -> None:
    allocatable = ((60, 50, 50_000), (50, 60, 50_000))
    assert first_of({"created_s": 2.0}, {"created_s": 1.0}, allocatable=allocatable, jobs=((0, 0, 1),) * 2) == 1


@pytest.mark.parametrize(
    ("allocatable", "amounts", "share"),
    [
        ((10, 10, 10_000), (1, 2, 5000), 0.5),
        ((10, -1, 10_000), (1, 90, 5000), 0.9),
        ((10, 10, 0), (1, 0, 2000), 2000.0),
        ((0, 10, 10_000), (3, 0, 0), 3000.0),
        ((10, 10, 10_000), (0, 0, 0), 0.0),
    ],
)
def test_dominant_share(allocatable: Vec, amounts: Vec, share: float) -> None:
    assert dominant_share(allocatable, TOTAL, amounts) == share


def test_dominant_share_of_an_empty_cluster_does_not_divide_by_zero() -> None:
    assert dominant_share(FREE, (0, 0, 0), (1, 0, 0)) == 1000.0


def test_job_order_is_priority_then_elastic_state_then_age_then_uid() -> None:
    ordered = [
        gang_order_key(100, 9, 1, 9.0, "z"),
        gang_order_key(50, 1, 2, 9.0, "z"),
        gang_order_key(50, 2, 2, 1.0, "a"),
        gang_order_key(50, 2, 2, 2.0, "a"),
        gang_order_key(50, 2, 2, 2.0, "b"),
        gang_order_key(50, 3, 2, 0.0, "a"),
    ]
    assert ordered == sorted(ordered)
    assert gang_order_key(50, 0, 4, 1.0, "a") == gang_order_key(50, 3, 4, 1.0, "a")


amounts = st.tuples(*[st.sampled_from([0, 1, 3, 100, 700])] * 3)
bounds = st.tuples(*[st.sampled_from([-1, 0, 1, 3, 100])] * 3)


@given(
    queues=st.lists(st.tuples(bounds, st.sampled_from([100, 101]), st.integers(0, 1)), min_size=2, max_size=4),
    share=bounds,
    allocatable=st.lists(bounds, min_size=4, max_size=4),
    total=amounts,
    allocated=amounts,
    jobs=st.lists(amounts, min_size=4, max_size=4),
)
def test_the_prepared_order_is_the_order(
    queues: list[tuple[Vec, int, int]],
    share: Vec,
    allocatable: list[Vec],
    total: Vec,
    allocated: Vec,
    jobs: list[Vec],
) -> None:
    made = [Queue(f"q{i}", quota=q, priority=p, created_s=float(c)) for i, (q, p, c) in enumerate(queues)]
    tree = QueueTree.from_queues(made, Policy())
    order = QueueOrder(tree, [share] * tree.size, allocatable, total)
    keys = [queue_key(tree, [share] * 4, allocatable, total, q, allocated, jobs[q]) for q in range(tree.size)]
    assert [order.key(q, allocated, jobs[q]) for q in range(tree.size)] == keys
    ahead = [[column[0] for column in order.keys_ahead(q, allocated, np.array([jobs[q]]))] for q in range(tree.size)]
    for one in range(tree.size):
        for other in range(tree.size):
            assert (ahead[one] < ahead[other]) == (keys[one] < keys[other])
            first = compare_queues(tree, allocatable, one, keys[one], other, keys[other]) < 0
            assert ((keys[one], order.tie(one)) < (keys[other], order.tie(other))) == first
