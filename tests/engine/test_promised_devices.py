"""A pod that moves onto a device of a pod that leaves: nothing else is promised that device."""

from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Gang, PodStatus, Snapshot
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from tests.support.builders import a_cluster, a_gang, a_node, a_pod


def a_moment(*waiting: Gang) -> Snapshot:
    """``mover`` leaves m for the device 3 of n, which ``leaver`` still holds."""
    stays = a_gang("stays", a_pod("stays-0", 3, "n", devices=(0, 1, 2)), preemptible=False)
    leaver = a_gang("leaver", a_pod("leaver-0", on="n", devices=(3,), status=PodStatus.RELEASING))
    mover = a_pod("mover-0", on="m", devices=(0,), status=PodStatus.RELEASING, nominated_node="n")
    moves = a_gang("mover", replace(mover, is_replaced=True))
    return a_cluster([a_node("n", 4), a_node("m", 1)], [stays, leaver, moves, *waiting])


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
def test_a_promised_device_is_not_promised_again(model: str) -> None:
    snapshot = a_moment(a_gang("g", gpus=1), a_gang("h", gpus=1))
    plan = cycle(snapshot, load_model(model))
    assert plan.notes == ()
    assert check_plan(snapshot, plan) == ()
    assert [(bind.gang, bind.node) for bind in plan.binds] == [("ns/g", "m")], "what the mover leaves; n is full"
