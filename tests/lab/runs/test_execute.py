"""A run is a process of its own; whatever it does, an outcome comes back."""

import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.instances_io.bundle import read_bundle
from kai_solver.lab.runs import Generated, InstanceFile, Limits, ScenarioFile, Study, Task, execute, executing, task_of
from kai_solver.lab.runs.definition import Definition
from kai_solver.lab.runs.memory import family, family_cpu_s
from kai_solver.modelfiles import load_model

INSTANCES = Path(__file__).parents[3] / "instances"
MONDAY = InstanceFile("monday", INSTANCES / "monday-morning.yaml")
SHORT = """
format: kai-scenario/v1
name: short
cluster: {nodes: [{count: 1, name: "n{i}", gpus: 8}], queues: [{name: q}]}
workloads: [{kind: generate, name: w, queue: q, count: 2, arrivals: {process: batch}, runtime: {distribution: fixed,
  typical: 10s}, pods: 1, gpus: 1}]
"""
GREEDY, DEFAULT = load_model("greedy-only"), load_model("default")


def _task(model: str = "default", seed: int = 1, budget_s: float = 2.0, limits: Limits | None = None) -> Task:
    return task_of("compare", MONDAY, load_model(model), seed, budget_s, limits=limits)


def _loaded(nodes: int) -> Generated:
    return Generated(f"loaded-{nodes}", LoadedDoc(kind="loaded", nodes=nodes, gangs=nodes, contested=0))


def test_a_run_measures_what_its_row_says() -> None:
    outcome = execute(_task())
    record = outcome.record
    assert (record.status, record.error, outcome.bundle) == ("ok", "", None)
    assert (record.gangs, record.admitted, record.pending) == (4, 3, 1)
    assert record.read_s > 0
    assert 0 < record.solve_s <= record.wall_s
    assert record.cpu_s is not None
    assert record.cpu_s > 0
    assert record.peak_mib is not None
    assert record.peak_mib > 30
    assert record.stages[0].name == "pending-gangs"
    assert outcome.improvements
    assert {one.stage for one in outcome.improvements} <= {stage.name for stage in record.stages}


def test_a_run_beyond_its_time_is_ended_and_can_be_replayed(tmp_path: Path) -> None:
    execute(_task())  # the instance is read by now, so that the limit is the run's
    outcome = execute(_task(limits=Limits(wall_s=0.02)))
    assert outcome.record.status == "out_of_time"
    assert outcome.bundle is not None
    with Study.create(tmp_path / "study", Definition("compare", ())) as study:
        study.add(outcome)
    failed = tmp_path / "study" / "failed" / outcome.record.run
    assert read_bundle(failed / "bundle.zip").model.name == "default"
    command = (failed / "replay.txt").read_text().split()
    assert command[:3] == ["kai-solver", "solve", str(failed / "bundle.zip")]
    done = subprocess.run([sys.executable, "-m", "kai_solver", *command[1:], "--quiet"], check=False, timeout=120)
    assert done.returncode == 0


def test_a_run_beyond_its_memory_is_ended() -> None:
    execute(_task())  # the instance is read by now, so that the limit is the run's
    outcome = execute(_task(limits=Limits(memory_mib=20)))
    assert outcome.record.status == "out_of_memory"
    assert "more than the limit of 20" in outcome.record.error
    assert outcome.bundle is not None


def test_what_cannot_be_read_is_a_failed_run_with_its_reason() -> None:
    outcome = execute(task_of("compare", InstanceFile("gone", Path("/gone.yaml")), GREEDY, 1))
    assert outcome.record.status == "failed"
    assert "/gone.yaml" in outcome.record.error
    assert outcome.replay == "kai-solver solve /gone.yaml"


def test_a_run_that_is_killed_says_so_and_the_next_one_is_well() -> None:
    """From outside, as the kernel does when it has no memory left."""
    execute(_task("greedy-only"))
    before = set(family(os.getpid()))
    killer = threading.Thread(target=_kill_newest, args=(before,))
    killer.start()
    outcome = execute(task_of("compare", _loaded(400), DEFAULT, 1, 20.0))
    killer.join()
    assert outcome.record.status == "out_of_memory"
    assert "SIGKILL" in outcome.record.error
    assert execute(_task()).record.status == "ok"


def test_a_parent_that_was_killed_costs_no_run() -> None:
    assert execute(_task("greedy-only")).record.status == "ok"
    for pid in family(os.getpid())[1:]:
        if b"runs.forking" in _command(pid):
            os.kill(pid, signal.SIGKILL)
    assert execute(_task("greedy-only", 2)).record.error == ""


def test_an_unexpected_error_is_a_failed_run_with_its_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_once(_pid: int) -> float:
        monkeypatch.undo()
        raise RuntimeError("no list of processes")

    execute(_task("greedy-only"))  # the instance is read by now
    monkeypatch.setattr(executing, "family_cpu_s", fail_once)
    outcome = execute(_task("greedy-only", 3))
    assert (outcome.record.status, outcome.record.error) == ("failed", "RuntimeError: no list of processes")
    assert outcome.bundle is not None
    assert execute(_task("greedy-only", 3)).record.status == "ok"


def test_many_instances_on_several_threads() -> None:
    """More than are kept: one that another thread is about to use is not closed."""
    tasks = [task_of("compare", _loaded(nodes), GREEDY, seed, 2.0) for seed in (1, 2) for nodes in range(10, 18)]
    with ThreadPoolExecutor(4) as threads:
        outcomes = list(threads.map(execute, tasks))
    assert [outcome.record.error for outcome in outcomes] == [""] * len(tasks)


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc")
def test_processes_that_end_while_they_are_counted_are_no_error() -> None:
    short_lived = subprocess.Popen(["bash", "-c", "while :; do true & wait; done"])
    try:
        for _ in range(10_000):
            assert family(short_lived.pid)[0] == short_lived.pid
            family_cpu_s(short_lived.pid)
    finally:
        short_lived.kill()
        short_lived.wait()


def _kill_newest(before: set[int]) -> None:
    """Kill the process that decides: it is the parent of the solver's."""
    while True:
        for pid in set(family(os.getpid())) - before:
            command = Path(f"/proc/{pid}/cmdline")
            if command.exists() and b"worker.py" in command.read_bytes():
                stat = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                os.kill(int(stat[1]), signal.SIGKILL)
                return
        time.sleep(0.01)


def test_runs_of_several_threads_do_not_disturb_each_other() -> None:
    tasks = [_task("greedy-only", seed) for seed in range(4)]
    tasks += [task_of("compare", _loaded(nodes), GREEDY, 1, 2.0) for nodes in (20, 30, 40, 50)]
    with ThreadPoolExecutor(3) as threads:
        outcomes = list(threads.map(execute, tasks))
    assert [outcome.record.run for outcome in outcomes] == [task.run for task in tasks]
    assert [outcome.record.error for outcome in outcomes] == [""] * len(tasks)
    assert [outcome.record.nodes for outcome in outcomes[4:]] == [20, 30, 40, 50]


def test_a_scenario_is_a_run_with_tables() -> None:
    scenario = ScenarioFile("hour", INSTANCES / "scenarios" / "training-and-inference.yaml")
    outcome = execute(task_of("compare", scenario, None, 3))
    assert outcome.record.status == "ok"
    assert outcome.record.model == "kube-default"
    assert outcome.record.stages[0].name == "mean-wait"
    assert {"jobs.csv", "stays.csv"} <= outcome.tables.keys()
    assert outcome.record.measures["utilisation"] > 0
    assert outcome.record.read_s > 0


def test_a_replay_beyond_its_time_can_be_repeated_after_its_model_file_changed(tmp_path: Path) -> None:
    mine, short = tmp_path / "mine.toml", tmp_path / "short.yaml"
    mine.write_text('extends = "greedy-only"\nname = "of my own"\n')
    short.write_text(SHORT)
    model = load_model(mine)
    mine.unlink()
    outcome = execute(task_of("compare", ScenarioFile("short", short), model, 1, 2.0, limits=Limits(wall_s=0.01)))
    assert outcome.record.status == "out_of_time"
    with Study.create(tmp_path / "study", Definition("compare", ())) as study:
        study.add(outcome)
    failed = tmp_path / "study" / "failed" / outcome.record.run
    assert load_model(failed / "model.toml") == model
    command = shlex.split((failed / "replay.txt").read_text())
    done = subprocess.run([sys.executable, "-m", "kai_solver", *command[1:], "--quiet"], check=False, timeout=120)
    assert done.returncode == 0
    assert (failed / "replay" / "jobs.csv").exists()


@pytest.mark.skipif(sys.platform != "linux", reason="a parent's end is told to its children on Linux alone")
def test_nothing_outlives_the_process_that_asked(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "from tests.lab.runs.test_execute import _loaded, DEFAULT\n"
        "from kai_solver.lab.runs import execute, task_of\n"
        "execute(task_of('compare', _loaded(400), DEFAULT, 1, 60.0))\n"
    )
    asking = subprocess.Popen(
        [sys.executable, str(script)], env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    )
    while not any(b"worker.py" in _command(pid) for pid in family(asking.pid)):
        time.sleep(0.05)
        assert asking.poll() is None
    started = family(asking.pid)[1:]
    asking.kill()
    asking.wait()
    end_s = time.monotonic() + 10
    while (left := [pid for pid in started if _command(pid)]) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert left == []


def test_a_process_that_asked_has_closed_its_sockets_when_it_ends(tmp_path: Path) -> None:
    script = tmp_path / "asks.py"
    script.write_text(
        "import atexit, gc, socket\n"
        "from tests.lab.runs.test_execute import _task\n"
        "from kai_solver.lab.runs import execute\n"
        "opened = lambda: [one for one in gc.get_objects() if isinstance(one, socket.socket) and one.fileno() >= 0]\n"
        "atexit.register(lambda: print('at its end', opened()))\n"  # What is registered first is called last.
        "assert execute(_task('greedy-only')).record.status == 'ok'\n"
        "print('before', len(opened()))\n"
    )
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    asked = subprocess.run([sys.executable, str(script)], env=env, check=True, capture_output=True, text=True)
    assert asked.stdout.splitlines() == ["before 2", "at its end []"]


def _command(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""
