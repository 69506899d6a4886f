"""What is told while a plan is made: no bound that the plan's own stages do not claim."""

from pathlib import Path

import pytest

from kai_solver.engine import Progress
from kai_solver.instances_io import load_instance
from tests.engine.conftest import Engines

INSTANCES = Path(__file__).parents[2] / "instances"


@pytest.mark.parametrize("name", ["monday-morning.yaml", "kai-snapshots/before-reclaim.zip"])
def test_no_bound_is_told_that_the_plan_does_not_claim(engines: Engines, name: str) -> None:
    told: list[Progress] = []
    plan = engines["default"].cycle(load_instance(INSTANCES / name).snapshot, budget_s=30.0, progress=told.append)
    claimed = {stage.name: stage.bound for stage in plan.stages}
    staged = [event for event in told if event.incumbent is not None]
    assert {"evicted-pods", "moved-pods"} <= {event.phase for event in staged}
    for event in staged:
        if event.bound is not None:
            assert event.bound <= claimed.get(event.phase, 0.0), event
