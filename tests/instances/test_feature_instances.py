"""A feasible and an infeasible instance for every constraint family, under every way to decide."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.native_schema import ExpectDoc

FEATURES = sorted((Path(__file__).parents[2] / "instances" / "features").glob("*.yaml"))


@pytest.mark.parametrize("model", ["deterministic", "greedy-only"])
@pytest.mark.parametrize("path", FEATURES, ids=lambda path: path.stem)
def test_comes_out_as_its_author_expects(
    path: Path,
    model: str,
    read: Callable[[Path], Loaded],
    plan_of: Callable[..., Plan],
    missed: Callable[[ExpectDoc, Plan], list[str]],
) -> None:
    loaded, plan = read(path), plan_of(path, model)
    assert loaded.expect is not None
    # The greedy alone has only its bounds to prove with.
    expect = loaded.expect if model != "greedy-only" else loaded.expect.model_copy(update={"proven": None})
    assert missed(expect, plan) == []
    assert check_plan(loaded.snapshot, plan) == ()
