"""What a study says of its models, on runs that are made up."""

from dataclasses import replace
from pathlib import Path

import pytest

from kai_solver.lab.runs import (
    PLAN,
    Comparison,
    InstanceFile,
    RunRecord,
    StageResult,
    comparisons,
    model_figures,
    task_of,
)
from kai_solver.lab.runs.running import blank
from kai_solver.lab.runs.verdicts import how_tested
from kai_solver.modelfiles import load_model

OBJECTIVE = ("pending-gangs", "gangs-broken")


def _run(model: str, instance: str, seed: int, pending: int, stages: dict[str, float] | None = None) -> RunRecord:
    source = InstanceFile(instance, Path(f"/{instance}.yaml"), "abc")
    record = blank(task_of("compare", source, load_model(model), seed), "ok")
    values = stages or {"pending-gangs": pending, "gangs-broken": 0.0}
    found = tuple(StageResult(name, value, None, None, True) for name, value in values.items())
    return replace(record, pending=pending, admitted=10 - pending, stages=found, solve_s=float(seed))


def _by_figure(records: list[RunRecord]) -> dict[str, Comparison]:
    return {one.figure: one for one in comparisons(records, "greedy-only")}


def test_sums_and_medians_of_each_model() -> None:
    runs = [_run("greedy-only", "a", seed, 3) for seed in (1, 2, 6)]
    runs.append(replace(_run("greedy-only", "a", 7, 9), status="out_of_time"))
    [figures] = model_figures(runs)
    assert (figures.runs, figures.failed, figures.pending, figures.admitted) == (4, 1, 9, 21)
    assert (figures.decide_s, figures.proven_stages) == (2.0, 1.0)


def test_with_few_instances_each_seed_is_a_pair() -> None:
    runs = [_run("greedy-only", "a", seed, 3) for seed in range(8)]
    runs += [_run("default", "a", seed, 2) for seed in range(8)]
    found = _by_figure(runs)
    pending = found["gangs pending"]
    assert (pending.value, pending.other, pending.difference.pairs, pending.difference.verdict) == (2, 3, 8, "less")
    assert pending.difference.p == pytest.approx(2 * 2 / 2**8)
    assert found[PLAN].difference.verdict == "less"
    assert found["seconds to decide"].difference.verdict == "no difference"


def test_with_many_instances_the_seeds_of_one_are_one_pair() -> None:
    instances = "abcdef"
    runs = [_run("greedy-only", name, seed, 3) for name in instances for seed in (1, 2, 3)]
    runs += [_run("default", name, seed, seed) for name in instances for seed in (1, 2, 3)]
    pending = _by_figure(runs)["gangs pending"]
    assert (pending.difference.pairs, pending.difference.median) == (6, -1.0)


def test_a_run_that_failed_makes_no_pair() -> None:
    runs = [_run("greedy-only", "a", seed, 3) for seed in range(7)]
    runs += [replace(_run("default", "a", seed, 2), status="failed" if seed == 3 else "ok") for seed in range(7)]
    assert _by_figure(runs)["gangs pending"].difference.pairs == 6


def test_every_figure_of_every_model_makes_p_larger() -> None:
    """Eight pairs of one sign have p 2/256. One model differs in its plan and its pending gangs: two tests."""
    runs = [_run("greedy-only", "a", seed, 3) for seed in range(8)]
    runs += [_run("default", "a", seed, 2) for seed in range(8)]
    one = comparisons(runs, "greedy-only")
    assert {found.difference.p for found in one if found.figure in (PLAN, "gangs pending")} == {4 / 2**8}
    runs += [_run("fast", "a", seed, 2) for seed in range(8)]
    two = comparisons(runs, "greedy-only")
    assert {found.difference.p for found in two if found.figure in (PLAN, "gangs pending")} == {8 / 2**8}
    assert "for 4 tests" in how_tested(two)
    assert {found.is_by_seed for found in two} == {True}


@pytest.mark.parametrize(
    ("stages", "theirs", "is_less"),
    [
        ({"evicted-work/50": 10.0}, {"evicted-work/100": 1.0}, 1),  # work of the higher priority comes first
        ({}, {"evicted-work/50": 1.0}, 1),
        ({"evicted-work/50": 1.0}, {"evicted-work/50": 1.0}, 0),
        ({"moved-pods": 4.0, "moved-work": 9.0}, {"moved-pods": 4.0, "moved-work": 10.0}, 1),
        ({"moved-pods": 4.0}, {"moved-pods": 4.0, "victim-order": 9.0}, 0),  # a stage of the other's model alone
    ],
)
def test_plans_are_compared_by_the_stages_in_their_order(
    stages: dict[str, float], theirs: dict[str, float], is_less: int
) -> None:
    runs = [
        _run("default", "a", 1, 0, {"pending-gangs": 2.0, **stages, "gangs-broken": 1.0}),
        _run("greedy-only", "a", 1, 0, {"pending-gangs": 2.0, **theirs, "gangs-broken": 1.0}),
    ]
    found = _by_figure(runs)
    assert found[PLAN].difference.less == is_less
