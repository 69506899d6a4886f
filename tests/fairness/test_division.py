"""Fair share against worked examples and properties."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, allocatable_share, fair_share, roll_up

FREE = -1


def gpu_queue(
    name: str,
    quota: float = 0,
    weight: float = 0,
    *,
    parent: str = "",
    limit: float = FREE,
    usage: float = 0.0,
    priority: int = 100,
    created_s: float = 0.0,
) -> Queue:
    return Queue(
        name,
        parent,
        priority=priority,
        created_s=created_s,
        quota=(0, 0, FREE if quota == FREE else int(quota * 1000)),
        limit=(FREE, FREE, FREE if limit == FREE else int(limit * 1000)),
        weight=(0.0, 0.0, weight),
        usage=(0.0, 0.0, usage),
        uid=name,
    )


def gpu_shares(queues: list[Queue], gpus: float, asked: Mapping[str, float], k_value: float = 1.0) -> dict[str, float]:
    """Fair shares in GPUs of the queues named in ``asked``; None of them asks for CPU or memory."""
    tree = QueueTree.from_queues(queues, Policy())
    request = np.zeros((tree.size, 3), dtype=np.int64)
    for name, amount in asked.items():
        request[tree.index[name], 2] = int(amount * 1000)
    share = fair_share(tree, (0, 0, int(gpus * 1000)), roll_up(tree, request), k_value)
    return {name: share[i, 2] / 1000 for name, i in tree.index.items()}


def company() -> list[Queue]:
    """The worked example of 100 GPUs."""
    return [
        gpu_queue("research", 40, 40),
        gpu_queue("llm", 24, 60, parent="research"),
        gpu_queue("vision", 16, 40, parent="research"),
        gpu_queue("data-science", 35, 35),
        gpu_queue("analytics", 24.5, 70, parent="data-science"),
        gpu_queue("inference", 10.5, 30, parent="data-science"),
        gpu_queue("infrastructure", 25, 25),
    ]


def test_when_all_ask_for_everything_each_gets_its_quota() -> None:
    asked = dict.fromkeys(("llm", "vision", "analytics", "inference", "infrastructure"), 100)
    shares = gpu_shares(company(), 100, asked)
    assert shares == {
        "research": 40,
        "llm": 24,
        "vision": 16,
        "data-science": 35,
        "analytics": 24.5,
        "inference": 10.5,
        "infrastructure": 25,
    }


def test_an_idle_queue_leaves_its_quota_to_its_siblings_by_weight() -> None:
    shares = gpu_shares(company(), 100, dict.fromkeys(("llm", "vision", "analytics", "inference"), 100))
    assert shares == {
        "research": 53,
        "llm": 32,
        "vision": 21,
        "data-science": 47,
        "analytics": 32.5,
        "inference": 14.5,
        "infrastructure": 0,
    }


def test_an_idle_child_leaves_its_part_inside_its_parent() -> None:
    shares = gpu_shares(company(), 100, dict.fromkeys(("llm", "analytics", "inference"), 100))
    assert shares["llm"] == shares["research"] == 53
    assert shares["vision"] == 0


def test_the_remainder_of_equals_goes_to_the_oldest() -> None:
    queues = [gpu_queue(name, weight=1, created_s=age) for name, age in (("young", 3.0), ("old", 1.0), ("mid", 2.0))]
    assert gpu_shares(queues, 8, dict.fromkeys(("young", "old", "mid"), 8)) == {"old": 3, "mid": 3, "young": 2}


def test_the_remainder_of_equals_of_one_age_goes_by_uid() -> None:
    queues = [gpu_queue(name, weight=1) for name in ("c", "a", "b")]
    assert gpu_shares(queues, 7, dict.fromkeys("abc", 8)) == {"a": 3, "b": 2, "c": 2}


def test_the_largest_remainder_comes_before_the_oldest() -> None:
    queues = [gpu_queue("old", weight=6, created_s=1), gpu_queue("young", weight=4, created_s=2)]
    # 8 GPUs: 4.8 and 3.2.
    assert gpu_shares(queues, 8, {"old": 8, "young": 8}) == {"old": 5, "young": 3}
    queues = [gpu_queue("old", weight=4, created_s=1), gpu_queue("young", weight=6, created_s=2)]
    assert gpu_shares(queues, 8, {"old": 8, "young": 8}) == {"old": 3, "young": 5}


def test_quotas_above_the_cluster_are_granted_and_nothing_is_left_over() -> None:
    queues = [gpu_queue("a", 10, 1), gpu_queue("b", 10, 1), gpu_queue("c", 0, 5)]
    assert gpu_shares(queues, 12, dict.fromkeys("abc", 20)) == {"a": 10, "b": 10, "c": 0}


def test_a_limit_caps_the_share_and_leaves_the_rest_to_others() -> None:
    queues = [gpu_queue("capped", 2, 1, limit=3), gpu_queue("free", 2, 1)]
    assert gpu_shares(queues, 10, {"capped": 10, "free": 10}) == {"capped": 3, "free": 7}


def test_a_limit_of_zero_means_nothing() -> None:
    assert gpu_shares([gpu_queue("none", 5, 1, limit=0)], 10, {"none": 10}) == {"none": 0}


def test_weight_zero_gets_its_quota_and_no_surplus() -> None:
    queues = [gpu_queue("modest", 2, 0), gpu_queue("other", 2, 1)]
    assert gpu_shares(queues, 10, {"modest": 10, "other": 4}) == {"modest": 2, "other": 4}


def test_surplus_goes_to_the_higher_priority_first() -> None:
    queues = [gpu_queue("low", 1, 9), gpu_queue("high", 1, 1, priority=200)]
    assert gpu_shares(queues, 10, {"low": 10, "high": 6}) == {"low": 4, "high": 6}
    assert gpu_shares(queues, 10, {"low": 10, "high": 10}) == {"low": 1, "high": 9}


def test_priority_does_not_touch_quotas() -> None:
    queues = [gpu_queue("low", 6), gpu_queue("high", 2, 1, priority=200)]
    assert gpu_shares(queues, 10, {"low": 10, "high": 10}) == {"low": 6, "high": 4}


def test_a_lower_stratum_with_the_larger_remainder_waits_for_the_higher_one() -> None:
    queues = [
        gpu_queue("h1", weight=1, priority=200),
        gpu_queue("h2", weight=1, priority=200, created_s=1),
        gpu_queue("l", weight=1, created_s=0),
    ]
    # 5 GPUs: 2.5 each above, floors leave 1, the lower stratum takes it by weight before remainders are rounded.
    assert gpu_shares(queues, 5, dict.fromkeys(("h1", "h2", "l"), 5)) == {"h1": 2, "h2": 2, "l": 1}


def test_past_usage_shifts_the_surplus() -> None:
    queues = [gpu_queue("used", weight=1, usage=0.5), gpu_queue("fresh", weight=1)]
    # n = 1/2 each, k = 1: used 1/2 + (1/2 - 1/2) = 1/2, fresh 1/2 + 1/2 = 1.
    assert gpu_shares(queues, 9, {"used": 9, "fresh": 9}) == {"used": 3, "fresh": 6}


def test_k_zero_ignores_past_usage() -> None:
    queues = [gpu_queue("used", weight=1, usage=0.9), gpu_queue("fresh", weight=1)]
    assert gpu_shares(queues, 8, {"used": 8, "fresh": 8}, k_value=0.0) == {"used": 4, "fresh": 4}
    assert gpu_shares(queues, 8, {"used": 8, "fresh": 8}, k_value=-3.0) == {"used": 4, "fresh": 4}


def test_usage_cannot_make_a_share_negative() -> None:
    queues = [gpu_queue("used", weight=1, usage=5.0), gpu_queue("fresh", weight=1)]
    assert gpu_shares(queues, 8, {"used": 8, "fresh": 8}) == {"used": 0, "fresh": 8}


def test_without_any_weight_nothing_is_left_over() -> None:
    assert gpu_shares([gpu_queue("a", 1), gpu_queue("b", 1)], 10, {"a": 5, "b": 5}) == {"a": 1, "b": 1}


def test_a_fraction_may_be_rounded_up_to_a_whole_gpu() -> None:
    queues = [gpu_queue("shared", weight=3, created_s=0), gpu_queue("a", weight=3.5), gpu_queue("b", weight=3.5)]
    # One GPU: 0.3, 0.35, 0.35; nobody is filled up, so the whole GPU goes to one of the larger remainders.
    assert gpu_shares(queues, 1, {"shared": 0.5, "a": 1, "b": 1}) == {"shared": 0, "a": 1, "b": 0}
    queues = [gpu_queue("shared", weight=4), gpu_queue("a", weight=3), gpu_queue("b", weight=3)]
    assert gpu_shares(queues, 1, {"shared": 0.5, "a": 1, "b": 1}) == {"shared": 1, "a": 0, "b": 0}


def test_what_gets_exactly_what_it_asks_for_starts_no_further_round() -> None:
    queues = [gpu_queue("exact", weight=2), gpu_queue("heavy", weight=6.2), gpu_queue("light", weight=1.8)]
    # 10 GPUs: 2 as asked, 6.2 and 1.8. The last one by remainder; shared out anew it would go to heavy.
    assert gpu_shares(queues, 10, {"exact": 2, "heavy": 9, "light": 9}) == {"exact": 2, "heavy": 6, "light": 2}


def test_half_a_gpu_of_surplus_is_given_whole_to_one() -> None:
    queues = [gpu_queue("a", weight=1, created_s=1), gpu_queue("b", weight=1, created_s=2)]
    assert gpu_shares(queues, 2.5, {"a": 4, "b": 4}) == {"a": 1.5, "b": 1}


def test_an_unlimited_quota_deserves_the_whole_of_its_parent() -> None:
    queues = [gpu_queue("open", FREE), gpu_queue("child", FREE, parent="open")]
    assert gpu_shares(queues, 10, {"child": 7}) == {"open": 7, "child": 7}
    assert gpu_shares(queues, 10, {"child": 70}) == {"open": 10, "child": 10}


def test_children_that_leave_something_do_not_give_it_to_cousins() -> None:
    queues = [
        gpu_queue("left", 5, parent=""),
        gpu_queue("leaf", 2, parent="left"),
        gpu_queue("right", 1, 1),
    ]
    assert gpu_shares(queues, 8, {"leaf": 5, "right": 8}) == {"left": 5, "leaf": 2, "right": 3}


def test_a_single_level_of_shares_is_independent_per_resource() -> None:
    tree = QueueTree.from_queues([Queue("a", weight=(1, 0, 0)), Queue("b", weight=(3, 1, 1))], Policy())
    request = np.full((2, 3), 100_000, dtype=np.int64)
    assert fair_share(tree, (4000, 500, 8000), request, 1.0).tolist() == [[1000, 0, 0], [3000, 500, 8000]]


def test_a_negative_total_is_nothing() -> None:
    assert gpu_shares([gpu_queue("a", FREE, 1)], -3, {"a": 5}) == {"a": 0}


def test_allocatable_share_is_the_larger_of_quota_and_share_under_the_limit() -> None:
    queues = [
        Queue("open", quota=(FREE, FREE, FREE), limit=(FREE, 7, 0)),
        Queue("plain", quota=(5, 5, 5), limit=(FREE, 3, 9)),
    ]
    tree = QueueTree.from_queues(queues, Policy())
    share = np.array([[1, 1, 1], [8, 2, 2]], dtype=np.int64)
    assert allocatable_share(tree, share).tolist() == [[FREE, 7, 0], [8, 3, 5]]


QUEUE = st.builds(
    lambda quota, weight, priority, created: (quota, weight, priority, created),
    st.integers(0, 8),
    st.sampled_from([0.0, 0.1, 1.0, 2.5, 40.0]),
    st.sampled_from([50, 100]),
    st.integers(0, 3),
)
ASK = st.integers(0, 24).map(lambda half: half / 2)


def siblings(specs: list[tuple[int, float, int, int]]) -> list[Queue]:
    return [
        gpu_queue(f"q{i}", quota, weight, priority=priority, created_s=created)
        for i, (quota, weight, priority, created) in enumerate(specs)
    ]


@given(st.lists(st.tuples(QUEUE, ASK), min_size=1, max_size=6), st.integers(0, 30))
def test_shares_fit_the_total_where_quotas_do(
    cases: list[tuple[tuple[int, float, int, int], float]], gpus: int
) -> None:
    specs, asks = [spec for spec, _ in cases], [ask for _, ask in cases]
    asked = {f"q{i}": ask for i, ask in enumerate(asks)}
    shares = gpu_shares(siblings(specs), gpus, asked)
    granted = sum(min(spec[0], ask) for spec, ask in zip(specs, asks, strict=True))
    assert sum(shares.values()) <= max(gpus, granted)
    for i, (spec, ask) in enumerate(zip(specs, asks, strict=True)):
        assert shares[f"q{i}"] >= min(spec[0], ask)
        assert shares[f"q{i}"] < ask + 1


@given(st.lists(st.tuples(QUEUE, ASK), min_size=1, max_size=6), st.integers(0, 30), st.randoms())
def test_the_order_of_queues_does_not_matter(
    cases: list[tuple[tuple[int, float, int, int], float]], gpus: int, random: object
) -> None:
    queues = siblings([spec for spec, _ in cases])
    asked = {f"q{i}": ask for i, (_, ask) in enumerate(cases)}
    shuffled = list(queues)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert gpu_shares(shuffled, gpus, asked) == gpu_shares(queues, gpus, asked)


@given(st.lists(st.tuples(QUEUE, ASK), min_size=2, max_size=5), st.integers(0, 30), st.integers(1, 4))
def test_a_larger_quota_never_costs_its_queue(
    cases: list[tuple[tuple[int, float, int, int], float]], gpus: int, more: int
) -> None:
    specs = [(quota, weight, 100, created) for (quota, weight, _, created), _ in cases]
    asked = {f"q{i}": float(int(ask)) for i, (_, ask) in enumerate(cases)}
    before = gpu_shares(siblings(specs), gpus, asked)["q0"]
    grown = [(specs[0][0] + more, *specs[0][1:]), *specs[1:]]
    assert gpu_shares(siblings(grown), gpus, asked)["q0"] >= before - 1  # one GPU may be lost to rounding


@pytest.mark.parametrize("weight", [float("nan"), float("inf"), -1.0])
def test_absurd_weights_do_not_break_the_division(weight: float) -> None:
    shares = gpu_shares([gpu_queue("odd", 1, weight), gpu_queue("fine", 1, 1)], 6, {"odd": 6, "fine": 6})
    assert sum(shares.values()) <= 6
