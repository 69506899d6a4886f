"""What a newcomer tries first, on a real API server: queues, a pod, a gang, an elastic job, a rack; then fairness."""

from typing import Any

import pytest

from kai_solver.cluster.api import ApiError
from kai_solver.cluster.resources import DISRUPTION_BUDGETS, JOBS, NODES, PODS, QUEUES, TOPOLOGIES
from kai_solver.cluster.rest import connect
from tests.cluster.plane.checker import GANG
from tests.cluster.plane.cluster import SPACE, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for


def queue_of(found: dict[str, Any]) -> str:
    return str(found["metadata"]["labels"].get("kai.scheduler/queue"))


def test_a_plain_pod_runs(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queues(research=8)
    cluster.controller()
    cluster.pod("one", "research")
    cluster.wait_bound(1)
    wait_for("it runs", lambda: cluster.bound("one")[0]["status"]["phase"] == "Running")


def test_a_gang_of_eight_takes_two_nodes_or_waits(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1, gpus=4)
    cluster.queues(research=8)
    cluster.controller()
    cluster.job("gang", "research", 8)
    assert cluster.stays_pending("gang", 8)
    cluster.node("second", 4)
    cluster.wait_bound(8, "gang")
    assert len(cluster.on("node-0")) == len(cluster.on("second")) == 4


def test_an_elastic_job_begins_small_and_grows(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1, gpus=4)
    cluster.queues(research=8)
    cluster.controller()
    cluster.job("elastic", "research", 8, least=2)
    cluster.wait_bound(4, "elastic")
    cluster.node("second", 4)
    cluster.wait_bound(8, "elastic")


def test_a_job_that_needs_one_rack_waits_for_it(make_cluster: Make) -> None:
    cluster = make_cluster()
    level = "topology.example.org/rack"
    topology = {"levels": [{"nodeLabel": level}, {"nodeLabel": "kubernetes.io/hostname"}]}
    cluster.plane.api.create(
        TOPOLOGIES,
        "",
        {"apiVersion": TOPOLOGIES.api_version, "kind": "Topology", "metadata": {"name": "hall"}, "spec": topology},
    )
    for name, rack in (("a0", "a"), ("b0", "b"), ("c0", "c")):
        cluster.node(name, 8, **{level: rack})
    cluster.wait_nodes(3)
    cluster.queues(research=32)
    cluster.controller()
    cluster.job("racked", "research", 2, gpus=8, topology="hall", topology_required_placement=level)
    assert cluster.stays_pending("racked", 2)
    cluster.node("b1", 8, **{level: "b"})
    cluster.wait_bound(2, "racked")
    assert {found["spec"]["nodeName"] for found in cluster.bound()} == {"b0", "b1"}


def test_what_a_queue_lends_it_gets_back(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=lambda found: queue_of(found) == "borrower")
    cluster.nodes(2, gpus=4)
    cluster.queues(borrower=4, lender=4)
    cluster.controller()
    cluster.job("big", "borrower", 8, least=1)
    cluster.wait_bound(8, "big")
    cluster.job("back", "lender", 4)
    cluster.wait_bound(4, "back")
    assert len(cluster.checker.evicted) == 4


def test_a_higher_priority_goes_first(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=lambda found: found["metadata"]["name"].startswith("low"))
    cluster.nodes(1, gpus=2)
    cluster.queues(research=2)
    cluster.controller()
    cluster.job("low", "research", 2, least=1)
    cluster.wait_bound(2, "low")
    cluster.pod("high", "research", priority="build")
    cluster.wait_bound(1, "high")
    assert len(cluster.checker.evicted) == 1


def test_a_disruption_budget_holds(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1, gpus=2)
    cluster.queues(borrower=0, lender=2)
    cluster.controller()
    cluster.job("kept", "borrower", 2)
    cluster.wait_bound(2, "kept")
    budget = {"minAvailable": 2, "selector": {"matchLabels": {GANG: "kept"}}}
    cluster.plane.api.create(DISRUPTION_BUDGETS, SPACE, {"metadata": {"name": "kept"}, "spec": budget})
    wait_for(
        "the budget is counted",
        lambda: "disruptionsAllowed" in cluster.plane.api.get(DISRUPTION_BUDGETS, SPACE, "kept").get("status", {}),
    )
    cluster.pod("waits", "lender")
    assert cluster.stays_pending("waits")
    assert len(cluster.bound("kept")) == 2


def test_a_queue_edited_under_load_lets_more_in(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queue("all", parent="")
    cluster.queue("research", 2, limit=2)
    cluster.controller()
    cluster.pods(6, "research")
    assert cluster.stays_pending("pod", 4)
    cluster.plane.api.patch(QUEUES, "", "research", {"spec": {"resources": {"gpu": {"limit": 5}}}})
    cluster.wait_bound(5)
    assert cluster.stays_pending("pod", 1)


def test_a_cordoned_node_takes_no_pod_and_keeps_those_there(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queues(research=8)
    cluster.controller()
    cluster.pod("before", "research")
    cluster.wait_bound(1)
    cluster.cordon("node-0")
    cluster.pod("after", "research")
    assert cluster.stays_pending("after")
    cluster.cordon("node-0", False)
    cluster.wait_bound(2)


def test_beside_the_default_scheduler_nothing_is_promised_twice(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(4, gpus=4)
    cluster.queues(research=16)
    cluster.controller()
    cluster.plane.scheduler.start()
    try:
        for index in range(8):
            theirs = pod(f"theirs-{index}", "research", scheduler="default-scheduler")
            theirs["spec"]["nodeSelector"] = {"kubernetes.io/hostname": f"node-{index % 2}"}
            cluster.plane.api.create(PODS, SPACE, theirs)
        cluster.wait_bound(8, "theirs")
        cluster.pods(8, "research", "ours")
        cluster.wait_bound(8, "ours")
    finally:
        cluster.plane.scheduler.kill()
    assert len(cluster.on("node-2")) + len(cluster.on("node-3")) == 8


def test_the_running_controller_is_healthy_and_counts(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.nodes(1)
    cluster.queues(research=8)
    replica = cluster.controller()
    cluster.pod("one", "research")
    cluster.wait_bound(1)
    assert replica.answers("/healthz")
    assert replica.answers("/get-snapshot")
    assert replica.component.stop() == 0


def test_its_rights_are_no_wider_than_the_charts(make_cluster: Make) -> None:
    """The tests above run with the chart's rights; a controller that needed more would have been refused there."""
    cluster = make_cluster()
    ours = connect(str(cluster.controller(start=False).component.command[5]))
    for act in (
        lambda: ours.delete(NODES, "", "node-0"),
        lambda: ours.create(JOBS, SPACE, {"metadata": {"name": "no"}}),
        lambda: ours.delete(QUEUES, "", "all"),
    ):
        with pytest.raises(ApiError) as caught:
            act()
        assert caught.value.status == 403
