"""Alike shares on several devices of one node: which of them leaves decides which device gets free."""

from typing import Any

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model


def node_of(*pods: tuple[str, float, int], pending: dict[str, Any]) -> Snapshot:
    """One node with 3 GPUs. ``pods``: (kind, GPUs, device); ``fixed`` ones never yield, others may for ``pending``."""
    gangs = [
        {
            "name": f"{kind}-{number}",
            "queue": "research",
            "priority": 100 if kind == "fixed" else 40,
            "pods": [{"gpus": gpus, "node": "node", "devices": [device], "status": "Running"}],
        }
        for number, (kind, gpus, device) in enumerate(pods)
    ]
    urgent = {"name": "urgent", "queue": "research", "priority": 60, "pods": [pending]}
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"name": "node", "gpus": 3}],
            "queues": [{"name": "research", "quota": 3}],
            "gangs": [*gangs, urgent],
        }
    )


def solve(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, load_model("deterministic"))
    assert check_plan(snapshot, plan) == ()
    assert plan.notes == ()
    return plan


def test_shares_beside_others_stay_where_a_whole_gpu_lands() -> None:
    """A whole GPU takes the only device that can get free; shares on devices that cannot are in nobody's way."""
    pods = (("whole", 1, 0), ("fixed", 0.6, 1), ("alike", 0.2, 1), ("fixed", 0.2, 2), ("alike", 0.2, 2))
    plan = solve(node_of(*pods, pending={"gpus": 1}))
    assert [eviction.gang for eviction in plan.evictions] == ["default/whole-0"]
    assert plan.moves == ()
    assert all(stage.optimal for stage in plan.stages)


def test_the_share_that_leaves_is_the_one_on_the_device_needed() -> None:
    """Of two alike shares only one has its device to itself."""
    pods = (("fixed", 1, 0), ("fixed", 0.5, 1), ("alike", 0.5, 1), ("alike", 0.5, 2))
    plan = solve(node_of(*pods, pending={"gpus": 1}))
    assert [eviction.gang for eviction in plan.evictions] == ["default/alike-3"]
    assert plan.moves == ()


def test_two_pods_with_shares_of_two_devices_meet_on_the_same_two() -> None:
    """Each pod takes 0.5 of two devices; the third device is taken, so that both pods are on the same two."""
    pending = {"replicas": 2, "gpus": 0.5, "gpuDevices": 2}
    plan = solve(node_of(("fixed", 1, 0), ("batch", 1, 1), pending=pending))
    assert [gang for gang, _ in plan.admitted] == ["default/urgent"]
    assert len(plan.evictions) == 1
    assert all(stage.optimal for stage in plan.stages)
