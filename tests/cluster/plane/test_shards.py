"""Several of ours side by side: each places its own pods on its own nodes, and nothing is promised twice."""

from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import LEASES, PODS, QUEUES
from tests.cluster.plane.cluster import SPACE, STAYS_S, Cluster, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.release import forbidden, released

POOL = "kai.scheduler/node-pool"


def halves(make_cluster: Make) -> Cluster:
    """Two nodes without a pool and two of pool ``b``, each half with queues of its own."""
    cluster = make_cluster()
    for index in range(4):
        cluster.node(f"node-{index}", 4, **({POOL: "b"} if index > 1 else {}))
    cluster.wait_nodes(4)
    cluster.queues(research=8)
    for name, parent in (("all-b", ""), ("research-b", "all-b")):
        cluster.queue(name, 8, parent)
        cluster.plane.api.patch(QUEUES, "", name, {"metadata": {"labels": {POOL: "b"}}})
    return cluster


def submit(cluster: Cluster, prefix: str, count: int, scheduler: str = "kai-scheduler", pool: str = "") -> None:
    """Pods of one GPU for a scheduler and a pool."""
    labels = {POOL: pool} if pool else {}
    for index in range(count):
        queue = "research-b" if pool else "research"
        body: dict[str, Any] = pod(f"{prefix}-{index}", queue, scheduler=scheduler, labels=labels)
        cluster.plane.api.create(PODS, SPACE, body)


def nodes_of(found: list[Object]) -> set[str]:
    return {str(one["spec"]["nodeName"]) for one in found}


def test_two_releases_have_their_own_pods_and_nodes(make_cluster: Make) -> None:
    cluster = halves(make_cluster)
    second = {"settings.scheduler_name": "second", "shards": [{"nodePool": "b"}]}
    with released(cluster.plane, "first") as one, released(cluster.plane, "second", **second) as other:
        ours, theirs = one.replica(cluster), other.replica(cluster, "one-kai-solver-b")
        ours.start()
        theirs.start()
        submit(cluster, "strangers", 1, "third")
        submit(cluster, "astray", 1, "second")  # of the second scheduler, and of no pool that it has
        submit(cluster, "ours", 9)
        submit(cluster, "theirs", 9, "second", "b")
        cluster.wait_bound(8, "ours")
        cluster.wait_bound(8, "theirs")
        assert cluster.stays_unbound("strangers-0", STAYS_S)
        assert (len(cluster.bound("ours")), len(cluster.bound("theirs"))) == (8, 8), "each half is full"
        assert nodes_of(cluster.bound("ours")) == {"node-0", "node-1"}
        assert nodes_of(cluster.bound("theirs")) == {"node-2", "node-3"}
        assert cluster.bound("astray") == []
        assert forbidden(ours) + forbidden(theirs) == []


def test_the_shards_of_a_release_have_leases_of_their_own(make_cluster: Make) -> None:
    cluster = halves(make_cluster)
    with released(cluster.plane, "first", shards=[{"nodePool": ""}, {"nodePool": "b"}]) as release:
        shards = [release.replica(cluster, name) for name in ("one-kai-solver", "one-kai-solver-b")]
        for shard in shards:
            shard.start()
        submit(cluster, "plain", 8)
        submit(cluster, "pooled", 8, pool="b")
        cluster.wait_bound(8, "plain")
        cluster.wait_bound(8, "pooled")
        assert nodes_of(cluster.bound("pooled")) == {"node-2", "node-3"}
        held = {str(one["metadata"]["name"]) for one in cluster.plane.api.page(LEASES, namespace="first").items}
        assert {"kai-solver-kai-scheduler", "kai-solver-kai-scheduler-b"} <= held
        assert [forbidden(shard) for shard in shards] == [[], []]
