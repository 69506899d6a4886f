"""When nodes are drained, and how long pods run: annotations of ours, and the deadline of a pod."""

from typing import Any

import pytest

from kai_solver.kubeobjects import names
from kai_solver.links import ROW_ANNOTATION

NOON_S = 1_769_860_800.0  # 2026-01-31T12:00:00Z


def a_node(build: Any, text: str) -> Any:
    return build.node("n", {"metadata": {"annotations": {names.OWN_DRAIN_AT: text}}})


def a_pod(build: Any, text: str = "", deadline: object = None) -> Any:
    more = {} if deadline is None else {"spec": {"activeDeadlineSeconds": deadline}}
    return build.pod("p", more, annotations={names.OWN_RUN_TIME: text} if text else {})


@pytest.mark.parametrize("text", ["2026-01-31T12:00:00Z", "2026-01-31T13:00:00+01:00"])
def test_a_node_says_when_it_is_drained(build: Any, text: str) -> None:
    found = build.read(build.queue("q"), a_node(build, text))
    assert [node.drain_at_s for node in found.nodes] == [NOON_S]
    assert not build.texts(found)


@pytest.mark.parametrize("text", ["", "noon", "2h", "2026-13-31T12:00:00Z", "2026-01-31"])
def test_a_time_that_is_none_is_told_and_not_used(build: Any, text: str) -> None:
    found = build.read(build.queue("q"), a_node(build, text))
    assert [node.drain_at_s for node in found.nodes] == [None]
    assert [said for said in build.texts(found) if "drain-at" in said and "is not honoured. Write a time" in said]


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000Z", "0001-01-01T01:00:00+01:00"])
def test_the_time_of_programs_that_set_none_drains_no_node(build: Any, text: str) -> None:
    found = build.read(build.queue("q"), a_node(build, text))
    assert [node.drain_at_s for node in found.nodes] == [None]
    (said,) = [said for said in build.texts(found) if "drain-at" in said]
    assert f"'{text}' is not honoured: programs write it where no time is set. Write a time such as" in said


@pytest.mark.parametrize(
    ("text", "deadline", "run_time_s"),
    [("", None, None), ("2h", None, 7200.0), ("", 600, 600.0), ("2h", 600, 600.0), ("90s", 600, 90.0)],
)
def test_a_pod_says_how_long_it_runs(build: Any, text: str, deadline: int | None, run_time_s: float | None) -> None:
    found = build.read(build.queue("q"), a_pod(build, text, deadline))
    assert [pod.run_time_s for gang in found.gangs for pod in gang.pods] == [run_time_s]
    assert not [said for said in build.texts(found) if "run-time" in said]


def test_long_values_are_told_in_short(build: Any) -> None:
    """An annotation may have 256 KiB, and whoever makes a pod may write one: not into the log, nor into an event."""
    long = "x" * 200_000
    stated = dict.fromkeys((names.OWN_RUN_TIME, ROW_ANNOTATION, names.OWN_NODES), long)
    pod = build.pod("p", {"metadata": {"labels": {}}}, annotations=stated)
    texts = build.texts(build.read(build.queue("q"), a_node(build, long), pod))
    assert all(any(key in text for text in texts) for key in (names.OWN_DRAIN_AT, *stated))
    assert max(map(len, texts)) < 300


@pytest.mark.parametrize("text", ["0s", "-1h", "soon", "7200"])
def test_a_run_time_that_is_none_is_told_and_not_used(build: Any, text: str) -> None:
    found = build.read(build.queue("q"), a_pod(build, text, 600))
    assert [pod.run_time_s for gang in found.gangs for pod in gang.pods] == [600.0]
    assert [said for said in build.texts(found) if "run-time" in said and "is not honoured" in said]


def test_where_the_annotations_say_nothing_this_is_told(build: Any) -> None:
    stray = {"metadata": {"annotations": {names.OWN_DRAIN_AT: "2026-01-31T12:00:00Z", names.OWN_RUN_TIME: "2h"}}}
    texts = build.texts(build.read(build.queue("q", more=stray)))
    assert any("drain-at says nothing on a Queue. Write it on a Node" in text for text in texts)
    assert any("run-time says nothing on a Queue. Write it on a Pod" in text for text in texts)
