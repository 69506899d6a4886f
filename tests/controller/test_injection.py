"""Errors thrown from every public function that a controller calls: it goes on, and the other gangs are bound.

The functions are found at run time, as in ``tests/engine/test_injection.py``; a sample of them is tried here,
and all of them with ``KAI_SOLVER_INJECTIONS=all``.
"""

import os
import random
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import pytest

from kai_solver.cluster import binding, evicting, reflector, resting
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import EVENTS, JOBS, POD_GROUPS, PODS
from kai_solver.controller import keeper, loop, quarantine
from kai_solver.controller.reporting import noticed
from kai_solver.errors.barrier import listening
from kai_solver.kubeobjects import isolating
from kai_solver.metrics import Metrics
from tests.conftest import Caught
from tests.controller.replicas import bound, cluster, pod, running
from tests.support.injection import Counted, Point, Thrower, hooked, points, rooms

SAMPLE = 14
LIMIT_S = 120.0
SHORT_S = float(os.environ.get("KAI_SOLVER_INJECTION_S", LIMIT_S))
"""Bounds on what hangs; most take a fraction of a second."""

CHANCE = int(os.environ.get("KAI_SOLVER_INJECTION_SEED", 1))
"""Which call of a function throws, where one does."""

NO_PART = ("bench", "cli", "conformance", "errors", "experiments", "instances_io", "metrics", "simulate")
"""Rooms that a controller has no use for, and those that barriers themselves are made of."""

GOOD = frozenset({"good-0", "good-1", "owned"})
BAD = frozenset({"bad-0", "bad-1"})
KEYS = frozenset({"n/bad", "n/bad-0", "n/bad-1"})


def populated() -> MemoryApi:
    """Two gangs of two pods by PodGroups, and one pod of a Job."""
    api = cluster()
    for name in ("bad", "good"):
        api.create(POD_GROUPS, "n", {"metadata": {"name": name}, "spec": {"queue": "q", "minMember": 2}})
        for index in range(2):
            pod(api, f"{name}-{index}")
            api.patch(PODS, "n", f"{name}-{index}", {"metadata": {"annotations": {"pod-group-name": name}}})
    job = api.create(JOBS, "n", {"metadata": {"name": "job"}, "spec": {"template": {}}})
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": job["metadata"]["uid"], "controller": True}
    pod(api, "owned")
    api.patch(PODS, "n", "owned", {"metadata": {"ownerReferences": [owner]}})
    return api


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is tried again after a pause is tried again soon."""
    for module in (keeper, loop, quarantine, isolating, resting, binding, evicting, reflector, noticed):
        for name, value in vars(module).items():
            is_pause = any(word in name for word in ("PAUSE", "FIRST", "LONGEST", "BACKOFF", "STANDS"))
            if is_pause and isinstance(value, float) and value > 0.1:
                monkeypatch.setattr(module, name, 0.05)


@contextmanager
def controlled(api: MemoryApi) -> Iterator[Any]:
    with running(api, idle=0.1, status_rate=1000.0, leadership={"enabled": False}) as replica:
        yield replica


def is_bound(api: MemoryApi, names: frozenset[str], limit_s: float = LIMIT_S) -> bool:
    end_s = time.monotonic() + limit_s
    while time.monotonic() < end_s:
        if bound(api) >= names:
            return True
        time.sleep(0.005)
    return False


@cache
def every_point() -> tuple[Point, ...]:
    return tuple(points(name for name in rooms() if name not in NO_PART))


@cache
def called() -> Counted:
    found = Counted(KEYS, is_apart=True)
    api = populated()
    with listening(lambda *_: None), hooked(every_point(), found), controlled(api):
        assert is_bound(api, GOOD | BAD)
        end_s = time.monotonic() + LIMIT_S
        while not api.page(EVENTS).items and time.monotonic() < end_s:
            time.sleep(0.01)
    return found


def in_turn(found: list[Point], size: int = SAMPLE) -> list[Point]:
    found = sorted(found, key=str)
    if os.environ.get("KAI_SOLVER_INJECTIONS") == "all" or len(found) <= size:
        return found
    return sorted(random.Random(0).sample(found, size), key=str)


def test_most_public_functions_that_a_controller_calls_are_known() -> None:
    assert len(called().calls) > 500
    assert len(called().about) > 30
    assert {point.room for point in called().calls} >= {"cluster", "controller", "kubeobjects", "engine", "actions"}
    assert len(in_turn(list(called().calls), 10_000)) > 350


def test_an_error_thrown_once_delays_no_gang_for_long(faults: list[Caught]) -> None:
    calls, chance, wrong = called().calls, random.Random(CHANCE), list[str]()
    for point in in_turn(list(calls)):
        thrower, api = Thrower(point, at=chance.randint(1, min(calls[point], 20)), is_apart=True), populated()
        faults.clear()
        with hooked([point], thrower), controlled(api) as replica:
            if not is_bound(api, GOOD | BAD, limit_s=SHORT_S):
                wrong.append(f"{point}: only {bound(api)}; {faults[:2]}")
            assert not replica.lost
        if thrower.thrown and not counted(replica.metrics):
            wrong.append(f"{point}: nobody heard of it")
    assert wrong == []


def counted(metrics: Metrics) -> float:
    samples = (sample for metric in metrics.registry.collect() for sample in metric.samples)
    return sum(sample.value for sample in samples if sample.name == "kai_solver_faults_total")


def test_errors_about_one_gang_delay_no_other(faults: list[Caught]) -> None:
    wrong: list[str] = []
    for point in in_turn(list(called().about)):
        thrower, api = Thrower(point, KEYS, is_apart=True), populated()
        faults.clear()
        with hooked([point], thrower), controlled(api) as replica:
            if not is_bound(api, GOOD, limit_s=SHORT_S):
                wrong.append(f"{point}: only {bound(api)}; {faults[:2]}")
            assert not replica.lost
        if thrower.thrown and not faults:
            wrong.append(f"{point}: nobody heard of it")
    assert wrong == []


def test_a_function_that_always_fails_ends_nothing_and_is_tried_again(faults: list[Caught]) -> None:
    wrong: list[str] = []
    for point in in_turn(list(called().calls), SAMPLE // 2):
        thrower, api = Thrower(point, is_apart=True), populated()
        faults.clear()
        with controlled(api) as replica:
            with hooked([point], thrower):
                is_bound(api, GOOD | BAD, limit_s=0.3)
                assert not replica.lost
                assert replica.not_healthy() == "" or point.name.endswith("not_healthy")
            if not is_bound(api, GOOD | BAD, limit_s=SHORT_S):
                wrong.append(f"{point}: only {bound(api)} once it is cured; {faults[:2]}")
        if thrower.thrown and not faults:
            wrong.append(f"{point}: nobody heard of it")
    assert wrong == []
