"""Runs side by side, recorded peers, and what is found in a folder."""

import os
from pathlib import Path
from typing import Any

import orjson
import pytest
import zstandard

from kai_solver.domain import Bind, Plan, Stage
from kai_solver.errors import InputError
from kai_solver.instances_io import load_instance
from kai_solver.lab.bench import Job, find_instances, measure, paired, peers_beside, reached_by, rows_of, shortfall
from kai_solver.lab.bench.compare import order
from kai_solver.lab.bench.measure import PLACED
from kai_solver.lab.bench.peers import Peer, Reached
from kai_solver.lab.runs import InstanceFile
from tests.support.bench_runs import a_run, changed

RUN = a_run(instance="i", model="m")


def stage(name: str, value: float, bound: float = 0) -> Stage:
    return Stage(name, value, bound, value == bound)


def test_medians_are_taken_over_the_seeds() -> None:
    runs = [changed(RUN, seed=seed, decide_s=seconds) for seed, seconds in enumerate((0.1, 0.9, 0.2))]
    (row,) = rows_of(runs, "m")
    assert (row.decide_s, row.seeds, row.ratio, row.against) == (0.2, 3, None, "")


def test_ratios_are_paired_by_instance() -> None:
    runs = [
        changed(RUN, instance=instance, model=model, decide_s=seconds)
        for instance, model, seconds in (("i", "base", 1.0), ("i", "m", 2.0), ("j", "base", 1.0), ("j", "m", 4.0))
    ]
    rows = rows_of(runs, "base")
    assert [row.ratio for row in rows] == [None, 2.0, None, 4.0]
    (pair,) = paired(rows, "base")
    assert (pair.model, pair.median_ratio, pair.instances, pair.same) == ("m", 3.0, 2, 2)


def test_a_model_without_its_reference_has_no_ratio() -> None:
    rows = rows_of([RUN], "absent")
    assert rows[0].ratio is None
    assert paired(rows, "absent") == ()


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ((), (), "same"),
        ((stage("moved-pods", 1),), (stage("moved-pods", 2),), "better"),
        (
            (stage("evicted-pods", 2), stage("moved-pods", 0)),
            (stage("evicted-pods", 1), stage("moved-pods", 9)),
            "worse",
        ),
        ((stage("evicted-work/50", 1), stage("gangs-broken", 1)), (stage("gangs-broken", 2),), "worse"),
        ((stage("evicted-work/50", 9),), (stage("evicted-work/75", 1),), "better"),
        ((stage("evicted-work/100", 9),), (stage("evicted-work/75", 10),), "worse"),
    ],
)
def test_stage_vectors_are_compared_by_name_and_stratum(
    ours: tuple[Stage, ...], theirs: tuple[Stage, ...], expected: str
) -> None:
    assert order(changed(RUN, stages=ours), changed(RUN, stages=theirs)) == expected


def test_more_gangs_placed_come_before_any_stage() -> None:
    assert order(changed(RUN, placed=4, stages=(stage("evicted-pods", 9),)), RUN) == "better"


def reached(full: str, evicted: int = 0, partial: str = "") -> Reached:
    return Reached(frozenset(full), frozenset(partial), evicted, 0)


@pytest.mark.parametrize(
    ("ours", "theirs", "words"),
    [
        (reached("ab"), reached("abc"), "places 3 gangs"),
        (reached("ab", 3), reached("ab", 2), "evicts 2 pods for the same gangs"),
        (reached("ab", partial="c"), reached("abc"), "places 3 gangs"),
        (reached("abc", 9), reached("ab", 2), ""),
        (reached("ax", 9), reached("ab", 2), ""),
        (reached("ab", 2), reached("ab", 2), ""),
    ],
)
def test_a_peer_is_better_with_more_gangs_or_fewer_victims_for_the_same(
    ours: Reached, theirs: Reached, words: str
) -> None:
    found = shortfall(ours, Peer("kai-test", theirs, 0.0))
    assert words in found if words else found == ""


def write_instance(folder: Path, gpus: int = 2) -> Path:
    """Two waiting jobs of two tasks on one node."""
    request = {"gpus": 1, "cpu_cores": 1, "memory_bytes": 10**9}
    jobs = [
        {
            "name": name,
            "namespace": "ns",
            "queue": "q",
            "priority": 50,
            "min_available": 2,
            "task_request": request,
            "tasks": [{"id": f"{name}-{i}", "state": "Pending"} for i in range(2)],
        }
        for name in ("j", "k")
    ]
    quota = {"quota": -1, "limit": -1, "over_quota_weight": 1}
    node = {"name": "n", "gpus": gpus, "cpu_cores": 100, "memory_bytes": 10**11, "max_pods": 110}
    queues = [{"name": "root", "gpu": quota}, {"name": "q", "parent": "root", "gpu": quota}]
    document = {
        "schema": "kai-case/1",
        "name": "tiny",
        "instance": {"nodes": [node], "queues": queues, "jobs": jobs},
        "run": {"kind": "single_session", "actions": ["allocate"]},
    }
    path = folder / "tiny.json"
    path.write_bytes(orjson.dumps(document))
    return path


def write_peer(folder: Path, placed: tuple[str, ...], *, compressed: bool = False, **more: Any) -> None:
    tasks = {
        f"{job}-{i}": {"status": "Binding" if job in placed else "Pending"} for job in ("j", "k") for i in range(2)
    }
    summary = {"tasks_evicted": 0, "tasks_moved": 0}
    raw = orjson.dumps({"summary": summary, "timing_ms": {"cycle": 7.5}, "tasks": tasks} | more)
    name = "tiny.kai-test.json" + (".zst" if compressed else "")
    (folder / name).write_bytes(zstandard.compress(raw) if compressed else raw)


@pytest.mark.parametrize("compressed", [False, True])
def test_recorded_peers_are_read_beside_the_instance(tmp_path: Path, compressed: bool) -> None:
    instance = write_instance(tmp_path)
    write_peer(tmp_path, ("j",), compressed=compressed)
    (peer,) = peers_beside(instance, load_instance(instance).snapshot)
    assert (peer.name, peer.cycle_ms, peer.reached.full) == ("kai-test", 7.5, frozenset({"ns/j"}))


def test_a_broken_peer_file_is_an_input_error(tmp_path: Path) -> None:
    instance = write_instance(tmp_path)
    (tmp_path / "tiny.kai-test.json").write_text("{}")
    with pytest.raises(InputError, match="not a recorded outcome"):
        list(peers_beside(instance, load_instance(instance).snapshot))


def test_a_gang_with_some_of_its_pods_counts_as_partly_placed(tmp_path: Path) -> None:
    snapshot = load_instance(write_instance(tmp_path)).snapshot
    ours = reached_by(snapshot, Plan(binds=(Bind("ns/j-0", "ns/j", "n"),)))
    assert (ours.full, ours.partial) == (frozenset(), frozenset({"ns/j"}))


def test_folders_hold_instances_and_not_their_peers(tmp_path: Path) -> None:
    instance = write_instance(tmp_path)
    write_peer(tmp_path, ())
    (tmp_path / "README.md").write_text("not an instance")
    assert list(find_instances([tmp_path])) == [instance]


@pytest.mark.parametrize("name", ["absent", "."])
def test_nothing_to_measure_is_an_input_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError):
        list(find_instances([tmp_path / name]))


@pytest.mark.slow
def test_a_tiny_instance_is_measured_in_a_process_of_its_own(tmp_path: Path) -> None:
    instance = write_instance(tmp_path)
    write_peer(tmp_path, ("j", "k"))
    (run,) = measure(Job(InstanceFile("tiny", instance), "greedy-only", (3,)))
    record = run.record
    assert (run.measure(PLACED), record.pending, record.evicted_pods, record.seed) == (1, 1, 0, 3)
    assert (record.status, record.plan_source, record.nodes, record.gangs) == ("ok", "bound", 1, 2)
    assert record.solve_s > 0
    assert record.peak_mib is not None
    assert record.peak_mib > 1
    assert run.worse_than == ("kai-test places 2 gangs (2 with parts), we 1 (1)",)


class _Deadly(tuple[int, ...]):
    """Seeds that kill the process which they are sent to."""

    __slots__ = ()

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (9,)


@pytest.mark.slow
def test_a_run_whose_process_dies_is_a_row_with_the_command_that_repeats_it(tmp_path: Path) -> None:
    instance = write_instance(tmp_path)
    (run,) = measure(Job(InstanceFile("tiny", instance), "greedy-only", _Deadly((3,))))
    assert (run.record.status, run.record.seed) == ("failed", 3)
    assert "was killed" in run.record.error
    assert run.outcome.replay == f"kai-solver solve {instance}"
