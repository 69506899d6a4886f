"""What holds of every replay: nothing is held twice, every second counts once, the same seed gives the same tables."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kai_solver.domain import Plan, Snapshot
from kai_solver.lab.simulate import (
    KubeDefault,
    ModelPolicy,
    Result,
    Scenario,
    policies,
    replay,
    scenario_of,
    write_tables,
)
from kai_solver.lab.simulate.bundles import bundled
from kai_solver.lab.simulate.jobs import State
from kai_solver.lab.simulate.tables import TABLES, rows
from kai_solver.modelfiles import load_model

KINDS = ("greedy-only", "kube-default")


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Small clusters under random work, with failures, checkpoints, priorities, shared GPUs and elastic gangs."""
    workloads = [
        {
            "kind": "generate",
            "name": f"w{number}",
            "queue": draw(st.sampled_from(["a", "b"])),
            "count": draw(st.integers(0, 6)),
            "arrivals": {"process": draw(st.sampled_from(["poisson", "regular", "batch"])), "perHour": 360},
            "runtime": {"distribution": "lognormal", "typical": draw(st.integers(1, 90)), "sigma": 0.7},
            "pods": draw(st.integers(1, 4)),
            "gpus": draw(st.sampled_from([0, 0.5, 1, 2, 4])),
            "gang": draw(st.booleans()),
            "priority": draw(st.sampled_from([40, 50, 75, 100])),
            "restart": draw(st.sampled_from([0, 3])),
        }
        | draw(st.sampled_from([{}, {"checkpoint": 10}]))
        for number in range(draw(st.integers(1, 3)))
    ]
    failures = draw(st.sampled_from([{}, {"random": {"meanBetween": 150, "meanRepair": 20}}]))
    nodes = [{"name": "n-{i}", "count": draw(st.integers(1, 3)), "gpus": 4, "cpu": 64}]
    queues = [{"name": "a", "quota": 4, "weight": 1}, {"name": "b", "quota": 2, "weight": 1}]
    return {
        "format": "kai-scenario/v1",
        "seed": draw(st.integers(0, 99)),
        "duration": draw(st.integers(30, 240)),
        "releasing": draw(st.sampled_from([0, 4])),
        "cluster": {"nodes": nodes, "queues": queues},
        "workloads": workloads,
        "failures": failures,
    }


class Watched:
    """A policy whose snapshots are looked at on the way."""

    def __init__(self, inner: Any) -> None:
        self.name = inner.name
        self._inner = inner

    def decide(self, snapshot: Snapshot) -> Plan:
        for node in snapshot.nodes:
            there = [p for g in snapshot.gangs for p in g.pods if p.node == node.name and p.status.holds_resources]
            assert sum(p.request[0] for p in there) <= node.allocatable[0]
            assert sum(p.gpu.devices * p.gpu.milli for p in there) <= 1000 * node.gpus
            assert node.schedulable or not there
        plan: Plan = self._inner.decide(snapshot)
        return plan


def run(scenario: Scenario, kind: str, **options: Any) -> Result:
    if kind == KubeDefault.name:
        return replay(scenario, Watched(KubeDefault()))
    with ModelPolicy(load_model(kind), **options) as policy:
        return replay(scenario, Watched(policy))


SETTINGS = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(document=documents())
def test_every_gpu_second_is_counted_once(kind: str, document: dict[str, Any]) -> None:
    result = run(scenario_of(document), kind)
    assert result.held_gpu_s <= result.up_gpu_s + 1e-6
    assert sum(job.held_gpu_s for job in result.jobs) == pytest.approx(result.held_gpu_s, abs=1e-6)
    for job in result.jobs:
        assert min(job.useful_gpu_s, job.ledger.lost, job.ledger.idle, job.ledger.restarting) >= 0
        assert job.progress_s <= job.job.runtime_s
        assert (job.state is State.DONE) == (job.end_s is not None)
        if job.state is State.DONE:
            assert job.progress_s == job.job.runtime_s
            assert job.end_s is not None
            assert job.first_start_s is not None
            assert job.job.arrival_s <= job.first_start_s <= job.end_s - job.job.runtime_s + 1e-6
    counts = [sum(job.state is state for job in result.jobs) for state in State]
    assert sum(counts) == len(result.jobs)
    assert result.end_s == document["duration"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@SETTINGS
@given(document=documents())
def test_waiting_and_holding_fill_the_life_of_a_job(kind: str, document: dict[str, Any]) -> None:
    """Of a gang of one pod: waiting, working, restarting and leaving add up to its life."""
    for workload in document["workloads"]:
        workload |= {"pods": 1, "gpus": 1}
    document["failures"] = {}
    result = run(scenario_of(document), kind)
    for job in result.jobs:
        if job.state is State.DONE and job.starts == 1:
            assert job.first_start_s is not None
            waited = job.first_start_s - job.job.arrival_s
            assert job.end_s == pytest.approx(job.job.arrival_s + waited + job.held_gpu_s)
        if job.state is State.FUTURE:
            assert job.held_gpu_s == 0


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=documents())
def test_the_same_seed_gives_the_same_tables(kind: str, document: dict[str, Any]) -> None:
    first, second = (run(scenario_of(document), kind) for _ in range(2))
    for table in TABLES.keys() - {"solve_times"}:
        assert list(rows(table, [first])) == list(rows(table, [second]))


@pytest.mark.slow
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(document=documents())
def test_bundles_change_nothing_but_the_time(document: dict[str, Any]) -> None:
    scenario = scenario_of(document)
    quick, slow = (run(scenario, "greedy-only", bundles=bundles) for bundles in (True, False))
    for table in TABLES.keys() - {"solve_times"}:
        assert list(rows(table, [quick])) == list(rows(table, [slow]))


def test_bundles_are_not_tried_while_a_gang_waits(
    make: Callable[..., Scenario], job: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []

    def noted(snapshot: Snapshot) -> Snapshot | None:
        asked.append(snapshot.now_s)
        return bundled(snapshot)

    monkeypatch.setattr(policies, "bundled", noted)
    fits, waits, later = job("fits"), job("waits", at=10, pods=2), job("later", at=150)
    done = run(make(fits, waits, later, duration=400), "greedy-only")
    assert [(row.time_s, row.pending) for row in done.records.cycles] == [(0, 1), (10, 1), (100, 1), (150, 1), (200, 1)]
    assert [at - asked[0] for at in asked] == [0, 10, 150]


def test_another_seed_gives_other_tables(make: Callable[..., Scenario], job: Callable[..., Any]) -> None:
    drawn = job(count=20, gpus=1, arrivals={"perHour": 600}, runtime={"typical": 60})
    one, other = (run(make(drawn, seed=seed), "kube-default") for seed in (1, 2))
    assert list(rows("jobs", [one])) != list(rows("jobs", [other]))


def test_a_workload_that_is_added_changes_nothing_about_the_others(
    make: Callable[..., Scenario], job: Callable[..., Any]
) -> None:
    drawn = job("drawn", count=20, gpus={1: 1, 2: 1}, arrivals={"perHour": 600}, runtime={"typical": 60})
    alone, beside = make(drawn), make(job("more", count=5, arrivals={"perHour": 60}), drawn)
    assert list(alone.jobs) == [found for found in beside.jobs if found.workload == "drawn"]


def test_tables_on_disk_are_the_same_too(
    make: Callable[..., Scenario], job: Callable[..., Any], tmp_path: Path
) -> None:
    for name in ("one", "two"):
        write_tables([run(make(job(count=3)), kind) for kind in KINDS], tmp_path / name)
    for table in TABLES.keys() - {"solve_times"}:
        texts = [(tmp_path / name / f"{table}.csv").read_text() for name in ("one", "two")]
        assert texts[0] == texts[1]
        assert texts[0].splitlines()[0].startswith("policy,")
