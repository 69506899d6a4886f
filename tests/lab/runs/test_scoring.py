"""The figure of a run, by worked examples."""

from dataclasses import replace

import pytest

from kai_solver.instances_io.bench_schema import QuietDoc
from kai_solver.lab.runs import Generated, Improvement, RunRecord, StageResult, task_of
from kai_solver.lab.runs.running import blank
from kai_solver.lab.runs.scoring import best_values, score, with_integrals
from kai_solver.lab.runs.stage_order import stage_order
from kai_solver.modelfiles import load_model


def a_run(stages: dict[str, float], *, first_s: float | None = 0.5, solve_s: float = 1.5) -> RunRecord:
    task = task_of("tune", Generated("q", QuietDoc(kind="quiet")), load_model(), 1, 2.0)
    results = tuple(StageResult(name, value, None, None, False) for name, value in stages.items())
    return replace(blank(task, "ok"), stages=results, first_plan_s=first_s, solve_s=solve_s)


def heard(*moments: tuple[float, str, float]) -> tuple[Improvement, ...]:
    return tuple(Improvement(at_s, stage, value, None, "") for at_s, stage, value in moments)


def test_one_stage_that_gets_better() -> None:
    """No plan for 0.5 s of 2; then 20 against 10, a gap of 1/2, for 0.5 s; then 10: (0.5 + 0.5 / 2) / 2."""
    run = a_run({"pending-gangs": 10})
    moments = heard((0.5, "pending-gangs", 20), (1.0, "pending-gangs", 10))
    assert score(run, moments, {"pending-gangs": 10}) == pytest.approx(0.375)
    assert score(run, moments, {"pending-gangs": 10}, "final-gap") == 0.0


def test_what_is_better_than_known_counts_below_zero() -> None:
    run = a_run({"pending-gangs": 5}, first_s=0.0)
    assert score(run, (), {"pending-gangs": 10}) == pytest.approx(-0.5)


def test_each_stage_weighs_half_as_much_as_the_one_before() -> None:
    run = a_run({"pending-gangs": 1, "gangs-broken": 1, "moved-pods": 4}, first_s=0.0)
    known = {"pending-gangs": 1.0, "gangs-broken": 1.0, "moved-pods": 2.0}
    assert score(run, (), known) == pytest.approx(1 / 7 * 0.5)
    assert score(run, (), known | {"pending-gangs": 0.0, "moved-pods": 4.0}) == pytest.approx(4 / 7)


def test_a_stage_counts_as_what_is_first_heard_of_it() -> None:
    run = a_run({"moved-pods": 2}, first_s=0.0)
    moments = heard((1.0, "moved-pods", 8), (1.5, "moved-pods", 2))
    assert score(run, moments, {"moved-pods": 2}) == pytest.approx(1.5 * 0.75 / 2)


def test_a_stage_that_a_plan_does_not_have_is_zero() -> None:
    run = a_run({"pending-gangs": 0, "gangs-broken": 0}, first_s=0.0)
    known = {"pending-gangs": 0.0, "evicted-work/50": 8.0, "gangs-broken": 0.0}
    assert score(run, (), known, "final-gap") == pytest.approx(-2 / 7)


def test_what_comes_after_the_budget_does_not_count() -> None:
    late = a_run({"pending-gangs": 1}, first_s=2.5, solve_s=2.6)
    assert score(late, (), {"pending-gangs": 1}) == 1.0
    run = a_run({"pending-gangs": 1}, first_s=0.0, solve_s=2.6)
    moments = heard((0.0, "pending-gangs", 2), (2.5, "pending-gangs", 1))
    assert score(run, moments, {"pending-gangs": 1}) == pytest.approx(0.5)


@pytest.mark.parametrize("objective", ["primal-integral", "final-gap"])
def test_a_run_that_failed_has_no_plan(objective: str) -> None:
    failed = replace(a_run({"pending-gangs": 0}), status="out_of_time")
    assert score(failed, (), {"pending-gangs": 0}, objective) == 1.0  # type: ignore[arg-type]


def test_the_best_plan_is_the_first_in_the_order_of_the_stages() -> None:
    few = a_run({"pending-gangs": 1, "evicted-work/50": 9, "moved-pods": 9})
    many = a_run({"pending-gangs": 2, "moved-pods": 0})
    failed = replace(a_run({"pending-gangs": 0}), status="failed")
    assert best_values([many, few, failed])["pending-gangs"] == 1
    assert best_values([failed]) == {}


def test_higher_priorities_come_first() -> None:
    names = stage_order({"pending-gangs": 0, "evicted-work/50": 1, "moved-pods": 1}, {"evicted-work/100": 1})
    assert names == ["pending-gangs", "evicted-work/100", "evicted-work/50", "moved-pods"]


def test_each_run_of_an_instance_has_its_integral_against_the_best_of_them() -> None:
    good = replace(a_run({"pending-gangs": 1}, first_s=0.5), run="good")
    bad = replace(a_run({"pending-gangs": 2}, first_s=1.0), run="bad")
    failed = replace(a_run({"pending-gangs": 0}), run="failed", status="out_of_time")
    other = replace(a_run({"pending-gangs": 4}, first_s=0.0), run="other", instance="another")
    found = with_integrals([good, bad, failed, other], {"good": heard((0.5, "pending-gangs", 1))})
    assert [record.primal_integral for record in found] == [
        pytest.approx(0.25),  # a quarter of the budget without a plan
        pytest.approx(0.5 + 0.5 * 0.5),  # half of it without one, then a gap of (2 - 1) / 2
        1.0,
        0.0,
    ]


def test_replays_and_instances_that_none_solved_have_no_integral() -> None:
    replayed = replace(a_run({"mean-wait": 3.0}, first_s=None), run="replayed")
    failed = replace(a_run({}), run="failed", status="failed", instance="another")
    assert [record.primal_integral for record in with_integrals([replayed, failed], {})] == [None, None]
