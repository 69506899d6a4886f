"""A history as past usage, by hand-made sums, and as a workload."""

from pathlib import Path
from typing import Any

import pytest

import kai_solver
from kai_solver.instances_io import snapshot_from_native
from kai_solver.lab.history import PastJob, read_history, read_mapping, with_past_usage
from kai_solver.lab.history.read import History
from kai_solver.lab.simulate import scenario_of

ROOT = Path(__file__).parents[3]
HOUR = 3600.0
NOW = 1000 * HOUR
CLUSTER: dict[str, Any] = {
    "format": "kai-solver/v1",
    "now": NOW,
    "nodes": [{"name": "n-{i}", "count": 2, "gpus": 4, "cpu": 8, "memory": "64Gi"}],
    "queues": [
        {"name": "dept", "quota": 8},
        {"name": "a", "parent": "dept", "quota": 4},
        {"name": "b", "parent": "dept", "quota": 4},
    ],
}


def a_job(queue: str, from_h: float, to_h: float | None, pods: int = 1, gpus: int = 4) -> PastJob:
    """Times in hours before now."""
    end_s = None if to_h is None else NOW - to_h * HOUR
    start_s = NOW - from_h * HOUR
    return PastJob("line 1", "", start_s, start_s, end_s, pods, gpus * 1000, 1000, 2**30, queue)


def usage(*jobs: PastJob, **mapping: Any) -> tuple[dict[str, float], list[str]]:
    doc = read_mapping({"usage": {"windowSize": "10h"}} | mapping)
    found = with_past_usage(snapshot_from_native(CLUSTER), History(jobs, ()), doc)
    return {queue.name: queue.usage[2] for queue in found.queues}, [notice.text for notice in found.notices]


def test_gpu_hours_over_those_of_the_window() -> None:
    shares, notices = usage(a_job("a", 5, 0), a_job("b", 8, 6, pods=2), a_job("a", 30, 20))
    assert shares["a"] == pytest.approx(4 * 5 / 80, abs=0.002)
    assert shares["b"] == pytest.approx(8 * 2 / 80, abs=0.002)
    assert shares["dept"] == pytest.approx(shares["a"] + shares["b"])
    assert notices == []


def test_a_job_that_runs_counts_until_now_and_one_across_the_border_from_there() -> None:
    shares, _ = usage(a_job("a", 2, None), a_job("b", 12, 8))
    assert shares["a"] == pytest.approx(4 * 2 / 80, abs=0.002)
    assert shares["b"] == pytest.approx(4 * 2 / 80, abs=0.002)


def test_by_half_life_the_newest_hour_counts_more() -> None:
    shares, _ = usage(a_job("a", 1, 0), a_job("b", 10, 9), usage={"windowSize": "10h", "halfLifePeriod": "1h"})
    assert shares["a"] / shares["b"] == pytest.approx(2**9, rel=0.02)


def test_queues_are_mapped_and_those_that_are_not_known_are_told() -> None:
    shares, notices = usage(a_job("old-a", 5, 0), a_job("gone", 5, 0), queues={"old-a": "a"})
    assert shares["a"] > 0
    assert any("1 jobs of queue 'gone' are not counted" in text for text in notices)


def test_a_history_of_another_time_is_told() -> None:
    shares, notices = usage(a_job("a", 900, 800))
    assert shares["a"] == 0
    assert any("no job ran in the window" in text for text in notices)


def test_the_shipped_week_changes_the_fair_share() -> None:
    folder = ROOT / "instances" / "history"
    before = kai_solver.load(folder / "cluster.yaml").frame("queues")
    after = kai_solver.load(folder / "cluster.yaml", history=folder / "week.csv", mapping=folder / "columns.yaml")
    assert after.notices == ()
    gained = dict(zip(before["queue"], after.frame("queues")["fair_share"] - before["fair_share"], strict=True))
    assert gained["language"] < 0 < gained["teaching"]  # who used most gets less of the surplus


SCENARIO: dict[str, Any] = {
    "format": "kai-scenario/v1",
    "cluster": {"nodes": [{"name": "n", "gpus": 8}], "queues": [{"name": "a", "quota": 4}, {"name": "b", "quota": 4}]},
}


def workload(tmp_path: Path, rows: str, **more: Any) -> dict[str, Any]:
    path = tmp_path / "jobs.csv"
    path.write_text("start,end,gpus,queue,user\n" + rows)
    said = {
        "kind": "history",
        "name": "mine",
        "file": str(path),
        "queue": "b",
        "columns": {"queue": "queue", "user": "user"},
    }
    return SCENARIO | {"workloads": [said | more]}


def test_jobs_of_a_history_arrive_as_they_did(tmp_path: Path) -> None:
    scenario = scenario_of(workload(tmp_path, "1000,1060,4,a,ana\n1010,1030,0.5,x,\n", stretch=2, timeScale=3))
    first, second = scenario.jobs
    assert [(job.arrival_s, job.runtime_s, job.gang.queue) for job in scenario.jobs] == [(0, 120, "a"), (30, 40, "b")]
    assert first.gang.pods[0].labels == {"user": "ana"}
    assert (second.gpu_milli, second.gang.pods[0].labels) == (500, {})
    assert any("1 jobs of queue 'x' go to queue" in notice.text for notice in scenario.notices)


def test_jobs_that_have_not_ended_are_left_out_with_a_notice(tmp_path: Path) -> None:
    scenario = scenario_of(workload(tmp_path, "1,,1,a,u\n2,3,1,a,u\n"))
    assert len(scenario.jobs) == 1
    assert any("1 jobs have not ended" in notice.text for notice in scenario.notices)
    with pytest.raises(kai_solver.InputError, match="no job has ended"):
        scenario_of(workload(tmp_path, "1,,1,a,u\n"))


def test_a_history_is_replayed(tmp_path: Path) -> None:
    found = kai_solver.simulate(workload(tmp_path, "0,60,8,a,u\n0,60,8,b,u\n10,40,1,a,u\n"), ["greedy-only"])
    assert found.frame()["done"].to_list() == [3]
    assert found.frame()["end_s"][0] == pytest.approx(150, abs=5)


@pytest.mark.slow
def test_a_hundred_thousand_jobs_as_past_usage() -> None:
    jobs = tuple(a_job("ab"[i % 2], 9 - i / 20_000, 8.5 - i / 20_000, gpus=1) for i in range(100_000))
    shares, _ = usage(*jobs)
    assert shares["a"] == pytest.approx(50_000 * 0.5 / 80, rel=0.01)


def test_a_mapping_file_is_read(tmp_path: Path) -> None:
    folder = ROOT / "instances" / "history"
    doc = read_mapping(folder / "columns.yaml")
    assert len(read_history(folder / "week.csv", doc).jobs) == 321
    with pytest.raises(kai_solver.InputError, match="does not say how to read a history"):
        read_mapping(folder / "cluster.yaml")
    with pytest.raises(kai_solver.InputError, match="Give the history too"):
        kai_solver.load(folder / "cluster.yaml", mapping=folder / "columns.yaml")
