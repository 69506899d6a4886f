"""Cycles are due when time alone changes something, and not only when the slow look comes."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import POD_GROUPS, PODS, PRIORITY_CLASSES
from kai_solver.controller.turns import NEVER_S, next_turn_s
from tests.controller.replicas import bound, cluster, running, until
from tests.support.builders import NOW_S, a_cluster, a_gang, a_node, a_queue


def turn_of(*gangs: Any, **queue: Any) -> float:
    return next_turn_s(a_cluster([a_node("n0", 4)], list(gangs), [a_queue("q", **queue)])) - NOW_S


def test_without_anything_that_ends_there_is_no_turn() -> None:
    assert turn_of(a_gang("runs", on="n0"), a_gang("waits")) == NEVER_S


@pytest.mark.parametrize(("evicted_s", "turn_s"), [(None, 7.0), (-1.0, 9.0)])
def test_a_preemption_delay_ends(evicted_s: float | None, turn_s: float) -> None:
    since = None if evicted_s is None else NOW_S + evicted_s
    gang = a_gang("waits", preemption_delay_s=10.0, created_s=NOW_S - 3, last_eviction_s=since)
    assert turn_of(gang) == pytest.approx(turn_s)
    assert turn_of(replace(gang, created_s=NOW_S - 30, last_eviction_s=None)) == NEVER_S, "it is over"


def test_a_minimum_run_time_ends_while_something_waits() -> None:
    runs = a_gang("runs", on="n0", last_start_s=NOW_S - 20)
    assert turn_of(runs, a_gang("waits"), reclaim_min_runtime_s=60.0) == pytest.approx(40.0)
    assert turn_of(runs, reclaim_min_runtime_s=60.0) == NEVER_S
    assert turn_of(replace(runs, preemptible=False), a_gang("waits"), reclaim_min_runtime_s=60.0) == NEVER_S


@pytest.mark.parametrize(
    ("since_s", "grace_s", "turn_s"), [(None, None, 60.0), (-50.0, None, 10.0), (-5.0, -1.0, NEVER_S)]
)
def test_the_grace_of_a_stale_gang_ends(since_s: float | None, grace_s: float | None, turn_s: float) -> None:
    stale = a_gang("half", pods=2, need=2, on=["n0", ""])
    since = None if since_s is None else NOW_S + since_s
    found = turn_of(replace(stale, stale_since_s=since, staleness_grace_s=grace_s))
    assert found == pytest.approx(turn_s)


def test_a_delayed_preemptor_has_its_turn_when_its_delay_is_over() -> None:
    api: MemoryApi = cluster()
    for name, value in (("low", 10), ("high", 20)):
        api.create(PRIORITY_CLASSES, "", {"metadata": {"name": name}, "value": value})
    for name, priority, delay in (("old", "low", {}), ("new", "high", {"preemptionDelay": "2s"})):
        fields = {"queue": "q", "minMember": 1, "priorityClassName": priority, **delay}
        api.create(POD_GROUPS, "n", {"metadata": {"name": name}, "spec": fields})
    with running(api, idle=3600.0):
        for name in ("old", "new"):
            container = {"name": "c", "resources": {"limits": {"nvidia.com/gpu": "8"}}}
            metadata = {"name": name, "annotations": {"pod-group-name": name}}
            spec = {"schedulerName": "kai-scheduler", "containers": [container], "terminationGracePeriodSeconds": 0}
            api.create(PODS, "n", {"metadata": metadata, "spec": spec})
            if name == "old":
                until(lambda: bound(api) == {"old"})

        def leaves() -> bool:
            found = {one["metadata"]["name"]: one for one in api.page(PODS).items}
            return "old" not in found or bool(found["old"]["metadata"].get("deletionTimestamp"))

        until(leaves)
