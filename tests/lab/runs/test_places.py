"""A study on a Dask cluster: a real scheduler and real workers, each a process of its own."""

import importlib.util
import json
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kai_solver.cli.app import app
from kai_solver.cli.exits import Exit
from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.runs import (
    DaskCluster,
    Definition,
    Generated,
    InstanceFile,
    Limits,
    ScenarioFile,
    Standing,
    Study,
    content_hash,
    places,
    run_study,
    tasks_of,
)
from kai_solver.lab.runs.machine import versions
from kai_solver.lab.runs.memory import family
from kai_solver.modelfiles import load_model
from tests.support.dask_cluster import Workers, cluster, end, three_workers

ROOT = Path(__file__).parents[3]
OPENB = ROOT / "instances" / "openb"
TINY = Generated("tiny", LoadedDoc(kind="loaded", nodes=10, gangs=5, contested=0))
GREEDY = load_model("greedy-only")
ASKED = Definition("compare", (TINY,), (GREEDY,), (1, 2, 3, 4, 5, 6), 1.0)
LONG = Generated("long", LoadedDoc(kind="loaded", nodes=300, gangs=300, contested=0))
LONG_ASKED = Definition("compare", (LONG,), (load_model("default"),), (1, 2), 120.0)

pytestmark = pytest.mark.slow


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Workers]:
    with three_workers(tmp_path / "cluster") as found:
        yield found


def test_a_worker_that_is_killed_in_the_middle_loses_no_run_and_doubles_none(three: Workers, tmp_path: Path) -> None:
    told: list[Standing] = []

    def report(at: Standing) -> None:
        told.append(at)
        if at.done == 4:
            three.processes[0].send_signal(signal.SIGKILL)

    asked = replace(ASKED, seeds=tuple(range(30)))
    with Study.create(tmp_path / "study", asked) as found:
        run_study(found, runner=DaskCluster(three.address), report=report)
    lines = (tmp_path / "study" / "runs.jsonl").read_text().splitlines()
    assert sorted(json.loads(line)["record"]["run"] for line in lines) == sorted(task.run for task in tasks_of(asked))
    assert {record.status for record in found.records} == {"ok"}
    assert {record.host for record in found.records[4:]} >= {"two", "three"}
    assert {record.host for record in found.records} <= {"one", "two", "three"}
    assert all(record.cpu_s and record.wall_s > 0 for record in found.records)
    assert any(record.is_shared for record in found.records)  # three workers on this one machine
    assert three.processes[0].poll() == -signal.SIGKILL


def test_a_run_that_is_lost_with_every_worker_is_given_up(tmp_path: Path) -> None:
    with cluster(tmp_path / "cluster") as found:
        alive = [found.add("0")]
        stop = threading.Event()

        def kill_whatever_runs() -> None:
            while not stop.wait(0.1):
                if any(b"forking" in _command(pid) for pid in family(alive[-1].pid)):
                    end(alive[-1])
                    alive.append(found.add(str(len(alive))))

        killer = threading.Thread(target=kill_whatever_runs)
        killer.start()
        try:
            with Study.create(tmp_path / "study", replace(LONG_ASKED, seeds=(1,))) as study:
                run_study(study, runner=DaskCluster(found.address))
        finally:
            stop.set()
            killer.join()
    (record,) = study.records
    assert record.status == "failed"
    assert "3 workers were lost while they did this run" in record.error
    assert (tmp_path / "study" / "failed" / record.run / "replay.txt").exists()


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


SCENARIO = """
format: kai-scenario/v1
name: short
seed: 1
duration: 10m
cluster: {file: ../nodes/two.yaml}
workloads:
  - kind: generate
    name: w
    queue: q
    arrivals: {process: poisson, perHour: 60}
    runtime: {distribution: lognormal, typical: 2m, sigma: 0.5, atLeast: 1m, atMost: 10m}
    pods: 1
    gpus: 2
"""


def test_files_travel_and_the_study_needs_no_disk_in_common(three: Workers, tmp_path: Path) -> None:
    """A folder of objects, a scenario with a file, a recipe with tables: deleted here when the workers have them."""
    here = tmp_path / "here"
    folder = here / "objects"
    (folder / "deep").mkdir(parents=True)
    for name, place in (("a", folder), ("b", folder / "deep")):
        text = f"apiVersion: v1\nkind: Node\nmetadata: {{name: {name}}}\nstatus: {{allocatable: {{cpu: 8}}}}\n"
        (place / f"{name}.yaml").write_text(text)
    (here / "nodes").mkdir()
    (here / "nodes" / "two.yaml").write_text(
        "format: kai-solver/v1\nnodes: [{count: 2, name: 'n{i}', gpus: 8}]\nqueues: [{name: q}]\n"
    )
    scenario = here / "scenarios" / "short.yaml"
    scenario.parent.mkdir()
    scenario.write_text(SCENARIO)
    recipe = Path(shutil.copytree(OPENB, here / "openb")) / "urgent.yaml"
    sources = (
        InstanceFile("objects", folder, content_hash(folder)),
        InstanceFile("recipe", recipe, content_hash(recipe)),
        ScenarioFile("short", scenario, content_hash(scenario)),
    )
    asked = replace(ASKED, sources=sources, seeds=tuple(range(1, 25)))
    deleted_at: list[int] = []

    def report(at: Standing) -> None:
        kept = [path.parents[3].name for path in tmp_path.glob("cluster/*/*/*/*/tree-*/scenarios/short.yaml")]
        if not deleted_at and len(set(kept)) == 3:
            shutil.rmtree(here)
            deleted_at.append(at.done)

    with Study.create(tmp_path / "study", asked) as study:
        run_study(study, runner=DaskCluster(three.address), report=report)
    assert {(record.status, record.error) for record in study.records} == {("ok", "")}
    assert {record.source for record in study.records} == {str(folder), str(recipe), str(scenario)}
    assert {record.nodes for record in study.records if record.instance != "recipe"} == {2}
    assert deleted_at
    assert deleted_at[0] < len(study.records) - 2, "nothing was run after that"


def test_the_command_line_sends_a_study_there_and_goes_on_here(three: Workers, tmp_path: Path) -> None:
    recipe = OPENB / "urgent.yaml"
    words = [
        "compare",
        str(recipe),
        "--models",
        "greedy-only,fast",
        "--budget",
        "1s",
        "--study",
        str(tmp_path / "study"),
    ]
    done = CliRunner().invoke(app, [*words, "--scheduler", three.address, "--seeds", "1..2"])
    assert done.exit_code == Exit.FINE, done.output
    hosts = [record.host for record in Study.open(tmp_path / "study").records]
    assert len(hosts) == 4
    assert set(hosts) <= {"one", "two", "three"}
    done = CliRunner().invoke(app, [*words, "--seeds", "1..3"])
    assert done.exit_code == Exit.FINE, done.output
    assert len([one for one in Study.open(tmp_path / "study").records if one.host not in hosts]) == 2


def test_what_cannot_be_read_within_the_limits_fails_as_it_does_here(three: Workers, tmp_path: Path) -> None:
    recipe = OPENB / "urgent.yaml"
    source = InstanceFile("recipe", recipe, content_hash(recipe))
    asked = replace(ASKED, sources=(source, TINY), seeds=(1,), limits=Limits(memory_mib=1.0))
    with Study.create(tmp_path / "study", asked) as study:
        run_study(study, runner=DaskCluster(three.address))
    assert {record.instance: record.status for record in study.records} == dict.fromkeys(
        ("recipe", "tiny"), "out_of_memory"
    )


def test_a_run_that_fails_names_paths_of_this_machine(tmp_path: Path) -> None:
    """A path that does not begin beside the file does not travel: the worker looks for it at the same place."""
    nodes, scenario = tmp_path / "nodes.yaml", tmp_path / "here" / "short.yaml"
    scenario.parent.mkdir()
    nodes.write_text("format: kai-solver/v1\nnodes: [{count: 2, name: 'n{i}', gpus: 8}]\nqueues: [{name: q}]\n")
    scenario.write_text(SCENARIO.replace("../nodes/two.yaml", str(nodes)))
    asked = replace(ASKED, sources=(ScenarioFile("short", scenario, content_hash(scenario)),), seeds=(1, 2))
    with cluster(tmp_path / "cluster") as found:
        found.add("one")
        with Study.create(tmp_path / "study", asked) as study:
            run_study(study, runner=DaskCluster(found.address), report=lambda _: nodes.unlink(missing_ok=True))
    first, second = study.records
    assert first.status == "ok"
    assert second.status == "failed"
    assert str(nodes) in second.error
    assert "kai-solver-files" not in second.error
    assert second.source == str(scenario)
    replay = (tmp_path / "study" / "failed" / second.run / "replay.txt").read_text()
    assert replay.startswith(f"kai-solver simulate {scenario} ")
    assert "--budget 1" in replay


def test_a_stopped_study_ends_its_runs_on_the_workers_and_goes_on_later(three: Workers, tmp_path: Path) -> None:
    asked = replace(LONG_ASKED, sources=(TINY, LONG), models=(GREEDY, load_model("default")), seeds=(1, 2))
    stop = threading.Event()

    def report(at: Standing) -> None:
        if at.done == 4:  # the two on the small cluster, and one of greedy-only on the large one
            stop.set()

    with Study.create(tmp_path / "study", asked) as study:
        run_study(study, runner=DaskCluster(three.address, should_stop=stop.is_set), report=report)
        kept = {record.run for record in study.records}
        assert 4 <= len(kept) < 8
        assert {record.status for record in study.records} == {"ok"}
        assert len(list(study.missing())) == 8 - len(kept)
    _no_solver_is_left(three)


def test_a_study_whose_process_is_killed_leaves_no_run_on_the_workers(three: Workers, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "study"), three.address]
    with subprocess.Popen(command, cwd=ROOT) as process:
        try:
            _until(lambda: any(_solvers(three)))
        finally:
            process.kill()
    _no_solver_is_left(three)
    assert process.returncode == -signal.SIGKILL
    assert not _solvers(three)


SCRIPT = """
import sys
from pathlib import Path
from tests.lab.runs.test_places import LONG_ASKED
from kai_solver.lab.runs import DaskCluster, Study, run_study
with Study.create(Path(sys.argv[1]), LONG_ASKED) as study:
    run_study(study, runner=DaskCluster(sys.argv[2]))
"""


def _solvers(workers: Workers) -> list[int]:
    """Processes of CP-SAT below the workers."""
    below = [pid for worker in workers.processes for pid in family(worker.pid)]
    return [pid for pid in below if b"worker.py" in _command(pid)]


def _no_solver_is_left(workers: Workers) -> None:
    _until(lambda: not _solvers(workers))


def _until(holds: Callable[[], bool], seconds: float = 120.0) -> None:
    end_s = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def test_workers_with_other_versions_are_refused_unless_they_are_allowed(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text(
        "import importlib.metadata as metadata\n"
        "known = metadata.version\n"
        "metadata.version = lambda name: '9.14.1' if name == 'ortools' else known(name)\n"
    )
    with cluster(tmp_path / "cluster") as found:
        found.add("old", environment={"PYTHONPATH": str(other)})
        with (
            Study.create(tmp_path / "study", replace(ASKED, seeds=(1,))) as study,
            pytest.raises(InputError, match=r"ortools 9\.14\.1, not ortools .*--allow-other-versions"),
        ):
            run_study(study, runner=DaskCluster(found.address))
        assert study.records == ()
        with Study.open(tmp_path / "study") as study:
            run_study(study, runner=DaskCluster(found.address, allows_other_versions=True))
    assert [record.versions for record in study.records] != [versions()]
    assert "ortools 9.14.1" in study.records[0].versions


def test_a_worker_without_the_package_is_an_error_with_the_cure(tmp_path: Path) -> None:
    other = tmp_path / "other" / "kai_solver"
    other.mkdir(parents=True)
    (other / "__init__.py").write_text("")
    with cluster(tmp_path / "cluster") as found:
        found.add("bare", environment={"PYTHONPATH": str(other.parent)})
        with (
            Study.create(tmp_path / "study", replace(ASKED, seeds=(1,))) as study,
            pytest.raises(InputError, match=r"a worker cannot use kai-solver.*pip install"),
        ):
            run_study(study, runner=DaskCluster(found.address))


def test_a_scheduler_that_goes_away_ends_the_study_and_what_was_measured_stays(three: Workers, tmp_path: Path) -> None:
    def report(at: Standing) -> None:
        if at.done == 2:
            end(three.scheduler)

    with (
        Study.create(tmp_path / "study", replace(ASKED, seeds=tuple(range(30)))) as study,
        pytest.raises(InputError, match=r"does not answer any more.*run the same command again"),
    ):
        run_study(study, runner=DaskCluster(three.address), report=report)
    assert 2 <= len(Study.open(tmp_path / "study").records) < 30


def test_a_cluster_without_workers_is_an_error_with_the_cure(tmp_path: Path) -> None:
    with (
        cluster(tmp_path / "cluster") as found,
        Study.create(tmp_path / "study", ASKED) as study,
        pytest.raises(InputError, match=r"no worker for 2 s.*dask worker tcp://"),
    ):
        run_study(study, runner=DaskCluster(found.address, workers_s=2.0))


@pytest.mark.parametrize("address", ["tcp://127.0.0.1:1", "tcp://nowhere.invalid:8786", "what?", "silent"])
def test_an_address_that_does_not_answer_is_an_error_with_the_cure(address: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        if address == "silent":
            address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        with (
            Study.create(tmp_path / "study", ASKED) as study,
            pytest.raises(InputError, match=r"no Dask scheduler answers.*dask scheduler"),
        ):
            run_study(study, runner=DaskCluster(address))
    assert places.ANSWER_S <= 10


def test_without_dask_the_error_names_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "distributed" else known(name))
    with (
        Study.create(tmp_path / "study", ASKED) as study,
        pytest.raises(InputError, match=r"distributed.*kai-solver\[experiments\]"),
    ):
        run_study(study, runner=DaskCluster("tcp://127.0.0.1:1"))
