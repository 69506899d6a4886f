"""GPUs by resource claim in statuses: under the name of their device class, in no words of our own."""

from typing import Any

import pytest

from kai_solver.cluster.resources import DEVICE_CLASSES, POD_GROUPS, PODS, QUEUES, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.controller.reporting_world import World

DRIVER = "gpu.nvidia.com"


@pytest.fixture
def world() -> World:
    """Node ``a`` has two GPUs of a device plugin and four that claims ask for; ``run`` holds two of them by a claim."""
    made = World()
    made.queue("q")
    made.node("a", 2)
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    made.api.create(DEVICE_CLASSES, "", {"metadata": {"name": DRIVER}, "spec": {"selectors": [selector]}})
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{index}"} for index in range(4)]
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "a", "devices": devices}
    made.api.create(RESOURCE_SLICES, "", {"metadata": {"name": "s"}, "spec": spec})
    return made


def by_claim(world: World, name: str, count: int, runs: bool) -> None:
    """A PodGroup of one pod with a claim for ``count`` GPUs."""
    exactly = {"deviceClassName": DRIVER, "count": count}
    claim: dict[str, Any] = {
        "metadata": {"name": name, "labels": {"kai.scheduler/queue": "q"}},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }
    if runs:
        results = [{"request": "gpus", "driver": DRIVER, "pool": "a", "device": f"gpu-{n}"} for n in range(count)]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": terms}}
        claim["status"] = {"allocation": allocation, "reservedFor": [{"resource": "pods", "name": name, "uid": "u"}]}
    world.api.create(RESOURCE_CLAIMS, "n", claim)
    world.api.create(POD_GROUPS, "n", {"metadata": {"name": name}, "spec": {"minMember": 1, "queue": "q"}})
    uses = {"resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}
    container = {"name": "c", "resources": {"limits": {"cpu": "1"}, "claims": [{"name": "gpus"}]}}
    pod: dict[str, Any] = {
        "metadata": {"name": name, "annotations": {"pod-group-name": name}},
        "spec": {"schedulerName": "kai-scheduler", "containers": [container], **uses},
    }
    if runs:
        pod["spec"]["nodeName"], pod["status"] = "a", {"phase": "Running"}
    world.api.create(PODS, "n", pod)


def test_claimed_gpus_stand_under_their_class_beside_those_of_the_resource(world: World) -> None:
    by_claim(world, "run", 2, runs=True)
    by_claim(world, "wait", 8, runs=False)
    world.gang("plain", 1)
    world.api.patch(
        PODS,
        "n",
        "plain-0",
        {"spec": {"containers": [{"name": "c", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}},
    )
    world.round()
    world.now += 60
    world.round()
    queue = world.get(QUEUES, "q")["status"]
    assert (queue["allocated"][DRIVER], queue["allocated"]["nvidia.com/gpu"]) == ("2", "1")
    assert (queue["requested"][DRIVER], queue["requested"]["nvidia.com/gpu"]) == ("10", "1")
    assert "cpu" in queue["allocated"]
    groups = {name: world.get(POD_GROUPS, name)["status"]["resourcesStatus"] for name in ("run", "wait", "plain")}
    assert groups["run"]["allocated"] == {"cpu": "1", "memory": "0", "nvidia.com/gpu": "0", DRIVER: "2"}
    assert groups["wait"]["requested"][DRIVER] == "8"
    assert groups["plain"]["allocated"]["nvidia.com/gpu"] == "1"
    words = {
        name for one in (*groups.values(), queue) for part in one.values() if isinstance(part, dict) for name in part
    }
    assert words == {"cpu", "memory", "nvidia.com/gpu", DRIVER}, "no name of ours"
