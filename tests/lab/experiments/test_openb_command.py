"""``kai-solver experiment openb``: tables on disk, errors in one line, interruption."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.lab.experiments import Run, baselines, suite
from kai_solver.lab.experiments.suite import plan_runs, run_suite
from kai_solver.lab.experiments.tables import SUMMARY_COLUMNS
from kai_solver.lab.runs import read_runs


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["experiment", "openb", *words])


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def run_small(small: Path, *words: str) -> Any:
    base = ["--data", str(small), "--traces", "small", "--seeds", "1", "--output", str(small / "out")]
    return call(*base, *words)


@pytest.mark.slow
def test_the_summary_has_the_columns_that_were_promised(small: Path) -> None:
    done = run_small(small, "--policies", "fgd,bestfit,random", "--seeds", "1..2")
    assert done.exit_code == 0, done.output
    records = list(read_runs(small / "out", "").records.values())
    policies = ("bestfit", "fgd", "random")
    assert [(one.seed, one.model) for one in records] == [(seed, policy) for seed in (1, 2) for policy in policies]
    assert {(one.command, one.instance, one.family, one.status) for one in records} == {
        ("experiment", "small", "openb", "ok")
    }
    assert all(50 < one.measures["allocated_percent/100"] <= 100 for one in records)
    assert all(one.cpu_s and one.peak_mib and one.peak_mib > 20 for one in records)
    assert all(one.wall_s >= one.solve_s > 0 for one in records)
    assert all(one.wall_s > one.read_s > 0 for one in records)
    assert len(read(small / "out" / "runs.csv")) == 6
    assert {row["name"] for row in read(small / "out" / "measures.csv")} >= {"window", "failed_pods/share"}


@pytest.mark.slow
def test_tables_agree_with_each_other(small: Path) -> None:
    assert run_small(small, "--policies", "fgd").exit_code == 0
    [record] = read_runs(small / "out", "").records.values()
    curves, failed = read(small / "out" / "curves.csv"), read(small / "out" / "failed.csv")
    at_100 = [row for row in curves if int(row["arrived"]) <= 100][-1]
    assert at_100["allocation"] == at_100["allocation_decided"]
    assert float(at_100["allocation"]) == pytest.approx(record.measures["allocated_percent/100"], abs=1e-4)
    last = {row["size"]: int(row["failed"]) for row in failed[-6:]}
    assert last == {size: record.measures[f"failed_pods/{size}"] for size in last}
    assert sum(int(row["pods"]) for row in failed[-6:]) == 160


@pytest.mark.slow
def test_figures_are_drawn_of_the_tables(small: Path) -> None:
    assert run_small(small, "--policies", "bestfit").exit_code == 0
    for name in ("allocation", "failed"):
        assert "<svg" in (small / "out" / "figures" / f"{name}.svg").read_text()
    curves = {int(row["arrived"]): float(row["allocation"]) for row in read(small / "out" / "curves.csv")}
    drawn = [row for row in read(small / "out" / "figures" / "allocation.csv") if row["series"] == "bestfit"]
    drawn = [row for row in drawn if row["panel"] == "Trace small: GPUs allocated, %"]
    allocation = {int(float(row["x"])): float(row["y"]) for row in drawn}
    assert allocation == {arrived: value for arrived, value in curves.items() if arrived >= 80}
    failed = {row["size"]: row for row in read(small / "out" / "failed.csv")[-6:]}
    shares = {row["x"]: row for row in read(small / "out" / "figures" / "failed.csv")}
    one = failed["1"]
    assert float(shares["1 GPU"]["y"]) == int(one["failed"]) / int(one["pods"])


def test_figures_can_be_left_out(small: Path) -> None:
    assert run_small(small, "--policies", "bestfit", "--no-plots", "--quiet").exit_code == 0
    assert not (small / "out" / "figures").exists()


@pytest.mark.slow
def test_json_has_the_summary(small: Path) -> None:
    done = run_small(small, "--policies", "bestfit", "--json", "--quiet")
    [run] = json.loads(done.stdout)["runs"]
    assert tuple(run) == SUMMARY_COLUMNS


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--policies", "greedy"], "--policies: 'greedy' is not a policy"),
        (["--seeds", "two"], "--seeds: 'two' cannot be used"),
        (["--seeds", "99"], "arrivals_small_seed99.txt.gz: does not exist"),
        (["--traces", "none"], "openb_pod_list_none.csv: does not exist"),
        (["--traces", "../small"], "--traces: '../small' is not a name"),
        (["--window", "0"], "--window: '0' cannot be used"),
        (["--moves", "1.5"], "--moves: '1.5' cannot be used"),
        (["--data", "nowhere"], "nowhere: is not a folder"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(small: Path, words: list[str], problem: str) -> None:
    done = run_small(small, *words)
    assert done.exit_code == 2
    assert problem in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_a_broken_line_is_named(small: Path) -> None:
    path = small / "openb_pod_list_small.csv"
    path.write_text(path.read_text().replace("pod-3,", "pod-3,x", 1))
    done = run_small(small)
    assert done.exit_code == 2
    assert "line 5, cpu_milli" in done.stderr


def test_a_stop_keeps_what_ended(small: Path) -> None:
    specs = plan_runs(["small"], [1, 2], ["fgd", "bestfit"], [1], [0.0])
    looks = iter([False] * 5 + [True] * 100)
    ended = [run.spec for run in run_suite(small, specs, should_stop=lambda: next(looks))]
    assert 0 < len(ended) < len(specs)
    assert ended == specs[: len(ended)]


@pytest.mark.slow
def test_processes_side_by_side_give_the_same_figures(small: Path) -> None:
    specs = plan_runs(["small"], [1, 2], ["fgd", "random"], [1], [0.0])
    alone = {run.spec: (run.bins, run.failures) for run in run_suite(small, specs) if isinstance(run, Run)}
    together = {run.spec: (run.bins, run.failures) for run in run_suite(small, specs, jobs=2) if isinstance(run, Run)}
    assert together == alone
    assert len(alone) == len(specs)


def test_a_run_that_fails_keeps_its_error_and_the_command_and_the_others_go_on(
    small: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = baselines.run_baseline

    def faulty(trace: Any, name: str, tell: Any) -> Any:
        if name == "fgd":
            raise ValueError("it fell over")
        return real(trace, name, tell)

    monkeypatch.setattr(suite, "run_baseline", faulty)
    done = run_small(small, "--policies", "bestfit,fgd", "--quiet", "--no-plots")
    assert done.exit_code == 1
    records = read_runs(small / "out", "").records.values()
    assert {one.model: one.status for one in records} == {"bestfit": "ok", "fgd": "failed"}
    assert {one.model: (one.cpu_s is None, one.peak_mib is None) for one in records} == {
        "bestfit": (False, False),
        "fgd": (True, True),
    }
    [replay] = (small / "out" / "failed").glob("*/replay.txt")
    words = ["--data", str(small), "--traces", "small", "--seeds", "1", "--policies", "fgd", "--window", "1"]
    command = " ".join(["kai-solver experiment openb", *words, "--moves 0.0"])
    assert replay.read_text().strip() == command
    assert "ValueError: it fell over" in done.stderr
    assert command in done.stderr
