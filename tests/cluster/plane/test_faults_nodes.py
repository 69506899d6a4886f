"""Nodes and queues that change while gangs are bound, and under load."""

import random
import time
from collections.abc import Callable

import pytest

from kai_solver.cluster.resources import NODES, QUEUES
from tests.cluster.plane.cluster import Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.proxy import Fault

LONG_S = 180.0


def delete(cluster: Cluster, name: str) -> None:
    cluster.plane.api.delete(NODES, "", name)


def lose(cluster: Cluster, name: str) -> None:
    """Its kubelet says nothing good any more."""
    cluster.plane.kubelets.pause()
    condition = {"type": "Ready", "status": "False", "reason": "Test", "message": "lost"}
    body = {"status": {"conditions": [condition]}}
    cluster.plane.api.patch(NODES, "", name, body, kind="strategic", subresource="status")


@pytest.mark.parametrize("happens", [delete, lose], ids=["deleted", "not-ready"])
def test_a_node_goes_while_a_gang_is_bound(make_cluster: Make, happens: Callable[[Cluster, str], None]) -> None:
    """Either its pods find the room that is left elsewhere, or they wait for the node together."""
    cluster = make_cluster(partly_s=60)
    cluster.nodes(5, gpus=1)
    cluster.queues(research=5)
    cluster.controller(proxied=True)
    draw = random.Random(1)
    cluster.proxies[-1].rule = lambda method, path: (
        Fault(wait_s=draw.uniform(0.3, 1.5)) if path.endswith("/binding") else None
    )
    cluster.job("gang", "research", 4)
    try:
        wait_for("its binding began", lambda: len(cluster.bound()) > 0)
        happens(cluster, cluster.bound()[0]["spec"]["nodeName"])
        time.sleep(2)  # longer than a binding takes
        cluster.proxies[-1].heal()
    finally:
        cluster.plane.kubelets.resume()
    wait_for(
        "it runs as a whole",
        lambda: sum(found["status"]["phase"] == "Running" for found in cluster.bound("gang")) == 4,
        LONG_S,
    )


def test_nodes_come_are_cordoned_and_go_under_load(make_cluster: Make) -> None:
    """Who lost pods with a node, and does not get them back within the grace, leaves as a whole, and comes again."""
    cluster = make_cluster(may_leave=lambda found: True, partly_s=150)
    cluster.nodes(3, gpus=4)
    cluster.queues(research=32)
    cluster.controller()
    for index in range(8):
        cluster.job(f"gang-{index}", "research", 3)
        time.sleep(0.3)
        if index == 2:
            cluster.wait_bound(9)  # nobody is on the way to it
            cluster.cordon("node-0")
            before = {found["metadata"]["name"] for found in cluster.on("node-0")}
        if index == 3:
            cluster.node("late-0", 8)
        if index == 5:
            cluster.plane.api.delete(NODES, "", "node-1")
            cluster.node("late-1", 8)
    cluster.node("late-2", 8)
    gone = {"node-1"}

    def placed() -> int:
        return sum(found["spec"]["nodeName"] not in gone for found in cluster.bound("gang"))

    wait_for("all have places on nodes that are there", lambda: placed() == 24, LONG_S)
    assert {found["metadata"]["name"] for found in cluster.on("node-0")} <= before, "nobody came to a cordoned node"


def test_a_queue_edited_under_load(make_cluster: Make) -> None:
    """Its limit goes up and down while gangs come; never more than the highest, and all in the end."""
    cluster = make_cluster()
    cluster.nodes(3)
    cluster.queue("all", parent="")
    cluster.queue("research", 24, limit=4)
    cluster.controller()
    draw = random.Random(7)

    def limit(gpus: int) -> None:
        cluster.plane.api.patch(QUEUES, "", "research", {"spec": {"resources": {"gpu": {"limit": gpus}}}})

    for index in range(8):
        cluster.job(f"gang-{index}", "research", 3)
        limit(draw.randint(2, 8))
        time.sleep(0.3)
    limit(9)
    cluster.wait_bound(9)
    assert cluster.stays_pending("gang", 15)
    limit(-1)
    cluster.wait_bound(24, limit_s=LONG_S)
