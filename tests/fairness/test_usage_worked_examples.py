"""Time-based fair share by hand, every figure a fraction that can be checked with pencil and paper.

Source: docs/kai-behaviour.md#usage.

s = max(0, n + k (n - u)), n = weight / weights of those who still ask; of an amount A everybody still asking gets
floor(A s / S), whoever is filled up leaves the rest to the next round, and the remainders go by size, then age.
"""

from fractions import Fraction
from math import inf

import numpy as np
import pytest

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, UsageHistory, UsageParams, fair_share, past_usage, roll_up

FREE = -1
HOUR_S = 3600.0
NOW_S = 500_000 * HOUR_S


def queue(
    name: str,
    usage: Fraction | float = 0,
    *,
    weight: float = 1,
    quota: int = 0,
    limit: int = FREE,
    priority: int = 100,
    age: int = 0,
    parent: str = "",
) -> Queue:
    """A queue of GPUs; larger ``age`` is older."""
    return Queue(
        name,
        parent,
        priority=priority,
        created_s=-float(age),
        quota=(0, 0, quota * 1000),
        limit=(FREE, FREE, limit if limit == FREE else limit * 1000),
        weight=(0.0, 0.0, weight),
        usage=(0.0, 0.0, float(usage)),
        uid=name,
    )


def divided(gpus: int, queues: list[Queue], k: float = 1, **asked: float) -> dict[str, float]:
    """Fair shares in GPUs; leaves that are not in ``asked`` ask for everything."""
    tree = QueueTree.from_queues(queues, Policy())
    request = np.zeros((tree.size, 3), dtype=np.int64)
    for index in range(tree.size):
        if tree.is_leaf[index]:
            request[index, 2] = asked.get(tree.names[index], gpus) * 1000
    share = fair_share(tree, (0, 0, gpus * 1000), roll_up(tree, request), k)
    return {name: share[index, 2] / 1000 for name, index in tree.index.items()}


def usage_of(params: UsageParams, *rows: tuple[int, int, int]) -> dict[str, float]:
    """Usage of a and b from rows (hours ago, GPUs of a, GPUs of b), of 8 GPUs."""
    times = np.array([NOW_S - hours * HOUR_S for hours, _, _ in rows])
    allocated = np.zeros((len(rows), 2, 3))
    allocated[:, :, 2] = [[a * 1000, b * 1000] for _, a, b in rows]
    history = UsageHistory(times, ("a", "b"), allocated, np.tile([0.0, 0.0, 8000.0], (len(rows), 1)))
    usage = past_usage(history, params, {"a": "", "b": ""}, NOW_S)
    return {name: shares[2] for name, shares in usage.items()}


def test_01_no_usage_is_the_plain_weight() -> None:
    # n = 1/4, 3/4; s = 1/2, 3/2; S = 2. 10 s/S = 5/2, 15/2: 2 and 7, remainders 1/2 and 1/2, the older a has the last.
    assert divided(10, [queue("a", weight=1, age=1), queue("b", weight=3)]) == {"a": 3, "b": 7}


def test_02_equal_weights_unequal_usage() -> None:
    # n = 1/2; s = 1/2 + 0 = 1/2, 1/2 + 1/4 = 3/4; S = 5/4. 12 s/S = 24/5, 36/5: 4 and 7, remainders 4/5 > 1/5.
    assert divided(12, [queue("a", Fraction(1, 2)), queue("b", Fraction(1, 4))]) == {"a": 5, "b": 7}


def test_03_k_zero_forgets_usage() -> None:
    # s = n = 1/2 each; 12/2 = 6.
    assert divided(12, [queue("a", Fraction(1, 2)), queue("b", Fraction(1, 4))], k=0) == {"a": 6, "b": 6}


def test_04_k_large_lets_usage_decide_alone() -> None:
    # s = 1/2 + 100 * 0 = 1/2, 1/2 + 100/4 = 51/2; S = 26. 12 s/S = 3/13, 153/13 = 11 + 10/13: the last one to b.
    assert divided(12, [queue("a", Fraction(1, 2)), queue("b", Fraction(1, 4))], k=100) == {"a": 0, "b": 12}


def test_05_saturated_by_its_request() -> None:
    # s = 1/2, 1; S = 3/2; 12 s/S = 4, 8. b asks for 5 < 8. Round 2, 3 left: a alone, n = 1, s = 3/2 = S, all 3.
    assert divided(12, [queue("a", Fraction(1, 2)), queue("b")], b=5) == {"a": 4 + 3, "b": 5}


def test_06_saturated_by_its_limit() -> None:
    # Quota 2 of a first, surplus 12: 4 and 8 as above; b may have 3. Round 2, 5 left, to a.
    queues = [queue("a", Fraction(1, 2), quota=2), queue("b", limit=3)]
    assert divided(14, queues) == {"a": 2 + 4 + 5, "b": 3}


def test_07_two_priorities() -> None:
    # Above, of 10: s = 1/2, 1; S = 3/2; 10 s/S = 10/3, 20/3. x asks for 4: floor 3; y asks for 2: 2.
    # Round 2, 5 left: x alone lacks 1. What is left, 4, goes below, where usage 9/10 does not matter to one alone.
    queues = [queue("x", Fraction(1, 2), priority=200), queue("y", priority=200), queue("low", 0.9, weight=5)]
    assert divided(10, queues, x=4, y=2) == {"x": 4, "y": 2, "low": 4}


def test_08_weight_zero_has_its_quota_alone() -> None:
    # Surplus 6. n = 0, 1; s = 0 + 1 (0 - 0) = 0, 1 + (1 - 9/10) = 11/10 = S: all 6 to b, in spite of its usage.
    assert divided(9, [queue("a", weight=0, quota=2), queue("b", 0.9, quota=1)]) == {"a": 2, "b": 1 + 6}


def test_09_the_last_unit_goes_to_the_largest_remainder() -> None:
    # n = 1/3; s = 1/3, 1/2, 2/3; S = 3/2. 10 s/S = 20/9, 30/9, 40/9: 2, 3, 4; remainders 2/9, 3/9, 4/9.
    queues = [queue("a", Fraction(1, 3), age=3), queue("b", Fraction(1, 6), age=2), queue("c", age=1)]
    assert divided(10, queues) == {"a": 2, "b": 3, "c": 4 + 1}


def test_10_of_equal_remainders_the_oldest() -> None:
    # s = 1/2 + 1/4 = 3/4 each; S = 3/2; 7 s/S = 7/2 each, remainders 1/2.
    queues = [queue("a", Fraction(1, 4), age=1), queue("b", Fraction(1, 4), age=2)]
    assert divided(7, queues) == {"a": 3, "b": 4}


def test_11_half_life() -> None:
    # Read 2 h, 1 h and 0 h ago, w = 1/4, 1/2, 1; capacity 8 (1/4 + 1/2 + 1) = 14.
    # a: 8/4 = 2, 2/14 = 1/7. b: 8/2 + 8 = 12, 12/14 = 6/7.
    params = UsageParams(size_s=3 * HOUR_S, resolution_s=HOUR_S, half_life_s=HOUR_S)
    usage = usage_of(params, (2, 8, 0), (1, 0, 8), (0, 0, 8))
    assert usage == pytest.approx({"a": 1 / 7, "b": 6 / 7})
    # s = 1 - 1/7 = 6/7, 1 - 6/7 = 1/7; S = 1; of 7: 6 and 1.
    assert divided(7, [queue("a", usage["a"]), queue("b", usage["b"])]) == {"a": 6, "b": 1}


def test_12_the_edge_of_the_sliding_window() -> None:
    # Two hours: what was read at their very beginning is out. a: 4/16 = 1/4; b: (4 + 8)/16 = 3/4.
    rows = (2, 8, 0), (1, 4, 4), (0, 0, 8)
    usage = usage_of(UsageParams(size_s=2 * HOUR_S, resolution_s=HOUR_S), *rows)
    assert usage == {"a": 0.25, "b": 0.75}
    # s = 3/4, 1/4; of 8: 6 and 2.
    assert divided(8, [queue("a", usage["a"]), queue("b", usage["b"])]) == {"a": 6, "b": 2}
    # A second longer, and it is in: a: (8 + 4)/24 = 1/2; b: 12/24 = 1/2; of 8: 4 and 4.
    usage = usage_of(UsageParams(size_s=2 * HOUR_S + 1, resolution_s=HOUR_S), *rows)
    assert usage == {"a": 0.5, "b": 0.5}
    assert divided(8, [queue("a", usage["a"]), queue("b", usage["b"])]) == {"a": 4, "b": 4}


def test_13_children_divide_their_parents_share_by_usage_of_the_whole() -> None:
    # p (3/8 + 1/8 = 1/2) and q (0): s = 1/2, 1; of 12: 4 and 8.
    # Below p: s = 1 - 3/8 = 5/8, 1 - 1/8 = 7/8; S = 12/8; 4 s/S = 5/3, 7/3: 1 and 2, remainders 2/3 > 1/3.
    queues = [
        queue("p", Fraction(1, 2)),
        queue("q"),
        queue("c", Fraction(3, 8), parent="p"),
        queue("d", Fraction(1, 8), parent="p"),
    ]
    assert divided(12, queues) == {"p": 4, "q": 8, "c": 1 + 1, "d": 2}


def test_14_usage_far_above_the_weight_waits_for_the_others() -> None:
    # n = 1/4, 3/4; s = max(0, 1/4 + 1/4 - 3/4) = 0, 3/4 + 3/4 - 1/8 = 11/8: all 8 to b.
    queues = [queue("a", Fraction(3, 4), weight=1), queue("b", Fraction(1, 8), weight=3)]
    assert divided(8, queues) == {"a": 0, "b": 8}
    # Where b asks for 5 only, 3 are left: a alone, n = 1, s = 1 + 1 - 3/4 = 5/4 = S: all 3.
    assert divided(8, queues, b=5) == {"a": 3, "b": 5}


def test_15_where_every_score_is_zero_nothing_is_divided() -> None:
    # A usage above (1 + k)/k, possible without capacity only: s = max(0, 1 + (1 - 3)) = 0 = S.
    assert divided(8, [queue("a", 3)]) == {"a": 0}
    assert divided(8, [queue("a", inf)]) == {"a": 8}  # no number is no usage
