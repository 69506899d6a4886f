"""A quota or limit that running work passes already forbids more of the same, and nothing else."""

from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model


def solve(queue: dict[str, Any], asks: dict[str, Any]) -> Plan:
    """The queue runs a fixed pod with 16 cores and a batch job on the only GPU, which an urgent job asks for."""
    queue = {"name": "research", "quota": {"gpu": 1, "cpu": 32}} | queue
    running = {"node": "node", "status": "Running"}
    snapshot = snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"name": "node", "gpus": 1, "cpu": 64}],
            "queues": [queue],
            "gangs": [
                {"name": "fixed", "queue": "research", "priority": 100, "pods": [{"cpu": 16} | running]},
                {"name": "batch", "queue": "research", "priority": 40, "pods": [{"gpus": 1} | running]},
                {"name": "urgent", "queue": "research", "priority": 60, "pods": [asks]},
            ],
        }
    )
    plan = cycle(snapshot, load_model("deterministic"))
    assert check_plan(snapshot, plan) == ()
    assert plan.notes == ()
    return plan


PASSED = {"quota": {"quota": {"gpu": 1, "cpu": 4}}, "limit": {"limit": {"cpu": 4}}}


@pytest.mark.parametrize("family", PASSED)
def test_what_does_not_add_to_it_is_served_and_proven_best(family: str) -> None:
    plan = solve(PASSED[family], {"gpus": 1})
    assert [gang for gang, _ in plan.admitted] == ["default/urgent"]
    assert len(plan.evictions) == 1
    assert all(stage.optimal for stage in plan.stages)


def test_what_adds_to_a_passed_limit_waits_with_a_proof() -> None:
    plan = solve(PASSED["limit"], {"gpus": 1, "cpu": 1})
    assert plan.admitted == ()
    assert [pending.proof.state for pending in plan.pending] == ["proven"]


def test_a_passed_quota_does_not_concern_preemptible_work() -> None:
    plan = solve(PASSED["quota"], {"gpus": 1, "cpu": 1})
    assert [gang for gang, _ in plan.admitted] == ["default/urgent"]
