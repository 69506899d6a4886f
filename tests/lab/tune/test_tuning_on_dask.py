"""Tuning on a Dask cluster: a real scheduler and real workers, each a process of its own."""

import json
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from kai_solver.errors import InputError
from kai_solver.lab.runs import DaskCluster, Study
from kai_solver.lab.tune import TuneProgress, TuneStoppedError, read_space, tune
from kai_solver.lab.tune.tuning import TRIALS
from tests.support.dask_cluster import Workers, cluster, end, three_workers

pytestmark = pytest.mark.slow

TESTED = """format: kai-tune/v1
name: tested
budget: 300ms
parameters:
  search.question_s: {low: 0.1, high: 2.0, log: true}
instances:
  - {name: quiet, generate: {kind: quiet, nodes: 3, nodeGpus: 2, pods: 1}, draws: [1, 2, 3]}
  - {name: empty, generate: {kind: empty, nodes: 2}, draws: [1, 2, 3, 4, 5, 6]}
split: {families: [empty]}
finalists: 1
finalSeeds: 1
race: {p: 0.4, least: 2}
"""


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Workers]:
    with three_workers(tmp_path / "cluster") as found:
        yield found


def lines(folder: Path) -> list[str]:
    text = (folder / "runs.jsonl").read_text()
    return [json.loads(line)["record"]["run"] for line in text.splitlines()]


def test_a_worker_that_is_killed_in_the_middle_loses_no_trial(small: Path, tmp_path: Path, three: Workers) -> None:
    told: list[TuneProgress] = []

    def report(at: TuneProgress) -> None:
        told.append(at)
        is_time = at.phase == "trials" and at.done >= 2 and three.processes[0].poll() is None
        if is_time and any(record.host == "one" for record in Study.open(folder).records):  # it was at work, too
            three.processes[0].send_signal(signal.SIGKILL)

    folder = tmp_path / "study"
    verdict = tune(read_space(small), folder, trials=12, cluster=DaskCluster(three.address), report=report)
    assert three.processes[0].poll() == -signal.SIGKILL
    assert [one.state in ("complete", "pruned") for one in verdict.tried] == [True] * 12
    assert len([at for at in told if at.phase == "trials"]) == 12
    done = lines(folder)
    assert len(done) == len(set(done))
    records = Study.open(folder).records
    assert {record.status for record in records} == {"ok"}
    assert {record.host for record in records} == {"one", "two", "three"}
    assert any(record.is_shared for record in records), "trials were not done at the same time"
    assert (folder / TRIALS).is_file()
    again = tune(read_space(small), folder, trials=12)
    assert len(again.tried) == 12
    assert lines(folder)[: len(done)] == done


def test_the_last_runs_are_done_one_at_a_time_and_the_verdict_names_their_machine(
    tmp_path: Path, three: Workers
) -> None:
    path, folder = tmp_path / "tested.yaml", tmp_path / "study"
    path.write_text(TESTED)
    verdict = tune(read_space(path), folder, trials=6, cluster=DaskCluster(three.address))
    records = Study.open(folder).records
    last = [record for record in records if record.instance.startswith("empty")]
    if verdict.test is None:  # chance found the present model best in training, so nothing is tested
        assert not last
        assert set(verdict.hosts) <= {"one", "two", "three"}
    else:
        assert len(last) == 12
        assert not any(record.is_shared for record in last)
        assert set(verdict.hosts) == {record.host for record in last}
    assert verdict.load is None
    assert "one at a time on" in (folder / "verdict.txt").read_text()


def test_trials_that_have_the_same_values_do_each_run_once(tmp_path: Path) -> None:
    path, folder = tmp_path / "two.yaml", tmp_path / "study"
    parameters = "parameters:\n  search.presolve: {choices: [none, light]}\n"
    head, _, tail = TESTED.partition("parameters:\n")
    path.write_text(head + parameters + tail.partition("\n")[2])
    tune(read_space(path), folder, trials=8, at_once=4)
    done = lines(folder)
    assert len(done) == len(set(done))


def test_one_that_is_stopped_goes_on_with_other_workers(small: Path, tmp_path: Path, three: Workers) -> None:
    folder = tmp_path / "study"
    place = DaskCluster(three.address)

    def is_enough() -> bool:
        return (folder / "runs.jsonl").is_file() and len(lines(folder)) >= 4

    with pytest.raises(TuneStoppedError):
        tune(read_space(small), folder, trials=6, cluster=place, should_stop=is_enough)
    before = lines(folder)
    assert len(before) >= 4
    for process in three.processes[:2]:
        end(process)
    verdict = tune(read_space(small), folder, trials=6, cluster=place)
    assert lines(folder)[: len(before)] == before
    assert len(lines(folder)) == len(set(lines(folder)))
    assert len([one for one in verdict.tried if one.state != "fail"]) == 6


def test_a_scheduler_that_goes_away_is_an_error_and_what_was_measured_stays(
    small: Path, tmp_path: Path, three: Workers
) -> None:
    def report(at: TuneProgress) -> None:
        if at.phase == "trials":
            end(three.scheduler)

    folder = tmp_path / "study"
    with pytest.raises(InputError, match=r"does not answer any more.*run the same command again"):
        tune(read_space(small), folder, trials=8, cluster=DaskCluster(three.address), report=report)
    measured = lines(folder)
    assert measured
    tune(read_space(small), folder, trials=3)
    assert lines(folder)[: len(measured)] == measured


def test_a_cluster_without_workers_is_an_error_with_the_cure(small: Path, tmp_path: Path) -> None:
    with (
        cluster(tmp_path / "cluster") as found,
        pytest.raises(InputError, match=r"no worker for 2 s.*dask worker tcp://"),
    ):
        tune(read_space(small), tmp_path / "study", trials=2, cluster=DaskCluster(found.address, workers_s=2.0))


def test_the_command_line_sends_trials_there(small: Path, tmp_path: Path, three: Workers) -> None:
    words = ["tune", str(small), "--study", str(tmp_path / "study"), "--trials", "3", "--scheduler", three.address]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == Exit.FINE, done.output
    assert {record.host for record in Study.open(tmp_path / "study").records} <= {"one", "two", "three"}


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "what?", "silent"])
def test_an_address_that_does_not_answer_is_an_error_with_the_cure(address: str, small: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if address == "silent":
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        words = ["tune", str(small), "--study", str(tmp_path / "study"), "--scheduler", address]
        done = CliRunner().invoke(app, words)
    assert done.exit_code == Exit.INPUT
    said = " ".join(done.stderr.split())
    assert "no Dask scheduler answers" in said
    assert "dask scheduler" in said
    assert "Traceback" not in said
