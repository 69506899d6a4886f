"""``kai-solver simulate``: tables on disk, words on the terminal, errors in one line, interruption."""

import csv
import importlib.util
import json
import resource
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.lab.runs import read_runs
from kai_solver.lab.simulate import ModelPolicy
from kai_solver.lab.simulate.tables import TABLES, columns

SCENARIO: dict[str, Any] = {
    "format": "kai-scenario/v1",
    "name": "small",
    "duration": 300,
    "cluster": {"nodes": [{"name": "n-{i}", "count": 2, "gpus": 8}], "queues": [{"name": "a", "quota": 16}]},
    "workloads": [
        {
            "kind": "generate",
            "name": "w",
            "queue": "a",
            "count": 5,
            "arrivals": {"perHour": 360},
            "runtime": {"distribution": "fixed", "typical": "1m"},
            "pods": 2,
            "gpus": 4,
        }
    ],
}


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["simulate", *words])


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_bytes(orjson.dumps(SCENARIO))
    return path


def test_both_policies_share_the_tables(scenario: Path, tmp_path: Path) -> None:
    done = call(str(scenario), "--output", str(tmp_path / "out"))
    assert done.exit_code == 0, done.output
    assert "greedy-only" in done.stdout
    assert "GPU hours held, gang not complete" in done.stdout
    for table in TABLES:
        with (tmp_path / "out" / f"{table}.csv").open() as stream:
            found = list(csv.DictReader(stream))
        assert list(found[0]) == columns(table)
        assert {row["policy"] for row in found} == {"greedy-only", "kube-default"}
    ours, theirs = read_runs(tmp_path / "out", "").records.values()
    assert (ours.command, ours.model, ours.status, ours.measures["jobs/done"]) == ("simulate", "greedy-only", "ok", 5)
    assert (theirs.model, theirs.measures["jobs/done"]) == ("kube-default", 5)
    assert (tmp_path / "out" / "runs.csv").read_text().count("\n") == 3
    assert "utilisation" in (tmp_path / "out" / "measures.csv").read_text()


@pytest.mark.slow
def test_a_full_disk_is_an_error_with_the_cure_and_the_row_of_the_replay_stays(scenario: Path, tmp_path: Path) -> None:
    """No file can be larger than 6,000 bytes, which the row is not and its Parquet table is."""
    words = [sys.executable, "-m", "kai_solver", "simulate", str(scenario), "--no-plots", "--quiet"]
    words += ["--output", str(tmp_path / "out")]
    done = subprocess.run(words, capture_output=True, text=True, check=False, preexec_fn=_small_files)
    assert done.returncode == 2
    assert "cannot be written: File too large" in done.stderr
    assert "Make room" in done.stderr
    assert "Traceback" not in done.stderr
    [record] = read_runs(tmp_path / "out", "").records.values()
    assert (record.model, record.status) == ("greedy-only", "ok")
    assert list((tmp_path / "out").glob("*.part")) == []


@pytest.mark.slow
def test_a_full_disk_while_figures_are_drawn_leaves_the_tables_and_no_half_figure(
    scenario: Path, tmp_path: Path
) -> None:
    """Tables have less than 18,000 bytes, and figures more."""
    words = [sys.executable, "-m", "kai_solver", "simulate", str(scenario), "--quiet"]
    words += ["--output", str(tmp_path / "out"), "--policies", "kube-default"]
    done = subprocess.run(
        words, capture_output=True, text=True, check=False, preexec_fn=lambda: _small_files(most_bytes=18_000)
    )
    assert done.returncode == 2
    assert "cannot be written: file too large" in done.stderr
    folder = tmp_path / "out"
    assert f"Make room, and draw them: kai-solver report {folder} --figures {folder / 'figures'}" in done.stderr
    assert "Traceback" not in done.stderr
    assert (folder / "stays.csv").exists()
    assert [path for path in (folder / "figures").iterdir() if path.stat().st_size in {0, 18_000}] == []


def _small_files(most_bytes: int = 6000) -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))


def test_json_is_the_summary_alone(scenario: Path, tmp_path: Path) -> None:
    done = call(str(scenario), "--output", str(tmp_path / "out"), "--json", "--quiet", "--policies", "kube-default")
    [policy] = json.loads(done.stdout)["policies"]
    [record] = read_runs(tmp_path / "out", "").records.values()
    assert policy["utilisation"] == record.measures["utilisation"]
    assert done.stderr == ""


def test_the_seed_of_the_command_wins(scenario: Path, tmp_path: Path) -> None:
    call(str(scenario), "-o", str(tmp_path / "out"), "--seed", "5", "--policies", "kube-default")
    assert [record.seed for record in read_runs(tmp_path / "out", "").records.values()] == [5]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["ghost.yaml"], "is not a file"),
        (["{scenario}", "--policies", ","], "names no policy"),
        (["{scenario}", "--policies", "ghost"], "ghost"),
        (["{scenario}", "--budget", "-1s"], "is not a budget"),
    ],
)
def test_bad_usage_is_one_line_and_2(scenario: Path, tmp_path: Path, words: list[str], why: str) -> None:
    done = call(*(word.format(scenario=scenario) for word in words), "-o", str(tmp_path / "out"))
    assert done.exit_code == 2
    assert why in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()


def test_parquet_has_what_csv_has(scenario: Path, tmp_path: Path) -> None:
    import polars as pl

    done = call(str(scenario), "-o", str(tmp_path / "out"), "--parquet")
    assert done.exit_code == 0, done.output
    for table in TABLES:
        read = pl.read_parquet(tmp_path / "out" / f"{table}.parquet")
        written = pl.read_csv(
            tmp_path / "out" / f"{table}.csv", schema_overrides=read.schema, empty_string_is_null=False
        )
        assert read.columns == columns(table)
        assert read.equals(written)


def test_parquet_says_what_it_needs(scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    done = call(str(scenario), "-o", str(tmp_path / "out"), "--parquet")
    assert done.exit_code == 2
    assert "pip install 'kai-solver[experiments]'" in done.stderr
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_said(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = call(str(scenario), "-o", str(tmp_path / "file"), "-q")
    assert done.exit_code == 2
    assert "cannot be written" in done.stderr


def figures_of(folder: Path) -> set[str]:
    return {path.name for path in (folder / "figures").iterdir()}


def points(folder: Path, name: str) -> list[dict[str, str]]:
    with (folder / "figures" / f"{name}.csv").open() as stream:
        return list(csv.DictReader(stream))


def test_figures_are_drawn_of_the_tables(scenario: Path, tmp_path: Path) -> None:
    done = call(str(scenario), "-o", str(tmp_path / "out"), "-q")
    assert done.exit_code == 0, done.output
    assert f"Figures are in {tmp_path / 'out' / 'figures'}" in " ".join(done.stdout.split())
    for name in ("utilisation", "waits", "waits-by-group", "fair-share", "fragmentation", "evictions"):
        assert {f"{name}.svg", f"{name}.png", f"{name}.csv"} <= figures_of(tmp_path / "out")
    with (tmp_path / "out" / "cycles.csv").open() as stream:
        cycles = [row for row in csv.DictReader(stream) if row["policy"] == "kube-default"]
    drawn = [row for row in points(tmp_path / "out", "utilisation") if row["series"] == "kube-default"]
    shares = [float(row["y"]) for row in drawn if row["panel"] == "GPUs held"]
    assert shares[: len(cycles)] == [float(row["gpus_held"]) / float(row["gpus_up"]) for row in cycles]
    assert max(shares) > 0


def test_figures_can_be_left_out(scenario: Path, tmp_path: Path) -> None:
    done = call(str(scenario), "-o", str(tmp_path / "out"), "-q", "--no-plots", "--policies", "kube-default")
    assert done.exit_code == 0, done.output
    assert "Figures" not in done.stdout
    assert not (tmp_path / "out" / "figures").exists()


def test_without_matplotlib_there_are_tables(scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "matplotlib" else find(name))
    done = call(str(scenario), "-o", str(tmp_path / "out"), "-q")
    assert done.exit_code == 0, done.output
    assert done.stderr.count("matplotlib") == 1
    assert "pip install 'kai-solver[experiments]'" in done.stderr
    assert not (tmp_path / "out" / "figures").exists()
    assert (tmp_path / "out" / "jobs.csv").exists()


def test_a_place_where_no_figure_can_be_is_said_before_the_work(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "figures").write_text("")
    done = call(str(scenario), "-o", str(tmp_path / "out"), "-q")
    assert done.exit_code == 2
    assert "figures: cannot be written" in done.stderr
    assert not (tmp_path / "out" / "jobs.csv").exists()


def test_figures_of_a_scenario_in_which_nothing_happens(tmp_path: Path) -> None:
    path = tmp_path / "still.json"
    path.write_bytes(orjson.dumps(SCENARIO | {"workloads": []}))
    done = call(str(path), "-o", str(tmp_path / "out"), "-q", "--policies", "kube-default")
    assert done.exit_code == 0, done.output
    assert "waits.svg" not in figures_of(tmp_path / "out")


def test_an_interrupted_run_writes_what_it_has(scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import signal

    from kai_solver.lab.simulate import KubeDefault

    decide = KubeDefault.decide

    def interrupted(self: KubeDefault, snapshot: Any) -> Any:
        signal.raise_signal(signal.SIGINT)
        return decide(self, snapshot)

    monkeypatch.setattr(KubeDefault, "decide", interrupted)
    done = call(str(scenario), "-o", str(tmp_path / "out"), "--policies", "kube-default,greedy-only")
    assert done.exit_code == 130
    [record] = read_runs(tmp_path / "out", "").records.values()
    assert record.status == "interrupted"
    assert record.measures["jobs/running"] == 1
    assert record.read_s > 0
    assert "interrupted; what there is by then is in" in done.stderr
    assert "utilisation.png" in figures_of(tmp_path / "out")


def test_a_replay_that_fails_keeps_the_cycle_and_the_command_and_the_others_go_on(
    scenario: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fallen(_self: ModelPolicy, _snapshot: Any) -> Any:
        raise ValueError("it fell over")

    monkeypatch.setattr(ModelPolicy, "decide", fallen)
    done = call(str(scenario), "-o", str(tmp_path / "out"), "--policies", "greedy-only,kube-default", "--no-plots")
    assert done.exit_code == 1, done.output
    ours, theirs = read_runs(tmp_path / "out", "").records.values()
    assert (ours.status, theirs.status) == ("failed", "ok")
    assert "ValueError: it fell over" in ours.error
    [bundle] = (tmp_path / "out" / "failed").glob("*/bundle.zip")
    command = shlex.split((bundle.parent / "replay.txt").read_text())
    assert command[:3] == ["kai-solver", "solve", str(bundle)]
    again = CliRunner().invoke(app, [*command[1:], "--quiet"])
    assert again.exit_code == 0, again.output


def test_figures_of_an_earlier_call_do_not_stay(scenario: Path, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "figures"
    folder.mkdir(parents=True)
    for name in ("waits.svg", "waits.png", "waits.csv", "mine.csv"):
        (folder / name).write_text("old")
    done = call(str(scenario), "-o", str(tmp_path / "out"), "--policies", "kube-default", "--no-plots", "--quiet")
    assert done.exit_code == 0, done.output
    assert [path.name for path in folder.iterdir()] == ["mine.csv"]
