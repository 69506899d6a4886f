"""What a pod needs beside its node, on a real API server: volumes, host ports, a promised place, KAI's binder."""

from typing import Any

import pytest

from kai_solver.cluster.resources import (
    BIND_REQUESTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    POD_GROUPS,
    PODS,
    REPLICA_SETS,
    STORAGE_CLASSES,
)
from tests.cluster.plane.agents import KaiBinder, Provisioner, volume_spec, working
from tests.cluster.plane.cluster import LEADERSHIP, SPACE, Cluster, pod
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.test_sharing import condition, told

DISK = "disk.example.org"


@pytest.fixture
def cluster(make_cluster: Make) -> Cluster:
    found = make_cluster(may_leave=lambda pod: str(pod["metadata"]["name"]).startswith("mover"))
    found.queues(research=16)
    return found


# -- PodGroups -------------------------------------------------------------------------------------------------------


def test_pods_that_wait_have_pod_groups_and_their_names_at_once(cluster: Cluster) -> None:
    cluster.nodes(1, gpus=2)
    cluster.controller()
    cluster.job("gang", "research", 2, gpus=2)
    cluster.pod("large", "research", gpus=4)

    def named() -> set[str]:
        pods = cluster.plane.api.page(PODS, namespace=SPACE, limit=1000).items
        return {(found["metadata"].get("annotations") or {}).get("pod-group-name", "") for found in pods}

    wait_for("all have names", lambda: "" not in named() and len(named()) == 2, 20.0)
    groups = {item["metadata"]["name"] for item in cluster.plane.api.page(POD_GROUPS, limit=1000).items}
    assert named() <= groups
    assert cluster.stays_pending("gang", 2), "a name makes no other gang of it"
    cluster.node("node-1", 2)
    cluster.wait_bound(2, "gang")


# -- volumes -----------------------------------------------------------------------------------------------------------


def storage(cluster: Cluster, name: str, provisioner: str) -> None:
    body = {"metadata": {"name": name}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    cluster.plane.api.create(STORAGE_CLASSES, "", body)


def mounting(cluster: Cluster, name: str, kind: str, size: str = "5Gi") -> None:
    """A pod and its claim."""
    spec = {"storageClassName": kind, "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": size}}}
    cluster.plane.api.create(PERSISTENT_VOLUME_CLAIMS, SPACE, {"metadata": {"name": name}, "spec": spec})
    volume = {"name": "data", "persistentVolumeClaim": {"claimName": name}}
    cluster.pod(name, "research", 0, volumes=[volume])


def node_of(cluster: Cluster, name: str) -> str:
    (found,) = cluster.bound(name)
    return str(found["spec"]["nodeName"])


def test_a_volume_on_a_disk_is_kept_for_the_claim_and_its_pod_goes_there(cluster: Cluster) -> None:
    storage(cluster, "local", "kubernetes.io/no-provisioner")
    for name, node, size in (("tight", "node-1", "2Gi"), ("right", "node-1", "5Gi"), ("wide", "node-1", "9Gi")):
        body = {"metadata": {"name": name}, "spec": volume_spec("local", node, size)}
        cluster.plane.api.create(PERSISTENT_VOLUMES, "", body)
    cluster.nodes(2)
    cluster.controller()
    for name in ("first", "second", "third"):
        mounting(cluster, name, "local")
    cluster.wait_bound(2)
    assert {found["spec"]["nodeName"] for found in cluster.bound()} == {"node-1"}
    claims = cluster.plane.api.page(PERSISTENT_VOLUME_CLAIMS, namespace=SPACE).items
    held = sorted(claim["spec"].get("volumeName", "") for claim in claims)
    assert held == ["", "right", "wide"]
    (late,) = {"first", "second", "third"} - {found["metadata"]["name"] for found in cluster.bound()}
    wait_for("it is told why", lambda: "persistent volumes to bind" in condition(cluster, late).get("message", ""))


def test_a_provisioner_makes_the_volume_on_the_node_that_the_pod_goes_to(cluster: Cluster) -> None:
    storage(cluster, "made", DISK)
    cluster.nodes(2)
    provisioner = Provisioner(cluster.plane)
    with working(provisioner.look):
        cluster.controller()
        mounting(cluster, "writer", "made")
        cluster.wait_bound(1, "writer")
        assert provisioner.asked == [node_of(cluster, "writer")]


def test_a_provisioner_that_gives_up_is_not_waited_for_and_asked_again_later(cluster: Cluster) -> None:
    storage(cluster, "made", DISK)
    cluster.nodes(1)
    provisioner = Provisioner(cluster.plane, frozenset({"node-0"}))
    with working(provisioner.look):
        cluster.controller()
        mounting(cluster, "unlucky", "made")
        wait_for("it is told", lambda: "no volume could be made" in told(cluster, "unlucky", "BindingError"))
        assert cluster.bound() == []
        provisioner.refused = frozenset()
        cluster.wait_bound(1, "unlucky")


# -- ports and places --------------------------------------------------------------------------------------------------


def test_a_port_of_a_node_is_given_once(cluster: Cluster) -> None:
    cluster.nodes(2)
    cluster.controller()
    container = {"name": "main", "image": "busybox", "ports": [{"containerPort": 80, "hostPort": 8080}]}
    for index in range(3):
        cluster.pod(f"server-{index}", "research", 0, containers=[container])
    cluster.wait_bound(2, "server")
    assert {found["spec"]["nodeName"] for found in cluster.bound()} == {"node-0", "node-1"}
    (late,) = {f"server-{index}" for index in range(3)} - {found["metadata"]["name"] for found in cluster.bound()}
    wait_for("it is told why", lambda: "free ports" in condition(cluster, late).get("message", ""))


@pytest.mark.parametrize("maker", ["Job", "ReplicaSet"])
def test_a_moved_pod_finds_its_place_when_it_is_made_anew(cluster: Cluster, maker: str) -> None:
    cluster.nodes(2, gpus=4)
    cluster.controller()
    cluster.cordon("node-1")
    make(cluster, maker, "mover", 2)
    cluster.wait_bound(1, "mover")
    cluster.cordon("node-1", False)
    cluster.cordon("node-0")
    cluster.pod("stays", "research", 2, priority="build")
    cluster.wait_bound(1, "stays")
    cluster.cordon("node-0", False)
    cluster.pod("large", "research", 4)
    cluster.wait_bound(1, "large")
    assert node_of(cluster, "large") == "node-0"
    wait_for("the mover is back", lambda: [f["spec"]["nodeName"] for f in cluster.bound("mover")] == ["node-1"])
    assert len(cluster.checker.evicted) == 1


def make(cluster: Cluster, maker: str, name: str, gpus: int) -> None:
    if maker == "Job":
        cluster.job(name, "research", 1, gpus=gpus)
        return
    template = pod("", "research", gpus, labels={"app": name})
    template["spec"]["restartPolicy"] = "Always"
    spec: dict[str, Any] = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    cluster.plane.api.create(REPLICA_SETS, SPACE, {"metadata": {"name": name}, "spec": spec})


# -- KAI's binder ------------------------------------------------------------------------------------------------------


def test_kais_binder_binds_what_we_ask_for(cluster: Cluster, requesting: None) -> None:
    cluster.nodes(2, gpus=4)
    binder = KaiBinder(cluster.plane)
    with working(binder.look):
        cluster.controller(binding="bindrequest")
        cluster.job("gang", "research", 8)
        cluster.wait_bound(8, "gang")
        asked = binder.seen[cluster.bound("gang")[0]["metadata"]["name"]]
        assert asked["spec"]["receivedGPU"] == {"count": 1, "portion": "1.00"}
        assert asked["spec"]["receivedResourceType"] == "Regular"
        assert "pod-group-name" in cluster.bound("gang")[0]["metadata"]["annotations"]
        cluster.plane.api.delete(PODS, SPACE, asked["spec"]["podName"])
        wait_for("its request goes with it", lambda: asked["metadata"]["uid"] not in uids(cluster))
        cluster.wait_bound(8, "gang")


def uids(cluster: Cluster) -> set[str]:
    return {found["metadata"]["uid"] for found in cluster.plane.api.page(BIND_REQUESTS, limit=1000).items}


def test_what_kais_binder_cannot_bind_is_told_released_and_asked_again(cluster: Cluster, requesting: None) -> None:
    cluster.nodes(1, gpus=4)
    binder = KaiBinder(cluster.plane, {"alone"})
    with working(binder.look):
        cluster.controller(binding="bindrequest")
        cluster.pod("alone", "research", 4)
        cluster.wait_bound(1, "alone")
        wait_for("it was told", lambda: "the disk is full" in told(cluster, "alone", "BindingError"))
        assert len(cluster.plane.api.page(BIND_REQUESTS, namespace=SPACE).items) == 1, "the failed one is gone"


def test_a_new_leader_reckons_with_what_the_last_one_asked_for(cluster: Cluster, requesting: None) -> None:
    cluster.nodes(1, gpus=4)
    binder = KaiBinder(cluster.plane, silent=True)
    with working(binder.look):
        first = cluster.controller(binding="bindrequest", leadership=LEADERSHIP)
        cluster.pods(2, "research", "early")
        wait_for("both are asked for", lambda: len(uids(cluster)) == 2)
        first.component.kill()
        cluster.controller(binding="bindrequest", leadership=LEADERSHIP)
        cluster.pods(4, "research", "late")
        wait_for("two more are asked for", lambda: len(uids(cluster)) == 4)
        binder.silent = False
        cluster.wait_bound(2, "early")
        cluster.wait_bound(2, "late")
