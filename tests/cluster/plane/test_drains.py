"""A node that is to be drained soon: what may move goes elsewhere, and what stays is told why."""

from datetime import UTC, datetime, timedelta

from kai_solver.cluster.resources import EVENTS, NODES
from kai_solver.kubeobjects import names
from tests.cluster.plane.cluster import SPACE, Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for


def messages(cluster: Cluster, name: str, space: str = SPACE) -> dict[str, str]:
    """By reason, what the events about an object say."""
    found = cluster.plane.api.page(EVENTS, namespace=space, limit=10_000).items
    return {one["reason"]: one.get("message", "") for one in found if one["involvedObject"].get("name") == name}


def nodes_of(cluster: Cluster, prefix: str) -> set[str]:
    return {str(pod["spec"]["nodeName"]) for pod in cluster.bound(prefix)}


def test_pods_move_before_the_drain_and_others_say_why_they_stay(make_cluster: Make) -> None:
    cluster = make_cluster(may_leave=lambda pod: str(pod["metadata"]["name"]).startswith("training"))
    cluster.nodes(1, gpus=4)
    cluster.queues(research=8)
    cluster.controller()
    cluster.job("training", "research", 2)
    cluster.wait_bound(2, "training")
    cluster.pod("bare", "research")
    cluster.wait_bound(1, "bare")
    before = {str(pod["metadata"]["uid"]) for pod in cluster.bound("training")}
    cluster.node("node-1", 4)
    cluster.wait_nodes(2)
    at = (datetime.now(UTC) + timedelta(minutes=9)).strftime("%Y-%m-%dT%H:%M:%SZ")
    cluster.plane.api.patch(NODES, "", "node-0", {"metadata": {"annotations": {names.OWN_DRAIN_AT: at}}})
    wait_for(
        "the training runs on the other node",
        lambda: len(cluster.bound("training")) == 2 and nodes_of(cluster, "training") == {"node-1"},
    )
    assert not before & {str(pod["metadata"]["uid"]) for pod in cluster.bound("training")}
    wait_for("the pod is told why it stays", lambda: "NotMoved" in messages(cluster, "bare"))
    said = messages(cluster, "bare")["NotMoved"]
    assert (
        said == f"Pod {SPACE}/bare stays: node node-0 is to be drained at {at}, but no controller would make it again"
    )
    wait_for("the node is told", lambda: "NotMoved" in messages(cluster, "node-0", "default"))
    assert f"{SPACE}/bare" in messages(cluster, "node-0", "default")["NotMoved"]
    assert nodes_of(cluster, "bare") == {"node-0"}
    cluster.job("next", "research", 1, gpus=1)
    cluster.wait_bound(1, "next")
    assert nodes_of(cluster, "next") == {"node-1"}, "nothing of unknown run time starts there any more"
