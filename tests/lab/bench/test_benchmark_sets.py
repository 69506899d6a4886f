"""Sets, limits, slopes, stored runs: what is asked for, what is over, what got worse."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from kai_solver.domain import Bind, Eviction, Move, Plan, PodStatus, Stage
from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import SlopeDoc
from kai_solver.lab.bench import (
    Run,
    added,
    changes,
    figure_of,
    fitted,
    is_set,
    jobs_of,
    late,
    link_spreads,
    measure_here,
    next_moment,
    plot_lines,
    read_set,
    read_stored,
    save_runs,
    stored_of,
    verdicts,
)
from kai_solver.lab.bench.added import moments
from kai_solver.lab.bench.calibration import calibration_s
from kai_solver.lab.bench.measure import CALIBRATION, FIRST_CYCLE, PENDING_GPUS, STEADY, UNKNOWN_GPUS
from kai_solver.lab.generate.load_report import gpus_of
from kai_solver.lab.runs import Generated, Improvement
from kai_solver.lab.runs.cpuclock import CpuClock
from tests.support.bench_runs import a_run, changed
from tests.support.engines import PATIENT_S, patient_engine

SCALE = Path(__file__).parents[3] / "instances" / "bench" / "sets" / "scale.yaml"
RUN = a_run()


def stage(name: str, value: float, bound: float = 0) -> Stage:
    return Stage(name, value, bound, value == bound)


def write_set(folder: Path, **entry: Any) -> Path:
    path = folder / "set.yaml"
    small = {"name": "small", "generate": {"kind": "quiet", "nodes": 8}} | entry
    path.write_text(yaml.safe_dump({"format": "kai-bench/v1", "name": "tiny", "cycles": 2, "entries": [small]}))
    return path


# -- sets --------------------------------------------------------------------------------------------------------------


def test_a_set_asks_for_each_model_and_budget_once(tmp_path: Path) -> None:
    checks = [
        {"figure": "decide", "limit": 1},
        {"figure": "evicted", "limit": 0},
        {"figure": "decide", "limit": 1, "budget": 5, "model": "fast"},
    ]
    path = write_set(tmp_path, seeds=[1, 7], checks=checks)
    jobs = jobs_of(read_set(path))
    assert [(job.model, job.budget_s, job.source.draw) for job in jobs] == [
        ("default", 2.0, 1),
        ("default", 2.0, 7),
        ("fast", 5.0, 1),
        ("fast", 5.0, 7),
    ]
    assert {len(job.seeds) for job in jobs} == {2}
    assert [job.model for job in jobs_of(read_set(path), ["greedy-only"])] == ["greedy-only"] * 4
    beside = [(job.model, job.budget_s) for job in jobs_of(read_set(path), floor="greedy-only") if job.source.draw == 1]
    assert beside == [("default", 2.0), ("fast", 5.0), ("greedy-only", 2.0), ("greedy-only", 5.0)]


def test_steady_cycles_are_run_only_where_a_limit_asks(tmp_path: Path) -> None:
    checks = [{"figure": "steady", "limit": 1, "budget": 1}, {"figure": "decide", "limit": 1}]
    jobs = jobs_of(read_set(write_set(tmp_path, checks=checks)))
    assert {job.budget_s: bool(job.steady) for job in jobs} == {1.0: True, 2.0: False}


@pytest.mark.parametrize(
    "entry",
    [
        {"file": "also.json"},
        {"generate": {"kind": "loaded", "nodes": 0, "gangs": 1}},
        {"generate": {"kind": "loaded", "nodes": 10, "gangs": 1, "gpus": {1: 0.5}}},
        {"checks": [{"figure": "speed", "limit": 1}]},
        {"checks": [{"figure": "link-growth", "limit": 1}]},
        {"unknown": 1},
    ],
)
def test_a_faulty_set_is_an_error_that_names_the_file(tmp_path: Path, entry: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"set\.yaml"):
        read_set(write_set(tmp_path, **entry))


def test_cycles_with_links_are_run_only_where_a_limit_asks(tmp_path: Path) -> None:
    checks = [{"figure": "link-growth", "limit": 1, "budget": 1}, {"figure": "decide", "limit": 1}]
    jobs = jobs_of(read_set(write_set(tmp_path, product="hgx-a100-4", checks=checks)))
    assert {job.budget_s: job.product for job in jobs} == {1.0: "hgx-a100-4", 2.0: ""}


def test_sets_are_told_from_instances() -> None:
    assert is_set(SCALE)
    assert not is_set(SCALE.parents[3] / "ai-lab-100-gpus.yaml")
    assert not is_set(SCALE.parent)


def test_the_scale_set_has_every_stored_file_and_the_slope() -> None:
    scale = read_set(SCALE)
    jobs = jobs_of(scale)
    assert all(isinstance(job.source, Generated) or job.source.path.is_file() for job in jobs)
    [slope] = scale.doc.slopes
    measured = {job.source.name for job in jobs if (job.model, job.budget_s) == (slope.model, slope.budget)}
    assert measured == set(slope.entries)


# -- figures and limits ------------------------------------------------------------------------------------------------


def test_gaps_are_counted_as_declared() -> None:
    stages = (
        stage("evicted-work/75", 10, 10),
        replace(stage("evicted-work/50", 30, 10), stake=1000.0),
        replace(stage("evicted-work/25", 30, 0), stake=6000.0),
        stage("moved-pods", 3, 0),
        stage("nodes-opened", 9, 0),
    )
    run = changed(RUN, stages=stages, pending_gpus=200.0, unknown_gpus=10.0)
    assert figure_of("work-gap", [run]) == pytest.approx((30 - 10) / 10)
    assert [stage.gap for stage in stages] == [0.0, 2.0, 0.5, None, None]
    assert figure_of("disruption-gap", [run]) == 3.0
    by_gpus = changed(RUN, stages=(stage("evicted-gpus/75", 2000, 2000), stage("evicted-gpus/50", 3000, 2000)))
    assert figure_of("gpus-gap", [by_gpus]) == figure_of("disruption-gap", [by_gpus]) == 0.5
    assert figure_of("admission-gap", [run]) == 0.05
    assert figure_of("unproven", [run]) == 1
    assert figure_of("steady", [run]) is None
    assert figure_of("decide", [RUN, changed(RUN, decide_s=0.4), changed(RUN, decide_s=9.0)]) == 0.4


def test_limits_are_held_against_their_own_runs(tmp_path: Path) -> None:
    checks = [{"figure": "decide", "limit": 0.3}, {"figure": "decide", "limit": 0.1, "budget": 1}]
    bench_set = read_set(write_set(tmp_path, checks=checks))
    ok, not_measured = verdicts(bench_set, [RUN])
    assert (ok.is_over, ok.value) == (False, 0.2)
    assert (not_measured.is_over, not_measured.value) == (False, None)
    _, over = verdicts(bench_set, [RUN, changed(RUN, budget_s=1.0)])
    assert over.is_over


def test_a_cycle_that_ends_too_late_broke_its_promise() -> None:
    assert late([changed(RUN, decide_s=2.59), changed(RUN, decide_s=2.61)]) == (changed(RUN, decide_s=2.61),)


def test_moments_know_the_last_improvement_and_the_proof() -> None:
    heard = ((0.1, 9.0, 0.0), (0.2, 9.0, 3.0), (0.3, 5.0, 4.0), (0.4, 5.0, 5.0), (0.5, 5.0, 5.0))
    run = changed(
        RUN, decide_s=0.6, improvements=[Improvement(at, "moved-pods", value, bound, "") for at, value, bound in heard]
    )
    at_the_end = Improvement(0.6, "nodes-opened", 1.0, 1.0, "")
    found = moments(changed(run, improvements=(*run.improvements, at_the_end)))
    assert found == ({"moved-pods": 0.3}, {"moved-pods": 0.4})


# -- growth ------------------------------------------------------------------------------------------------------------

GROWTH = SlopeDoc(name="g", entries=("a", "b", "c"), model="m", budget=1, limit=1.3)


def sized(name: str, nodes: int, seconds: float) -> Run:
    return changed(RUN, instance=name, model="m", budget_s=1.0, nodes=nodes, decide_s=seconds)


@pytest.mark.slow
def test_the_slope_is_that_of_the_logarithms(tmp_path: Path) -> None:
    runs = [sized("a", 500, 0.1), sized("b", 1000, 0.4), sized("c", 2000, 1.6)]
    line = fitted(GROWTH, runs)
    assert line is not None
    assert line.slope == pytest.approx(2.0)
    plot_lines([line], {"KAI": [(500, 141.0), (1000, 305.0)]}, tmp_path / "growth.svg")
    drawn = (tmp_path / "growth.svg").read_text()
    assert all(said in drawn for said in ("slope 2.00", ">KAI</text>", "KAI: 141 s on 500 nodes, 305 s on 1,000"))
    assert "KAI,500,141.0" in (tmp_path / "growth.csv").read_text()
    plot_lines([line], {"KAI": [(500, 141.0), (1000, 305.0)]}, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_bytes() == (tmp_path / "growth.svg").read_bytes()


def test_one_size_has_no_slope(tmp_path: Path) -> None:
    assert fitted(GROWTH, [sized("a", 500, 0.1), changed(sized("b", 1000, 0.1), model="other")]) is None
    with pytest.raises(InputError, match="no size was measured"):
        plot_lines([], {}, tmp_path / "nothing.svg")


# -- stored runs -------------------------------------------------------------------------------------------------------


def test_growth_through_links_is_that_of_the_pairs() -> None:
    """The machine may be twice as slow for one pair as for another."""
    pairs = ((1.0, 1.1), (2.0, 2.1), (1.0, 1.2), (4.0, 4.4), (1.0, 1.1))
    assert figure_of("link-growth", [changed(RUN, pairs=pairs)]) == pytest.approx(0.1)
    assert figure_of("link-growth", [RUN]) is None
    assert link_spreads([RUN]) == []
    assert link_spreads([changed(RUN, pairs=pairs)]) == ["small +7.5% to +15.0%"]


def test_a_stored_run_comes_back(tmp_path: Path) -> None:
    improvements = [Improvement(0.1, "moved-pods", 2.0, 1.0, "core")]
    run = changed(RUN, stages=(stage("moved-pods", 2, 1),), improvements=improvements, started_at="2020-02-02T10:00:00")
    stored = stored_of([run, changed(RUN, seed=2, status="failed", error="it fell over")])
    assert (stored.date, len(stored.runs), len(stored.failed)) == ("2020-02-02", 1, 1)
    save_runs(stored, tmp_path / "runs")
    assert read_stored(tmp_path / "runs") == stored


def test_stored_runs_have_the_tables_of_every_command(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    save_runs(stored_of([changed(RUN, stages=(stage("moved-pods", 2, 1),))]), tmp_path / "runs")
    runs, stages, measures = (
        polars.read_parquet(tmp_path / "runs" / f"{name}.parquet") for name in ("runs", "stages", "measures")
    )
    assert (runs["command"].item(), runs["instance"].item(), runs["solve_s"].item()) == ("bench", "small", 0.2)
    assert stages.select("name", "value", "bound").rows() == [("moved-pods", 2.0, 1.0)]
    assert ("placed_gangs", 3.0) in measures.select("name", "value").rows()


def test_runs_of_an_earlier_call_are_replaced_and_other_things_are_not(tmp_path: Path) -> None:
    failed = replace(changed(RUN, status="failed", error="it fell over").outcome, replay="kai-solver solve BUNDLE")
    save_runs(stored_of([Run(replace(failed, bundle=b"zip"))]), tmp_path / "runs")
    [kept] = (tmp_path / "runs" / "failed").iterdir()
    assert (kept / "bundle.zip").read_bytes() == b"zip"
    assert (kept / "replay.txt").read_text() == f"kai-solver solve {kept / 'bundle.zip'}\n"
    save_runs(stored_of([RUN]), tmp_path / "runs")
    assert not kept.exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("kept")
    with pytest.raises(InputError, match="something else than runs of bench"):
        save_runs(stored_of([RUN]), tmp_path / "other")


@pytest.mark.parametrize(
    ("content", "said"), [("{\n", "line 1: is no run"), ("", "has no stored runs"), (None, "has no")]
)
def test_what_is_no_stored_run_is_an_error(tmp_path: Path, content: str | None, said: str) -> None:
    if content is not None:
        (tmp_path / "runs").mkdir()
        (tmp_path / "runs" / "runs.jsonl").write_text(content)
    with pytest.raises(InputError, match=said):
        read_stored(tmp_path / "runs")


ADMISSION = stage("pending-gangs", 2, 1)


@pytest.mark.parametrize(
    ("now", "kind", "is_worse"),
    [
        ({"decide_s": 0.4}, "time", True),
        ({"decide_s": 0.05}, "time", False),
        ({"memory_mib": 200.0}, "memory", True),
        ({"proven": 2}, "proofs", False),
        ({"placed": 2, "pending": 3, "proven": 2}, "plan", True),
        ({"stages": (ADMISSION, stage("moved-pods", 5, 5))}, "plan", True),
    ],
)
def test_what_differs_by_more_than_noise_is_said(now: dict[str, Any], kind: str, is_worse: bool) -> None:
    before = changed(RUN, stages=(ADMISSION, stage("moved-pods", 4, 4)))
    found = changes([changed(before, **now)], [before])
    assert [(change.kind, change.is_worse) for change in found] == [(kind, is_worse)]


def test_noise_is_not_said() -> None:
    assert changes([changed(RUN, decide_s=0.22, memory_mib=52.0)], [RUN]) == ()


def test_a_slower_machine_is_no_change() -> None:
    assert changes([changed(RUN, decide_s=0.4, calibration_s=2.0)], [RUN]) == ()
    [change] = changes([changed(RUN, calibration_s=2.0)], [RUN])
    assert not change.is_worse, "as fast as before on a machine half as fast"


def test_only_what_both_measured_is_compared() -> None:
    assert changes([changed(RUN, decide_s=9.0, budget_s=9.0)], [RUN]) == ()


# -- what the solver adds ----------------------------------------------------------------------------------------------


def test_what_is_added_is_said_by_stage() -> None:
    floor = changed(RUN, model="greedy-only", stages=(ADMISSION, stage("moved-pods", 9), stage("nodes-opened", 2)))
    ours = changed(
        RUN,
        proven=2,
        stages=(ADMISSION, stage("moved-pods", 5, 5), stage("nodes-opened", 2)),
        decide_s=0.5,
        improvements=[
            Improvement(0.3, "moved-pods", 5.0, None, ""),
            Improvement(0.4, "moved-pods", 5.0, 5.0, ""),
        ],
    )
    [row] = added([floor, ours], "default", "greedy-only")
    assert row.admission == "+1 proofs"
    assert row.disruption == "moved pods 9 to 5 (proven)"
    assert row.preference == "nothing"
    assert row.when == "best 0.30 s, proven 0.40 s"


def test_costs_of_other_gangs_are_not_compared() -> None:
    floor = changed(RUN, model="greedy-only", stages=(ADMISSION, stage("moved-pods", 9)))
    [row] = added(
        [floor, changed(RUN, placed=4, stages=(ADMISSION, stage("moved-pods", 12, 9)))],
        RUN.record.model,
        floor.record.model,
    )
    assert row.admission == "+1 gangs"
    assert row.disruption == "other gangs, other costs (gap 33.3%)"


def test_nothing_is_called_nothing() -> None:
    [row] = added([changed(RUN, model="greedy-only"), RUN], "default", "greedy-only")
    assert (row.admission, row.disruption, row.preference, row.when) == ("nothing", "nothing", "nothing", "")


# -- measuring ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_generated_instance_is_measured_with_its_phases(tmp_path: Path) -> None:
    checks = [{"figure": "steady", "limit": 100}]
    [job] = jobs_of(read_set(write_set(tmp_path, checks=checks)))
    runs = measure_here(job)
    assert [(run.record.instance, run.record.seed, run.record.nodes, run.record.pending) for run in runs] == [
        ("small", 1, 8, 0),
        ("small", 2, 8, 0),
    ]
    for run in runs:
        assert all(run.phase_s(phase) is not None for phase in ("build", "greedy", "check", "decide"))
        assert (run.measure(PENDING_GPUS), run.measure(UNKNOWN_GPUS)) == (16, 0)
        assert all((run.measure(name) or 0) > 0 for name in (CALIBRATION, STEADY, FIRST_CYCLE))


@pytest.mark.slow
def test_questions_leave_their_phases_in_the_plan() -> None:
    from kai_solver.instances_io.bench_schema import ReclaimDoc
    from kai_solver.lab.bench import generated

    with patient_engine("default") as engine:
        assert engine.wait()
        plan = engine.cycle(generated(ReclaimDoc(kind="reclaim", nodes=20, gangs=4)), budget_s=PATIENT_S)
    phases = plan.timing_s
    assert {"presolve", "first", "best", "proof"} <= set(phases)
    assert 0 < phases["presolve"] <= phases["first"] <= phases["best"]


@pytest.mark.slow
def test_the_clock_of_cpu_time_stands_still_in_sleep_and_counts_children() -> None:
    clock = CpuClock()
    start = clock()
    time.sleep(0.2)
    asleep = clock() - start
    assert asleep < 0.1
    work = "import time\nwhile time.process_time() < 0.4: pass"
    with subprocess.Popen([sys.executable, "-c", work]) as child:
        seen = [clock()]
        while child.poll() is None:
            sum(range(200_000))
            seen.append(clock())
    assert seen == sorted(seen)
    assert clock() >= seen[-1], "a child that has ended is still counted"
    assert clock._of_children[child.pid] > 0


@pytest.mark.slow
def test_calibration_is_a_time() -> None:
    assert 0 < calibration_s() < 60


# -- the next moment ---------------------------------------------------------------------------------------------------


def test_a_plan_takes_effect_in_the_next_moment() -> None:
    from kai_solver.instances_io.bench_schema import ReclaimDoc
    from kai_solver.lab.bench import generated

    snapshot = generated(ReclaimDoc(kind="reclaim", nodes=20, gangs=4))
    taker = next(gang for gang in snapshot.gangs if gang.name == "b0000")
    leaver, mover = snapshot.gangs[0], snapshot.gangs[1]
    plan = Plan(
        binds=tuple(Bind(pod.key, taker.key, f"node{i:04}") for i, pod in enumerate(taker.pods)),
        moves=(Move(mover.pods[0].key, mover.key, mover.pods[0].node, "node0019"),),
        evictions=(Eviction(leaver.pods[0].key, leaver.key, leaver.pods[0].node, "reclaim"),),
    )
    then = next_moment(snapshot, plan, seed=1)
    gangs = {gang.name: gang for gang in then.gangs}
    assert [pod.node for pod in gangs["b0000"].pods] == [f"node{i:04}" for i in range(4)]
    assert gangs["b0000"].last_start_s == then.now_s
    assert gangs[leaver.name].pods[0].status is PodStatus.PENDING
    assert gangs[leaver.name].last_eviction_s == then.now_s
    finished = {gang.name for gang in snapshot.gangs} - gangs.keys()
    arrived = gangs.keys() - {gang.name for gang in snapshot.gangs}
    assert (len(finished), len(arrived)) == (1, 1)
    assert mover.name in finished or gangs[mover.name].pods[0].node == "node0019"
    assert all(gpus_of(gangs[name]) in (1, 32) for name in arrived)
