"""Binds of this cycle that give way to a gang that could take their places in the next."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model

GREEDY = load_model("greedy-only")
HERE, THERE = {"nodeSelector": {"side": "here"}}, {"nodeSelector": {"side": "there"}}


def a_cluster(surplus: int, low: dict[str, Any], high: dict[str, Any]) -> Snapshot:
    """n0 is free, on n1 runs what ``high`` may preempt, n2 gets free; the surplus of ``low`` waits for n2."""
    core = [{"name": f"low-{i}", "gpus": 1, **HERE} for i in (0, 1)]
    more = [{"name": f"low-{i + 2}", "gpus": 1, **THERE} for i in range(surplus)]
    first = [{"name": f"high-{i}", "gpus": 2, **HERE} for i in (0, 1)]
    leaves = {"name": "leaves-0", "gpus": 2, "node": "n2", "status": "Releasing"}
    runs = {"name": "runs-0", "gpus": 2, "node": "n1", "status": "Running"}
    sides = ("here", "here", "there")
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "now": 1000.0,
            "nodes": [{"name": f"n{i}", "gpus": 2, "labels": {"side": side}} for i, side in enumerate(sides)],
            "queues": [{"name": "q", "quota": 6}],
            "gangs": [
                {"name": "leaves", "queue": "q", "pods": [leaves]},
                {"name": "runs", "queue": "q", "priority": 40, "pods": [runs]},
                {"name": "low", "queue": "q", "minMember": 2, "pods": [*core, *more]} | low,
                {"name": "high", "queue": "q", "priority": 60, "minMember": 2, "pods": first} | high,
            ],
        }
    )


def test_surplus_gives_way_with_its_core() -> None:
    """Its core gives way on n0, and alone it would be less than the minimum."""
    for surplus in (0, 1):
        plan = cycle(a_cluster(surplus, {}, {}), GREEDY, budget_s=30.0)
        assert {bind.gang for bind in plan.binds} == {"default/high"}
        assert [*[e.pod for e in plan.evictions], *[m.pod for m in plan.moves]] == ["default/runs-0"]
        assert plan.notes == ()


gangs = st.fixed_dictionaries(
    {},
    optional={"priority": st.sampled_from([30, 50, 70]), "minMember": st.integers(1, 2), "preemptible": st.booleans()},
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(surplus=st.integers(0, 2), low=gangs, high=gangs)
def test_no_plan_is_refused_in_which_binds_give_way(surplus: int, low: dict[str, Any], high: dict[str, Any]) -> None:
    snapshot = a_cluster(surplus, low, high)
    plan = cycle(snapshot, GREEDY, budget_s=30.0)
    assert plan.notes == ()
    assert check_plan(snapshot, plan) == ()
