"""PriorityClasses as Kubernetes objects, with the priority from which work is non-preemptible set otherwise."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot
from kai_solver.instances_io.importers import Loaded

CLASSES = {"emergency": 1000, "production": 500, "development": 100, "background": 10}


@pytest.fixture
def folder(instances: Path, tmp_path: Path) -> Path:
    """A copy of the objects that a test may change."""
    return shutil.copytree(instances / "kubernetes" / "priority-classes", tmp_path / "objects")


def with_threshold(folder: Path, value: int) -> Path:
    file = folder / "cluster.yaml"
    text = file.read_text()
    assert '"100"' in text
    file.write_text(text.replace('"100"', f'"{value}"'))
    return folder


def by_class(snapshot: Snapshot) -> dict[str, tuple[int, bool]]:
    return {gang.pods[0].name.partition("-")[0]: (gang.priority, gang.preemptible) for gang in snapshot.gangs}


@pytest.mark.parametrize("threshold", [100, 501, 10, 1001])
def test_what_is_preemptible_is_a_setting(folder: Path, read: Callable[[Path], Loaded], threshold: int) -> None:
    snapshot = read(with_threshold(folder, threshold)).snapshot
    assert snapshot.policy.non_preemptible_priority == threshold
    assert by_class(snapshot) == {name: (value, value < threshold) for name, value in CLASSES.items()}


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
@pytest.mark.parametrize(("threshold", "evicted"), [(100, 3), (1001, 3), (10, 0)])
def test_background_yields_to_every_class_where_it_is_preemptible(
    folder: Path, read: Callable[[Path], Loaded], plan_of: Callable[..., Plan], threshold: int, evicted: int, model: str
) -> None:
    with_threshold(folder, threshold)
    plan, snapshot = plan_of(folder, model), read(folder).snapshot
    assert len(plan.evictions) == len(plan.binds) == evicted
    assert {eviction.pod.rpartition("-")[0] for eviction in plan.evictions} <= {"team/background"}
    assert check_plan(snapshot, plan) == ()
