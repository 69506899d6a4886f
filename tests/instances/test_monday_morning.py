"""The cluster that `make run` begins with: CP-SAT runs one gang more than greedy, for less, and proves it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.explaining import Difference, differences, plan_figures
from kai_solver.instances_io.importers import Loaded
from kai_solver.instances_io.native_schema import ExpectDoc

MONDAY = Path(__file__).parents[2] / "instances" / "monday-morning.yaml"


@pytest.fixture(scope="module")
def plans(plan_of: Callable[..., Plan]) -> tuple[Plan, Plan]:
    """Of greedy alone, and of the default model."""
    return plan_of(MONDAY, "greedy-only"), plan_of(MONDAY, "default")


def test_the_plan_is_as_expected(
    plans: tuple[Plan, Plan], read: Callable[[Path], Loaded], missed: Callable[[ExpectDoc, Plan], list[str]]
) -> None:
    loaded, (_, best) = read(MONDAY), plans
    assert loaded.expect is not None
    assert missed(loaded.expect, best) == []
    assert best.source == "cp-sat"
    assert [check_plan(loaded.snapshot, plan) for plan in plans] == [(), ()]


def test_greedy_does_less_for_more(plans: tuple[Plan, Plan]) -> None:
    greedy, best = map(plan_figures, plans)
    assert (greedy.admitted, best.admitted) == (2, 3)
    assert (greedy.evicted_pods, best.evicted_pods) == (6, 4)
    assert (greedy.evicted_gpu_hours, best.evicted_gpu_hours) == (96, 64)


def test_less_disruption_is_proven_to_be_impossible(plans: tuple[Plan, Plan]) -> None:
    proven = {stage.name for stage in plans[1].stages if stage.optimal}
    assert {"pending-gangs", "evicted-work/50", "gangs-broken", "evicted-pods"} <= proven


def test_the_gangs_that_fare_differently_are_named(plans: tuple[Plan, Plan], read: Callable[[Path], Loaded]) -> None:
    small = ("default/label", "default/segment", "default/depth", "default/track")
    assert differences(read(MONDAY).snapshot, plans) == (
        Difference(("waits", "starts"), ("default/detector",)),
        Difference(("stays", "moves"), small),
        Difference(("is evicted", "stays"), ("default/ablation",)),
    )
