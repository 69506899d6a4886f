"""Pods that require each other start in one cycle, in whichever order they come; with others they wait for room."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Constraints, Plan, PodAffinityTerm, PodStatus, Requirement, Snapshot
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from tests.engine.conftest import START_S
from tests.support.builders import a_cluster, a_gang, a_node, a_pod


def near(app: str) -> Constraints:
    return Constraints(affinity=(PodAffinityTerm((Requirement("app", "In", (app,)),), "rack"),))


NEAR = near("web")
WEB: dict[str, Any] = {"constraints": NEAR, "labels": {"app": "web"}}
APPS = ("web", "db", "cache")


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


def test_nothing_starts_beside_pods_that_wait_after_all() -> None:
    """Of the web pods, one waits for a share of a GPU that is still in use. So all do, and the client with them."""
    nodes = [a_node("a", 1, cpu=100, rack="0"), a_node("b", 2, cpu=400, rack="1"), a_node("c", 0, rack="1")]
    shares = (("s", 1, 600), ("s2", 1, 400), ("w", 1, 1000), ("x", 0, 1000))
    pods = [a_pod(name, gpus, milli=milli, cpu=50, order=i, **WEB) for i, (name, gpus, milli) in enumerate(shares)]
    gangs = [
        a_gang("runs", on="a", each={"labels": {"app": "web"}}),
        a_gang("leaves", a_pod("l", 1, on="b", milli=500, status=PodStatus.RELEASING, devices=(0,))),
        a_gang("web", *pods, need=4, priority=60),
        a_gang("client", a_pod("cl", 0, cpu=1000, constraints=NEAR, labels={"app": "client"}), priority=50),
    ]
    plan = planned(a_cluster(nodes, gangs))
    assert len(plan.binds) == 5
    assert all(bind.nominated for bind in plan.binds)


def drawn(seed: int) -> Snapshot:
    """A few nodes in two racks, with pods that run, leave or wait, most of which require others in their rack."""
    draw = Random(seed)
    nodes = [a_node(f"n{i}", draw.randint(1, 3), rack=str(draw.randrange(2))) for i in range(draw.randint(3, 5))]
    gangs = []
    for number, node in enumerate(draw.sample(nodes, draw.randint(1, 3))):
        status = draw.choice((PodStatus.RUNNING, PodStatus.RELEASING))
        pod = a_pod(f"r{number}-0", on=node.name, status=status, devices=(0,), labels={"app": draw.choice(APPS)})
        gangs.append(a_gang(f"r{number}", pod, priority=draw.choice((50, 60))))
    for number in range(draw.randint(1, 4)):
        pods = []
        for at in range(draw.randint(1, 4)):
            app = draw.choice(APPS)
            said = near(draw.choice((app, draw.choice(APPS)))) if draw.random() < 0.75 else Constraints()
            pods.append(a_pod(f"g{number}-{at}", draw.randint(0, 1), order=at, labels={"app": app}, constraints=said))
        need = draw.randint(1, len(pods))
        gangs.append(a_gang(f"g{number}", *pods, need=need, priority=draw.choice((40, 50, 60))))
    return a_cluster(nodes, gangs)


@pytest.mark.parametrize("name", ["default", "greedy-only"])
def test_the_checker_accepts_what_starts_on_drawn_clusters(name: str) -> None:
    faults: list[str] = []
    with Engine(load_model(name)) as engine:
        engine.wait(START_S)
        for seed in range(80):
            engine.cycle(drawn(seed), budget_s=3.0, on_fault=lambda fault: faults.append(fault.error), memo=None)
    assert not faults


def test_the_checker_refuses_a_start_beside_pods_that_wait() -> None:
    snapshot = web(4, need=2)
    plan = planned(snapshot)
    late = {bind.pod for bind in plan.binds if bind.node in ("b", "c")}
    binds = tuple(replace(bind, nominated=bind.node == "b") for bind in plan.binds if bind.node in ("b", "c"))
    assert len(late) == len(binds) == 2
    found = check_plan(snapshot, replace(plan, binds=binds))
    assert any("do not start with it" in violation.text for violation in found)
