"""Parts of GPUs on a real API server: reservation pods as KAI makes them, with an agent that tells their device."""

from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import EVENTS, PODS
from tests.cluster.plane.agents import GROUP, INDEX, RESERVED, DeviceAgent, reservations, working
from tests.cluster.plane.cluster import ALL, LEADERSHIP, SPACE, Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for


@pytest.fixture
def agent(make_cluster: Make) -> Iterator[tuple[Cluster, DeviceAgent]]:
    """A cluster whose reservation pods learn their device."""
    cluster = make_cluster()
    cluster.queues(research=8)
    found = DeviceAgent(cluster.plane)
    with working(found.look):
        yield cluster, found


def share(cluster: Cluster, name: str, **annotations: str) -> None:
    stated = {key.replace("_", "-"): value for key, value in annotations.items()}
    cluster.pod(name, "research", 0, annotations=stated)


def groups(pod: Object) -> list[str]:
    labels = pod["metadata"]["labels"]
    return sorted(value for key, value in labels.items() if key.startswith(GROUP))


def condition(cluster: Cluster, name: str) -> dict[str, Any]:
    found = cluster.plane.api.get(PODS, SPACE, name).get("status", {}).get("conditions") or ()
    return next((one for one in found if one["type"] == "PodScheduled"), {})


def told(cluster: Cluster, name: str, reason: str) -> str:
    """Messages of the events of this reason about a pod."""
    events = cluster.plane.api.page(EVENTS, namespace=SPACE, limit=ALL).items
    return " ".join(
        str(one.get("message"))
        for one in events
        if one["reason"] == reason and (one.get("involvedObject") or {}).get("name") == name
    )


def test_two_halves_share_one_device_and_it_comes_back(agent: tuple[Cluster, DeviceAgent]) -> None:
    cluster, _ = agent
    cluster.nodes(1, gpus=1)
    cluster.controller()
    share(cluster, "half-a", gpu_fraction="0.5")
    share(cluster, "half-b", gpu_fraction="0.5")
    cluster.wait_bound(2, "half")
    first, second = cluster.bound("half")
    assert groups(first) == groups(second)
    (reservation,) = reservations(cluster.plane)
    assert reservation["metadata"]["annotations"][INDEX] == "0"
    assert reservation["metadata"]["labels"][GROUP] == groups(first)[0]
    share(cluster, "third", gpu_fraction="0.5")
    wait_for("the third is told why it waits", lambda: condition(cluster, "third").get("reason") == "Unschedulable")
    cluster.plane.api.delete(PODS, SPACE, "third")
    cluster.pod("whole", "research")
    cluster.plane.api.delete(PODS, SPACE, "half-a")
    wait_for("one half is gone", lambda: len(cluster.bound("half")) == 1)
    assert cluster.bound("whole") == []
    cluster.plane.api.delete(PODS, SPACE, "half-b")
    cluster.wait_bound(1, "whole")
    assert reservations(cluster.plane) == []


def test_memory_and_several_devices(agent: tuple[Cluster, DeviceAgent]) -> None:
    cluster, _ = agent
    cluster.node("node-0", 2, **{"nvidia.com__gpu.memory": "40000"})
    cluster.wait_nodes(1)
    cluster.controller()
    share(cluster, "pair", gpu_fraction="0.5", gpu_fraction_num_devices="2")
    cluster.wait_bound(1, "pair")
    assert len(set(groups(cluster.bound("pair")[0]))) == 2
    share(cluster, "mib-0", gpu_memory="20000")
    share(cluster, "mib-1", gpu_memory="20000")
    cluster.wait_bound(2, "mib")
    held = sorted(
        group for found in cluster.bound() if found["metadata"]["namespace"] == SPACE for group in groups(found)
    )
    assert len(held) == 4
    assert len(set(held)) == 2, "each of the two devices has two users"
    share(cluster, "late", gpu_memory="20000")
    wait_for("it is told why it waits", lambda: condition(cluster, "late").get("reason") == "Unschedulable")


def test_an_agent_that_is_silent_for_too_long_costs_no_device(agent: tuple[Cluster, DeviceAgent]) -> None:
    cluster, found = agent
    found.silent = True
    cluster.nodes(1, gpus=1)
    cluster.controller(sharing={"wait": "1s"})
    share(cluster, "half", gpu_fraction="0.5")
    wait_for("it is told", lambda: "no device was reserved" in told(cluster, "half", "BindingError"))
    assert cluster.bound("half") == []
    found.silent = False
    cluster.wait_bound(1, "half")
    wait_for("those before are gone", lambda: len(reservations(cluster.plane)) == 1)


def test_orphans_of_an_earlier_process_are_deleted(agent: tuple[Cluster, DeviceAgent]) -> None:
    cluster, _ = agent
    cluster.nodes(1, gpus=1)
    labels = {"app": RESERVED, GROUP: "lost", "app.kubernetes.io/managed-by": "kai-solver-kai-scheduler"}
    container = {"name": "c", "image": "agent", "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    spec = {"nodeName": "node-0", "containers": [container], "terminationGracePeriodSeconds": 1}
    cluster.plane.api.create(PODS, RESERVED, {"metadata": {"name": "lost", "labels": labels}, "spec": spec})
    cluster.controller()
    cluster.pod("whole", "research")
    cluster.wait_bound(1, "whole")
    assert reservations(cluster.plane) == []


def test_a_killed_leader_s_shares_stay_and_are_used(agent: tuple[Cluster, DeviceAgent]) -> None:
    cluster, _ = agent
    cluster.nodes(1, gpus=1)
    first = cluster.controller(leadership=LEADERSHIP)
    share(cluster, "half-a", gpu_fraction="0.5")
    cluster.wait_bound(1, "half")
    first.component.kill()
    cluster.controller(leadership=LEADERSHIP)
    share(cluster, "half-b", gpu_fraction="0.5")
    cluster.wait_bound(2, "half")
    one, other = cluster.bound("half")
    assert groups(one) == groups(other)


def test_without_an_image_a_pod_is_told_the_cure(agent: tuple[Cluster, DeviceAgent]) -> None:
    cluster, _ = agent
    cluster.nodes(1, gpus=1)
    cluster.controller(sharing={"image": ""})
    share(cluster, "half", gpu_fraction="0.5")
    wait_for("it is told", lambda: "sharing.image" in condition(cluster, "half").get("message", ""))
    wait_for("an event says so, too", lambda: "sharing.image" in told(cluster, "half", "Unschedulable"))
    assert reservations(cluster.plane) == []


def test_slices_of_gpus_are_given_as_the_node_has_them(make_cluster: Make) -> None:
    cluster = make_cluster()
    cluster.queues(research=8)
    slices = {"nvidia.com/mig-1g.10gb": "2", "nvidia.com/mig-3g.40gb": "1"}
    cluster.node("node-0", 0, slices, **{"nvidia.com__mig.strategy": "mixed"})
    cluster.wait_nodes(1)
    cluster.controller()
    for index in range(3):
        cluster.pod(f"small-{index}", "research", 0, amounts={"nvidia.com/mig-1g.10gb": "1"})
    cluster.pod("large", "research", 0, amounts={"nvidia.com/mig-3g.40gb": "1"})
    cluster.wait_bound(1, "large")
    cluster.wait_bound(2, "small")
    (left,) = {f"small-{i}" for i in range(3)} - {found["metadata"]["name"] for found in cluster.bound("small")}
    wait_for("the third waits", lambda: "mig-1g.10gb" in condition(cluster, left).get("message", ""))
    received = {found["metadata"]["annotations"]["received-resource-type"] for found in cluster.bound()}
    assert received == {"MigInstance"}
