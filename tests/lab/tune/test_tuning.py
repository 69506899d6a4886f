"""Small real studies: found, tested, killed, resumed."""

import json
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from kai_solver.errors import InputError
from kai_solver.lab.runs import PairedDifference
from kai_solver.lab.tune import Side, TuneProgress, TuneStoppedError, TuneVerdict, read_space, tune, verdict_text
from kai_solver.lab.tune.verdict import Pair, side_of
from kai_solver.modelfiles import load_model

RUNS = "runs.jsonl"


def lines(folder: Path) -> list[str]:
    path = folder / RUNS
    return [json.loads(line)["record"]["run"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.slow
def test_a_study_ends_with_a_model_that_loads_and_a_verdict(small: Path, tmp_path: Path) -> None:
    told: list[TuneProgress] = []
    verdict = tune(read_space(small), tmp_path / "study", trials=4, at_once=2, report=told.append)
    assert [one.state in ("complete", "pruned") for one in verdict.tried] == [True] * 4
    assert verdict.tried[0].values == read_space(small).present
    assert verdict.result in ("the present model is the best", "too few instances")
    assert {one.phase for one in told} >= {"reference", "trials", "finalists"}
    model = load_model(tmp_path / "study" / "model.toml")
    assert (model.name, model.budget_s) == ("small", 0.3)
    assert "[provenance]" in (tmp_path / "study" / "model.toml").read_text()
    said = json.loads((tmp_path / "study" / "verdict.json").read_text())
    assert (said["format"], said["result"]) == ("kai-tuning/v1", verdict.result)
    assert said["training"]["present"] == pytest.approx(verdict.training.present)
    assert (tmp_path / "study" / "verdict.txt").read_text() == verdict_text(verdict)
    done = lines(tmp_path / "study")
    assert len(done) == len(set(done)) > 0
    again = tune(read_space(small), tmp_path / "study", trials=4)
    assert len(again.tried) == 4
    assert set(lines(tmp_path / "study")) >= set(done)


@pytest.mark.slow
def test_a_study_that_was_killed_goes_on_and_does_nothing_twice(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    command = [sys.executable, "-m", "kai_solver", "tune", str(small), "--study", str(folder), "--trials", "3"]
    process = subprocess.Popen(command, start_new_session=True, stderr=subprocess.DEVNULL)
    end_s = time.monotonic() + 120
    while len(lines(folder)) < 5 and process.poll() is None and time.monotonic() < end_s:
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    before = lines(folder)
    assert len(before) >= 5
    verdict = tune(read_space(small), folder, trials=3)
    after = lines(folder)
    assert after[: len(before)] == before
    assert len(after) == len(set(after))
    ended = [one for one in verdict.tried if one.state != "fail"]
    assert len(ended) == 3
    assert dict(ended[0].values) == read_space(small).present


@pytest.mark.slow
@pytest.mark.parametrize("most_bytes", [60_000, 170_000])
def test_after_a_full_disk_the_same_command_goes_on(small: Path, tmp_path: Path, most_bytes: int) -> None:
    """No file can be larger: the database is never whole, or it is full after some trials."""
    folder = tmp_path / "study"
    command = [sys.executable, "-m", "kai_solver", "tune", str(small), "--study", str(folder), "--quiet"]

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    full = subprocess.run(
        [*command, "--trials", "60"], capture_output=True, text=True, check=False, preexec_fn=limit, timeout=300
    )
    assert full.returncode == 2
    assert "run the same command again" in full.stderr
    assert "Traceback" not in full.stderr
    measured = lines(folder)
    again = subprocess.run([*command, "--trials", "2"], capture_output=True, text=True, check=False, timeout=300)
    assert (again.returncode, again.stderr) == (0, "")
    assert lines(folder)[: len(measured)] == measured
    assert len(set(lines(folder))) == len(lines(folder))


def test_a_database_that_was_made_by_half_is_used(small: Path, tmp_path: Path) -> None:
    """Without its index it would take a study of the same name a second time."""
    space = read_space(small)
    tune(space, tmp_path / "study", trials=1)
    with sqlite3.connect(tmp_path / "study" / "trials.db") as database:
        database.execute("DROP INDEX ix_studies_study_name")
    assert len(tune(space, tmp_path / "study", trials=2).tried) == 2


@pytest.mark.slow
def test_one_that_is_stopped_goes_on(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    with pytest.raises(TuneStoppedError):
        tune(read_space(small), folder, trials=2, should_stop=lambda: len(lines(folder)) >= 2)
    assert len(lines(folder)) == 2
    assert len(tune(read_space(small), folder, trials=2).tried) >= 2


def test_a_folder_of_another_space_is_refused(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "study"
    with pytest.raises(TuneStoppedError):
        tune(read_space(small), folder, should_stop=lambda: True)
    small.write_text(small.read_text().replace("high: 0.8}", "high: 0.9}"))
    with pytest.raises(InputError, match="another search space"):
        tune(read_space(small), folder)


@pytest.mark.slow
def test_a_database_that_goes_away_is_an_error_and_what_was_measured_stays(small: Path, tmp_path: Path) -> None:
    folder, database = tmp_path / "study", tmp_path / "trials.db"

    def lose(at: TuneProgress) -> None:
        if at.phase == "trials":
            database.unlink()
            database.mkdir()

    with pytest.raises(InputError, match="database of trials") as caught:
        tune(read_space(small), folder, trials=3, storage=f"sqlite:///{database}", report=lose)
    assert caught.value.field == "--storage"
    assert "what was measured is in" in caught.value.cure
    measured = lines(folder)
    assert measured
    database.rmdir()
    tune(read_space(small), folder, trials=1, storage=f"sqlite:///{database}")
    assert lines(folder)[: len(measured)] == measured


@pytest.mark.slow
@pytest.mark.parametrize("url", ["nosuch://x", "no url", "postgresql+psycopg://127.0.0.1:1/x"])
def test_a_database_that_is_none_is_an_error(small: Path, tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError, match="database") as caught:
        tune(read_space(small), tmp_path / "study", storage=url)
    assert caught.value.field == "--storage"


def test_the_command_says_what_is_wrong(small: Path, tmp_path: Path) -> None:
    small.write_text(small.read_text().replace("search.question_s", "search.questions_s"))
    result = CliRunner().invoke(app, ["tune", str(small), "--study", str(tmp_path / "study")])
    assert result.exit_code == Exit.INPUT
    assert "parameters.search.questions_s" in result.stderr
    assert "Did you mean search.question" in result.stderr


# -- verdicts ----------------------------------------------------------------------------------------------------------


def a_side(differences: list[float]) -> Side:
    return side_of([Pair(f"i{n}", "f", 0.5, 0.5 + difference) for n, difference in enumerate(differences)])


def a_verdict(test: Side | None) -> TuneVerdict:
    return TuneVerdict(
        "s", "default", "", "primal-integral", 2.0, 1, {"search.question_s": (1.0, 0.5)}, a_side([-0.1] * 7), test, (),
        (), (0.0, 0.0), "2026-11-23", "", "", "",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("differences", "result"),
    [
        ([-0.1, -0.2, -0.3, -0.1, -0.2, -0.1, -0.05], "better"),
        ([0.1, 0.2, 0.3, 0.1, 0.2, 0.1, 0.05], "worse"),
        ([0.1, -0.1, 0.2, -0.2, 0.3, -0.3, 0.05], "no difference"),
        ([-0.1, -0.2, -0.3], "too few instances"),
        ([-0.1, 0, 0, 0, 0, 0, 0, 0], "too few instances"),
    ],
)
def test_the_verdict_is_that_of_the_test_on_held_out_instances(differences: list[float], result: str) -> None:
    verdict = a_verdict(a_side(differences))
    assert verdict.result == result
    assert ("keep default" in verdict_text(verdict)) == (result != "better")


def test_nothing_is_claimed_where_the_present_model_is_the_best() -> None:
    verdict = a_verdict(None)
    assert verdict.result == "the present model is the best"
    assert "held out" not in verdict_text(verdict)


def test_seven_instances_that_are_all_better_have_the_p_value_of_the_tables() -> None:
    """Seven pairs of one sign, no ties: 2 / 2**7."""
    found: PairedDifference = a_side([-0.1, -0.2, -0.3, -0.4, -0.5, -0.6, -0.7]).difference
    assert found.p == pytest.approx(2 / 2**7)
    assert found.median == pytest.approx(-0.4)
    assert found.low is not None
    assert found.high is not None
    assert found.low <= -0.4 <= found.high < 0
