"""Where CP-SAT earns its place: situations of cluster users in which the greedy alone does worse."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.native_schema import ExpectDoc

SOLVER = sorted((Path(__file__).parents[2] / "instances" / "solver").glob("*.yaml"))
DISRUPTION = ("pending-gangs", "evicted-work", "gangs-broken", "evicted-pods", "moved-pods")

each = pytest.mark.parametrize("path", SOLVER, ids=lambda path: path.stem)


def test_there_are_at_least_twenty() -> None:
    assert len(SOLVER) >= 20


@each
@pytest.mark.parametrize("model", ["deterministic", "default"])
def test_the_solver_reaches_what_is_expected(
    path: Path,
    model: str,
    read: Callable[[Path], Loaded],
    plan_of: Callable[..., Plan],
    missed: Callable[[ExpectDoc, Plan], list[str]],
) -> None:
    loaded, plan = read(path), plan_of(path, model)
    assert loaded.expect is not None
    assert missed(loaded.expect, plan) == []
    assert plan.source == "cp-sat"
    assert plan.notes == ()
    assert check_plan(loaded.snapshot, plan) == ()


UNPROVEN = {
    # The model moves gangs whole; of several pods some may stay where they are, and its count is no bound then.
    "moves-two-gangs-into-two-racks": {"moved-pods"},
    # The core of an elastic gang is one choice of its pods among several, so others could go instead.
    "victims-second-replica-of-a-service": {"evicted-work/50", "evicted-pods"},
}
"""Stages that are not claimed to be the least, and why."""


@each
def test_the_least_disruption_is_proven(path: Path, plan_of: Callable[..., Plan]) -> None:
    stages = plan_of(path, "deterministic").stages
    open_ones = {s.name for s in stages if s.name.partition("/")[0] in DISRUPTION and not s.optimal}
    assert open_ones == UNPROVEN.get(path.stem, set())


@each
def test_without_cp_sat_it_gets_worse(
    path: Path, read: Callable[[Path], Loaded], plan_of: Callable[..., Plan], is_better: Callable[[Plan, Plan], bool]
) -> None:
    alone = plan_of(path, "greedy-only")
    assert check_plan(read(path).snapshot, alone) == ()
    assert alone.source != "cp-sat"
    assert is_better(plan_of(path, "deterministic"), alone)


@each
def test_the_seed_changes_no_value(path: Path, plan_of: Callable[..., Plan]) -> None:
    first, other = (plan_of(path, "deterministic", seed) for seed in (0, 7))
    assert [gang for gang, _ in first.admitted] == [gang for gang, _ in other.admitted]
    assert [s for s in first.stages if s.name != "nodes-opened"] == [
        s for s in other.stages if s.name != "nodes-opened"
    ]


@each
def test_the_readme_tells_what_happens(
    path: Path, read: Callable[[Path], Loaded], plan_of: Callable[..., Plan]
) -> None:
    alone, solved = (told(plan_of(path, model)) for model in ("greedy-only", "deterministic"))
    row = f"| {path.stem} | {read(path).description} | {alone} | {solved} |"
    assert row in (path.parent / "README.md").read_text().splitlines()


def told(plan: Plan) -> str:
    """What a plan comes to, as the table of the README says it; work lost is in GPU-minutes by priority."""
    counts = ((len(dict(plan.admitted)), "placed"), (len(plan.pending), "pending"), (len(plan.evictions), "evicted"))
    parts = [f"{count} {what}" for count, what in counts if count or what == "placed"]
    lost = [
        f"{stage.value / 60:g} at priority {stage.name.partition('/')[2]}"
        for stage in plan.stages
        if stage.name.startswith("evicted-work/") and stage.value
    ]
    parts += [f"lost {', '.join(lost)}"] if lost else []
    return ", ".join([*parts, f"{len(plan.moves)} moved"] if plan.moves else parts)
