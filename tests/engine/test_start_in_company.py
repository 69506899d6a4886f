"""Pods that require each other start in one cycle, in whichever order they come; with others they wait for room."""

import pytest

from kai_solver.domain import Constraints, Plan, PodAffinityTerm, PodStatus, Requirement, Snapshot
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from tests.engine.conftest import START_S
from tests.support.builders import a_cluster, a_gang, a_node, a_pod

NEAR = Constraints(affinity=(PodAffinityTerm((Requirement("app", "In", ("web",)),), "rack"),))
WEB = {"constraints": NEAR, "labels": {"app": "web"}}


def web(pods: int, *, need: int, leaving: bool = False) -> Snapshot:
    """A pod of a web app fills its rack, so that no other is the first of its kind; two racks have two GPUs each.

    ``leaving``: a pod without a label still leaves one of the four.
    """
    nodes = [a_node("a", 1, rack="0"), *(a_node(name, 1, rack=rack) for name, rack in zip("bcde", "1122", strict=True))]
    running = [a_gang("runs", on="a", each={"labels": {"app": "web"}})]
    if leaving:
        running.append(a_gang("leaves", a_pod("leaves-0", on="e", status=PodStatus.RELEASING, devices=(0,))))
    return a_cluster(nodes, [*running, a_gang("web", pods=pods, need=need, each=WEB)])


def planned(snapshot: Snapshot) -> Plan:
    with Engine(load_model("default")) as engine:
        engine.wait(START_S)
        return engine.cycle(snapshot, budget_s=20.0)


@pytest.mark.parametrize("need", [2, 4])
def test_two_racks_of_pods_that_require_each_other_start_at_once(need: int) -> None:
    plan = planned(web(4, need=need))
    assert len(plan.binds) == 4
    assert not any(bind.nominated for bind in plan.binds)


def test_a_pod_alone_in_its_rack_does_not_run() -> None:
    """Of five pods that must run together, four have company."""
    assert not planned(web(5, need=5)).binds


def test_pods_wait_for_one_that_has_to_wait_for_room() -> None:
    plan = planned(web(4, need=4, leaving=True))
    assert len(plan.binds) == 4
    assert all(bind.nominated for bind in plan.binds)
