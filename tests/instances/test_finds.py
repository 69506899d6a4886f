"""Instances that showed a fault once: a crash, a plan that the checker refused, a gang that was lost."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.native_schema import ExpectDoc

FINDS = sorted((Path(__file__).parent / "finds").glob("*.json"))


@pytest.mark.parametrize("model", ["default", "deterministic", "greedy-only"])
@pytest.mark.parametrize("path", FINDS, ids=lambda path: path.stem)
def test_is_decided_rightly_at_once(
    path: Path,
    model: str,
    read: Callable[[Path], Loaded],
    plan_of: Callable[..., Plan],
    missed: Callable[[ExpectDoc, Plan], list[str]],
) -> None:
    loaded, plan = read(path), plan_of(path, model)
    assert loaded.expect is not None
    assert missed(loaded.expect, plan) == []
    assert not [note for note in plan.notes if "refused" in note]
    assert check_plan(loaded.snapshot, plan) == ()
