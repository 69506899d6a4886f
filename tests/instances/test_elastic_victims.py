"""Which pods of an elastic gang yield: its minimum stays or nothing does, and any pod may be of the minimum."""

from typing import Any

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model


def cluster(min_member: int, running: dict[str, int], wanted: int) -> Snapshot:
    """An elastic gang of 2-GPU pods where ``running`` says, and one that asks for the ``wanted`` H100 nodes."""
    document: dict[str, Any] = {
        "format": "kai-solver/v1",
        "nodes": [
            {"name": "wanted-{i}", "count": wanted, "gpus": 2, "labels": {"gpu": "h100"}},
            {"name": "other-{i}", "count": len(running) - wanted, "gpus": 2},
        ],
        "queues": [{"name": "serving", "quota": 0}, {"name": "research", "quota": 2 * wanted}],
        "policy": {"consolidatingReclaim": False},
        "gangs": [
            {
                "name": "elastic",
                "queue": "serving",
                "minMember": min_member,
                "pods": [{"replicas": len(running), "gpus": 2, "running": running}],
            },
            {
                "name": "training",
                "queue": "research",
                "pods": [{"replicas": wanted, "gpus": 2, "nodeSelector": {"gpu": "h100"}}],
            },
        ],
    }
    return snapshot_from_native(document)


def solve(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, load_model("deterministic"))
    assert check_plan(snapshot, plan) == ()
    assert plan.notes == ()
    assert [gang for gang, _ in plan.admitted] == ["default/training"]
    return plan


def evicted(plan: Plan) -> set[str]:
    return {eviction.node for eviction in plan.evictions}


def test_of_a_minimum_of_one_whatever_stays_holds_it() -> None:
    """The first pod sits on the wanted node: it goes alone, the other one is the minimum from now on."""
    assert evicted(solve(cluster(1, {"wanted-0": 1, "other-0": 1}, wanted=1))) == {"wanted-0"}


def test_too_few_above_the_minimum_leave_with_it() -> None:
    """Two of three are needed and both are in the way: one alone may not stay."""
    assert len(evicted(solve(cluster(2, {"wanted-0": 1, "wanted-1": 1, "other-0": 1}, wanted=2)))) == 3


def test_enough_above_the_minimum_go_on_without_it() -> None:
    """Two of four are needed; the two in the way go, and the two others are a minimum."""
    running = {"wanted-0": 1, "wanted-1": 1, "other-0": 1, "other-1": 1}
    assert evicted(solve(cluster(2, running, wanted=2))) == {"wanted-0", "wanted-1"}


def test_any_pod_above_the_minimum_may_go() -> None:
    """The last pod is not in the way and stays, the one before it goes."""
    running = {"other-0": 1, "wanted-0": 1, "other-1": 1}
    assert evicted(solve(cluster(1, running, wanted=1))) == {"wanted-0"}
