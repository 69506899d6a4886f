"""A study that is run: every run once, whatever ends it in the middle."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Generator, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.runs import (
    Definition,
    Generated,
    InstanceFile,
    Limits,
    Outcome,
    ScenarioFile,
    Standing,
    Study,
    Task,
    run_study,
    study,
)
from kai_solver.lab.runs.memory import family
from kai_solver.lab.runs.running import blank
from kai_solver.modelfiles import load_model

ROOT = Path(__file__).parents[3]
TINY = Generated("tiny", LoadedDoc(kind="loaded", nodes=10, gangs=5, contested=0))
ASKED = Definition("compare", (TINY,), (load_model("greedy-only"),), (1, 2, 3, 4, 5, 6), 1.0)


def test_every_run_is_done_once_and_told(tmp_path: Path) -> None:
    told: list[Standing] = []
    with Study.create(tmp_path / "study", ASKED) as found:
        run_study(found, at_once=2, report=told.append)
        run_study(found, at_once=2, report=told.append)
    assert [(one.done, one.total, one.failed) for one in told] == [(done, 6, 0) for done in range(1, 7)]
    assert {one.record.is_shared for one in told} == {True}
    assert len((tmp_path / "study" / "runs.jsonl").read_text().splitlines()) == 6


def test_failed_runs_are_done_again_where_that_is_asked_for(tmp_path: Path) -> None:
    tight = replace(ASKED, limits=Limits(wall_s=0.01), seeds=(1, 2))
    with Study.create(tmp_path / "study", tight) as found:
        run_study(found)
        assert {record.status for record in found.records} == {"out_of_time"}
    with Study.create(tmp_path / "study", replace(tight, limits=Limits())) as found:
        run_study(found)
        assert {record.status for record in found.records} == {"out_of_time"}
        run_study(found, retries=True)
        assert [record.status for record in found.records] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("source", "problem"),
    [
        (InstanceFile("gone", Path("/gone.yaml")), "/gone.yaml"),
        (ScenarioFile("gone", Path("/gone/scenario.yaml")), "/gone/scenario.yaml"),
    ],
)
def test_nothing_is_measured_before_everything_can_be_read(
    source: InstanceFile | ScenarioFile, problem: str, tmp_path: Path
) -> None:
    with (
        pytest.raises(InputError, match=problem),
        Study.create(tmp_path / "study", replace(ASKED, sources=(TINY, source))) as found,
    ):
        run_study(found)
    assert Study.open(tmp_path / "study").records == ()


def test_a_disk_that_is_full_ends_the_study_and_what_was_measured_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep = study._append
    kept: list[bytes] = []

    def append(file: int, line: bytes) -> None:
        if len(kept) == 3:
            os.write(file, line[:40])  # as much as there was room for
            os.ftruncate(file, os.fstat(file).st_size - 40)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        kept.append(line)
        keep(file, line)

    monkeypatch.setattr(study, "_append", append)
    with (
        pytest.raises(InputError, match=r"No space left.*run the same command again"),
        Study.create(tmp_path / "study", ASKED) as found,
    ):
        run_study(found, at_once=2)
    monkeypatch.undo()
    with Study.open(tmp_path / "study") as found:
        assert len(found.records) == 3
        run_study(found)
    assert len((tmp_path / "study" / "runs.jsonl").read_text().splitlines()) == 6


def test_a_study_that_is_stopped_keeps_what_ended_and_leaves_no_process(tmp_path: Path) -> None:
    slow = replace(ASKED, sources=(Generated("slow", LoadedDoc(kind="loaded", nodes=300, gangs=300, contested=0)),))
    slow = replace(slow, models=(load_model("default"),), budget_s=60.0)
    before = set(family(os.getpid()))  # solvers that other tests keep warm

    def is_solving() -> bool:
        return any(b"worker.py" in _command(pid) for pid in set(family(os.getpid())) - before)

    with Study.create(tmp_path / "study", slow) as found:
        run_study(found, at_once=2, should_stop=is_solving)
    assert found.records == ()
    end_s = time.monotonic() + 10
    while (left := _solvers(before)) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert left == []


def _solvers(but: set[int]) -> list[int]:
    return [pid for pid in family(os.getpid()) if pid not in but and b"worker.py" in _command(pid)]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_other_machines_may_do_the_runs_and_lose_some(tmp_path: Path) -> None:
    def elsewhere(tasks: Iterable[Task]) -> Generator[Outcome, None, None]:
        first, second, *_ = tasks
        yield Outcome(blank(first, "lost", "the worker went away"))
        yield Outcome(blank(second, "ok"))

    with Study.create(tmp_path / "study", ASKED) as found:
        run_study(found, runner=elsewhere)
        assert len(list(found.missing())) == 5


SCRIPT = """
import sys
from pathlib import Path
from dataclasses import replace
from tests.lab.runs.test_running_studies import ASKED
from kai_solver.lab.runs import Study, run_study
with Study.create(Path(sys.argv[1]), replace(ASKED, seeds=tuple(range(200)))) as study:
    run_study(study, at_once=2)
"""


@pytest.mark.slow
def test_kill_9_in_the_middle_of_200_runs_loses_none_and_counts_none_twice(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "study")]
    runs = tmp_path / "study" / "runs.jsonl"
    seen: list[str] = []
    for enough in (20, 90, 150):
        process = subprocess.Popen(command, cwd=ROOT)
        while len(_lines(runs)) < enough:
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kept = _lines(runs)
        assert kept[: len(seen)] == seen
        assert enough <= len(kept) < 200
        seen = kept
    subprocess.run(command, cwd=ROOT, check=True, timeout=300)
    whole = _lines(runs)
    assert whole[: len(seen)] == seen
    records = [json.loads(line)["record"] for line in whole]
    assert len({record["run"] for record in records}) == len(records) == 200
    assert {record["status"] for record in records} == {"ok"}
    found = Study.open(tmp_path / "study")
    assert list(found.missing()) == []
    assert found.frames().runs.height == 200
    assert (tmp_path / "study" / "runs.parquet").is_file()


def _lines(path: Path) -> list[str]:
    """Whole lines of the file."""
    return path.read_text().split("\n")[:-1] if path.exists() else []
