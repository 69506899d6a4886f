"""Past usage in native files: shares from samples, what is refused, and what is told."""

from typing import Any

import pytest

from kai_solver.errors import InputError
from kai_solver.instances_io import load_native, native_from_snapshot

NOW_S = 1_700_000_040.0
SAMPLES: list[dict[str, Any]] = [
    {"time": "2m", "capacity": 8, "queues": {"a": 8, "b": 0}},
    {"time": "1m", "capacity": {"gpu": 8, "cpu": 4}, "queues": {"a": 2, "b": {"gpu": "4", "cpu": "500m"}}},
    {"time": NOW_S, "capacity": 8, "queues": {"b": 2.5}},
]


def document(samples: list[dict[str, Any]] = SAMPLES, **params: Any) -> dict[str, Any]:
    return {
        "format": "kai-solver/v1",
        "now": NOW_S,
        "queues": [{"name": "team"}, {"name": "a", "parent": "team"}, {"name": "b", "parent": "team"}],
        "usageHistory": {"params": params, "samples": samples},
    }


def usage(file: dict[str, Any], now_s: float | None = None) -> dict[str, tuple[float, float, float]]:
    return {queue.name: queue.usage for queue in load_native(file, now_s=now_s).snapshot.queues}


def test_usage_is_computed_from_the_samples() -> None:
    # GPUs: a (8 + 2 + 0)/24, b (0 + 4 + 2.5)/24; CPU: b 0.5 of 4 in the one sample that has any.
    assert usage(document()) == {
        "a": (0, 0, 10 / 24),
        "b": (0.125, 0, 6.5 / 24),
        "team": pytest.approx((0.125, 0, 16.5 / 24)),
    }


def test_the_order_of_samples_does_not_matter() -> None:
    assert usage(document(SAMPLES[::-1])) == usage(document())


def test_parameters_have_the_names_of_kai() -> None:
    found = usage(document(windowSize="2m", windowType="sliding", halfLifePeriod="1m", queryResolution="1m"))
    # A minute ago counts 1/2, now 1: of 4 + 8.
    assert found["a"][2] == pytest.approx(1 / 12)
    assert usage(document(windowSize="2m"))["a"][2] == 2 / 16
    assert usage(document(windowType="tumbling", tumblingWindowStartTime="30s"))["a"] == (0, 0, 0)


def test_a_written_instance_has_the_computed_shares() -> None:
    snapshot = load_native(document()).snapshot
    written = native_from_snapshot(snapshot)
    assert "usageHistory" not in written
    assert load_native(written).snapshot.queues == snapshot.queues


def test_another_now_has_another_past() -> None:
    found = usage(document([{"time": NOW_S, "capacity": 8, "queues": {"a": 8}}]), now_s=NOW_S - 60)
    assert found["a"] == (0, 0, 0)


@pytest.mark.parametrize(
    ("samples", "words"),
    [
        ([], "no sample falls into the window"),
        ([{"time": "10m", "capacity": 8, "queues": {"a": 1}}], "is 600 s old, more than 300 s: used all the same"),
        ([{"time": 0, "capacity": 8}, {"time": "0s", "capacity": 8, "queues": {"gone": 1}}], "'gone' is not in this"),
        ([{"time": "0s", "queues": {"a": 1}}], "no capacity of gpu is given"),
        ([{"time": "0s", "capacity": 8}, {"time": "-5m"}], "1 of its samples are later than now"),
    ],
)
def test_what_users_should_know_is_a_notice(samples: list[dict[str, Any]], words: str) -> None:
    [notice] = load_native(document(samples)).snapshot.notices
    assert (notice.kind, notice.object) == ("warning", "usageHistory")
    assert words in notice.text


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"params": {"windowType": "tumbling"}}, "usageHistory.params.tumblingWindowStartTime"),
        ({"params": {"windowType": "cron"}}, "usageHistory.params.windowType"),
        ({"params": {"windowSize": "0s"}}, "usageHistory.params.windowSize"),
        ({"params": {"halfLifePeriod": -1}}, "usageHistory.params.halfLifePeriod"),
        ({"params": {"halfLive": 1}}, "usageHistory.params.halfLive"),
        ({"samples": [{"queues": {"a": 1}}]}, "usageHistory.samples[0].time"),
        ({"samples": [{"time": "yesterday"}]}, "usageHistory.samples[0].time"),
        ({"samples": [{"time": "1m", "queues": {"a": -1}}]}, "usageHistory.samples[0].queues.a.gpu"),
        ({"samples": [{"time": "1m"}, {"time": NOW_S - 60}]}, "usageHistory.samples[1].time"),
    ],
)
def test_what_cannot_be_meant_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(InputError) as refused:
        load_native(document() | {"usageHistory": changes})
    assert refused.value.field == field


def test_a_queue_has_its_usage_from_one_place() -> None:
    file = document()
    file["queues"][1]["usage"] = 0.5
    with pytest.raises(InputError, match="gives the usage of this queue too") as refused:
        load_native(file)
    assert refused.value.field == "queues[1].usage"


def test_a_queue_that_no_sample_names_may_state_its_own() -> None:
    file = document()
    file["queues"].append({"name": "other", "usage": 0.25})
    assert usage(file)["other"] == (0, 0, 0.25)
