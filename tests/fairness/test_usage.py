"""Past usage from samples: what is in the window, how much each sample counts, and who speaks for whom."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.fairness import UsageHistory, UsageParams, past_usage, usage_warnings
from kai_solver.fairness.usage import sample_weights, window_start_s

HOUR_S = 3600.0
NOW_S = 500_000 * HOUR_S
"""On the grid of hours."""
HOURLY = UsageParams(size_s=3 * HOUR_S, resolution_s=HOUR_S)
DAY = UsageParams(window="tumbling", size_s=24 * HOUR_S, start_s=NOW_S - 50 * HOUR_S, resolution_s=HOUR_S)


def gpu_history(
    held: dict[float, dict[str, float]], capacity: float = 8, *, named: tuple[str, ...] = ()
) -> UsageHistory:
    """GPUs per queue by hours before now."""
    ages = sorted(held, reverse=True)
    queues = tuple(sorted({name for row in held.values() for name in row} | set(named)))
    allocated = np.zeros((len(ages), len(queues), 3))
    for place, age in enumerate(ages):
        for name, amount in held[age].items():
            allocated[place, queues.index(name), 2] = amount * 1000
    whole = np.tile([0.0, 0.0, capacity * 1000.0], (len(ages), 1))
    return UsageHistory(NOW_S - np.array(ages) * HOUR_S, queues, allocated, whole)


def gpu_usage(history: UsageHistory, params: UsageParams = HOURLY, **parent: str) -> dict[str, float]:
    usage = past_usage(history, params, dict.fromkeys(history.queues, "") | parent, NOW_S)
    return {name: shares[2] for name, shares in usage.items()}


def weights(ages_h: list[float], params: UsageParams) -> list[float]:
    return [float(weight) for weight in sample_weights(NOW_S - np.array(ages_h) * HOUR_S, params, NOW_S)]


def test_the_window_is_open_at_its_start_and_closed_at_now() -> None:
    # Moments in (now - 3 h, now]: 2 h ago, 1 h ago, now. The sample of 3 h ago is outside with all it held.
    assert weights([3, 2, 1, 0], HOURLY) == [0, 1, 1, 1]
    assert gpu_usage(gpu_history({3: {"a": 8}, 2: {"a": 4}, 1: {"a": 2}, 0: {"a": 0}})) == {"a": 6 / 24}


def test_a_sample_holds_until_the_next_one() -> None:
    # 2.5 h ago is first seen 2 h ago, and still 1 h ago; what came and went between two moments is not seen.
    assert weights([2.5, 0.75, 0.25], HOURLY) == [2, 0, 1]


def test_a_sample_from_before_the_window_reaches_into_it() -> None:
    assert weights([9, 1], HOURLY) == [1, 2]


def test_a_sample_holds_no_longer_than_the_lookback() -> None:
    params = UsageParams(size_s=10 * HOUR_S, resolution_s=HOUR_S, lookback_s=2 * HOUR_S)
    # 8 h ago counts 8 and 7 h ago, not 6 h ago when it is two hours old; then nothing is known until 1 h ago.
    assert weights([8, 1], params) == [2, 2]


def test_half_life_halves_the_weight_of_what_is_as_old() -> None:
    params = UsageParams(size_s=4 * HOUR_S, resolution_s=HOUR_S, half_life_s=HOUR_S)
    assert weights([3, 2, 1, 0], params) == pytest.approx([1 / 8, 1 / 4, 1 / 2, 1])
    # One sample that holds: 1/8 + 1/4 + 1/2 + 1.
    assert weights([3], params) == pytest.approx([15 / 8])


def test_a_long_half_life_is_none() -> None:
    params = UsageParams(resolution_s=HOUR_S, half_life_s=1e12)
    assert weights([100, 10], params) == pytest.approx([90, 11])


def test_a_tumbling_window_begins_anew() -> None:
    # Windows began 50 h, 26 h and 2 h ago: only 1 h ago and now count.
    assert window_start_s(DAY, NOW_S) == NOW_S - 2 * HOUR_S
    assert weights([30, 2, 1, 0], DAY) == [0, 0, 1, 1]
    before = NOW_S - 2 * HOUR_S - 1
    assert window_start_s(DAY, before) == NOW_S - 26 * HOUR_S
    assert window_start_s(DAY, NOW_S - 2 * HOUR_S) == NOW_S - 2 * HOUR_S


def test_a_tumbling_window_may_be_said_to_begin_later() -> None:
    params = UsageParams(window="tumbling", size_s=10 * HOUR_S, start_s=NOW_S + 4 * HOUR_S)
    assert window_start_s(params, NOW_S) == NOW_S - 6 * HOUR_S


def test_capacity_is_that_of_the_same_moments() -> None:
    history = gpu_history({2: {"a": 4}, 1: {"a": 4}, 0: {"a": 4}})
    history.capacity[:, 2] = [4000, 8000, 12000]
    assert gpu_usage(history) == {"a": 12 / 24}


def test_without_capacity_usage_is_divided_by_one() -> None:
    history = gpu_history({1: {"a": 0.002}, 0: {"a": 0.001}}, capacity=0)
    assert gpu_usage(history) == {"a": 3}
    [text] = usage_warnings(history, HOURLY, NOW_S)
    assert text.startswith("no capacity of gpu is given")


def test_a_parent_without_a_series_has_the_sum_of_its_children() -> None:
    history = gpu_history({0: {"a": 2, "b": 1, "c": 1}})
    usage = gpu_usage(history, a="team", b="team", team="org", c="org", org="")
    assert usage == {"a": 2 / 8, "b": 1 / 8, "c": 1 / 8, "team": 3 / 8, "org": 4 / 8}


def test_a_parent_with_a_series_speaks_for_itself_and_upward() -> None:
    history = gpu_history({0: {"a": 2, "b": 1, "team": 6}})
    usage = gpu_usage(history, a="team", b="team", team="org", org="")
    assert (usage["team"], usage["org"]) == (6 / 8, 6 / 8)


def test_parents_in_a_circle_end() -> None:
    assert gpu_usage(gpu_history({0: {"a": 4}}), a="x", x="y", y="x") == {"a": 0.5, "x": 0.5, "y": 0.5}


def test_resources_are_independent() -> None:
    allocated = np.array([[[1000.0, 2e9, 3000.0]]])
    history = UsageHistory(np.array([NOW_S]), ("a",), allocated, np.array([[4000.0, 8e9, 4000.0]]))
    assert past_usage(history, HOURLY, {"a": ""}, NOW_S) == {"a": (0.25, 0.25, 0.75)}


def test_nothing_sampled_is_no_usage() -> None:
    empty = gpu_history({}, named=("a",))
    assert gpu_usage(empty) == {"a": 0}
    assert usage_warnings(empty, HOURLY, NOW_S) == ("no sample falls into the window: past usage counts as none",)


def test_an_old_newest_sample_is_told_and_used() -> None:
    history = gpu_history({2: {"a": 8}, 1: {"a": 8}})
    assert usage_warnings(history, HOURLY, NOW_S) == (
        "its newest sample is 3600 s old, more than 300 s: used all the same",
    )
    assert gpu_usage(history) == {"a": 1}
    assert usage_warnings(history, UsageParams(staleness_s=HOUR_S), NOW_S) == ()


def test_samples_of_the_future_are_told_and_not_used() -> None:
    history = gpu_history({0: {"a": 8}, -1: {"a": 0}})
    assert gpu_usage(history) == {"a": 1}
    assert usage_warnings(history, HOURLY, NOW_S) == ("1 of its samples are later than now: not used",)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(
    ages=st.lists(st.integers(-20, 400), min_size=1, max_size=8, unique=True),
    size=st.integers(1, 300),
    resolution=st.integers(1, 40),
    lookback=st.none() | st.integers(1, 100),
    half_life=st.none() | st.integers(1, 500),
    now=st.integers(1000, 1100),
)
def test_weights_are_those_of_reading_moment_by_moment(
    ages: list[int], size: int, resolution: int, lookback: int | None, half_life: int | None, now: int
) -> None:
    times = sorted(now - age for age in ages)
    expected = dict.fromkeys(times, 0.0)
    for moment in range(now - size + 1, now + 1):
        seen = [t for t in times if t <= moment and (lookback is None or t > moment - lookback)]
        if moment % resolution == 0 and seen:
            expected[seen[-1]] += 1 if half_life is None else 0.5 ** ((now - moment) / half_life)
    params = UsageParams(
        size_s=size, resolution_s=resolution, lookback_s=lookback or inf, half_life_s=half_life, window="sliding"
    )
    found = sample_weights(np.array(times, dtype=np.float64), params, now)
    assert found == pytest.approx(list(expected.values()), rel=1e-9, abs=1e-300)
