"""Devices by claim on a real API server, whose claim controller makes claims from templates and frees them again."""

from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from tests.cluster.plane.agents import KaiBinder, working
from tests.cluster.plane.cluster import CLAIM_TEMPLATES, SPACE, Cluster
from tests.cluster.plane.conftest import Make
from tests.cluster.plane.plane import wait_for
from tests.cluster.plane.test_sharing import condition

DRIVER = "gpu.example.org"
LARGE = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"


@pytest.fixture
def cluster(make_cluster: Make) -> Cluster:
    """Two nodes, each with a small device and a large one, and a class of all."""
    found = make_cluster()
    found.queues(research=8)
    found.nodes(2, gpus=0)
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    found.plane.api.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}})
    for index in range(2):
        devices = [device("small", "20Gi"), device("large", "80Gi")]
        pool = {"name": f"node-{index}", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": f"node-{index}", "pool": pool, "devices": devices}
        found.plane.api.create(RESOURCE_SLICES, "", {"metadata": {"name": f"slice-{index}"}, "spec": spec})
    return found


def device(name: str, memory: str) -> dict[str, Any]:
    return {"name": name, "capacity": {"memory": {"value": memory}}}


def request(*selectors: str) -> dict[str, Any]:
    cel = [{"cel": {"expression": text}} for text in selectors]
    return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu", "selectors": cel}}]}}


def template(cluster: Cluster, name: str, *selectors: str) -> None:
    cluster.plane.api.create(
        CLAIM_TEMPLATES, SPACE, {"metadata": {"name": name}, "spec": {"spec": request(*selectors)}}
    )


def user(cluster: Cluster, name: str, **source: str) -> None:
    cluster.pod(name, "research", 0, resourceClaims=[{"name": "gpu", **source}])


def given(claim: Object) -> list[str]:
    allocation = claim.get("status", {}).get("allocation") or {"devices": {"results": []}}
    return [found["device"] for found in allocation["devices"]["results"]]


def users(claim: Object) -> list[str]:
    return sorted(found["name"] for found in claim.get("status", {}).get("reservedFor") or ())


def test_each_pod_gets_a_device_that_its_selector_allows_and_gives_it_back(cluster: Cluster) -> None:
    template(cluster, "large", LARGE)
    cluster.controller()
    for index in range(3):
        user(cluster, f"large-{index}", resourceClaimTemplateName="large")
    cluster.wait_bound(2, "large")
    claims = [claim for claim in cluster.plane.api.page(RESOURCE_CLAIMS, namespace=SPACE).items if given(claim)]
    assert [given(claim) for claim in claims] == [["large"], ["large"]]
    bound = sorted(found["metadata"]["name"] for found in cluster.bound())
    assert sorted(name for claim in claims for name in users(claim)) == bound
    assert {found["spec"]["nodeName"] for found in cluster.bound()} == {"node-0", "node-1"}
    (late,) = {f"large-{index}" for index in range(3)} - set(bound)
    wait_for("the third waits", lambda: condition(cluster, late).get("reason") == "Unschedulable")
    cluster.plane.api.delete(PODS, SPACE, bound[0])
    wait_for("the third has it", lambda: late in {found["metadata"]["name"] for found in cluster.bound()})


def test_a_claim_that_pods_share_is_allocated_once(cluster: Cluster) -> None:
    metadata = {"name": "shared", "labels": {"kai.scheduler/queue": "research"}}
    cluster.plane.api.create(RESOURCE_CLAIMS, SPACE, {"metadata": metadata, "spec": request()})
    cluster.controller()
    for index in range(3):
        user(cluster, f"sharer-{index}", resourceClaimName="shared")
    cluster.wait_bound(3, "sharer")
    claim = cluster.plane.api.get(RESOURCE_CLAIMS, SPACE, "shared")
    assert len(given(claim)) == 1
    assert users(claim) == ["sharer-0", "sharer-1", "sharer-2"]
    assert len({found["spec"]["nodeName"] for found in cluster.bound()}) == 1
    for index in range(3):
        cluster.plane.api.delete(PODS, SPACE, f"sharer-{index}")
    wait_for("it is given back", lambda: not given(cluster.plane.api.get(RESOURCE_CLAIMS, SPACE, "shared")))


def test_kais_binder_allocates_what_its_request_says(cluster: Cluster, requesting: None) -> None:
    template(cluster, "large", LARGE)
    binder = KaiBinder(cluster.plane)
    with working(binder.look):
        cluster.controller(binding="bindrequest")
        for index in range(3):
            user(cluster, f"large-{index}", resourceClaimTemplateName="large")
        cluster.wait_bound(2, "large")
        claims = cluster.plane.api.page(RESOURCE_CLAIMS, namespace=SPACE).items
        assert sorted(given(claim) for claim in claims) == [[], ["large"], ["large"]]
        (entry,) = next(iter(binder.seen.values()))["spec"]["resourceClaimAllocations"]
        assert entry["name"] == "gpu"


@pytest.mark.parametrize("resource", ["example.org/gpu", "deviceclass.resource.kubernetes.io/gpu"])
def test_what_a_class_offers_as_an_extended_resource_is_had_by_a_claim_of_ours(cluster: Cluster, resource: str) -> None:
    cluster.plane.api.patch(DEVICE_CLASSES, "", "gpu", {"spec": {"extendedResourceName": "example.org/gpu"}})
    cluster.controller()
    for index in range(3):
        cluster.pod(f"asking-{index}", "research", 0, amounts={resource: "2"})
    cluster.wait_bound(2, "asking")
    stated = {found["status"]["extendedResourceClaimStatus"]["resourceClaimName"] for found in cluster.bound()}
    claims = cluster.plane.api.page(RESOURCE_CLAIMS, namespace=SPACE).items
    assert {claim["metadata"]["name"] for claim in claims} == stated
    assert [sorted(given(claim)) for claim in claims] == [["large", "small"], ["large", "small"]]
    bound = sorted(found["metadata"]["name"] for found in cluster.bound())
    (late,) = {f"asking-{index}" for index in range(3)} - set(bound)
    cluster.plane.api.delete(PODS, SPACE, bound[0])
    wait_for("the third has them", lambda: late in {found["metadata"]["name"] for found in cluster.bound()})


def test_several_extended_resources_are_had_by_one_claim(cluster: Cluster) -> None:
    cluster.plane.api.patch(DEVICE_CLASSES, "", "gpu", {"spec": {"extendedResourceName": "example.org/gpu"}})
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    spec = {"selectors": [selector], "extendedResourceName": "example.org/other"}
    cluster.plane.api.create(DEVICE_CLASSES, "", {"metadata": {"name": "other"}, "spec": spec})
    cluster.controller()
    for index in range(2):
        cluster.pod(f"asking-{index}", "research", 0, amounts={"example.org/gpu": "1", "example.org/other": "1"})
    cluster.wait_bound(2, "asking")
    claims = cluster.plane.api.page(RESOURCE_CLAIMS, namespace=SPACE).items
    assert [sorted(given(claim)) for claim in claims] == [["large", "small"], ["large", "small"]]
    for found in cluster.bound():
        mapped = found["status"]["extendedResourceClaimStatus"]["requestMappings"]
        assert {mapping["resourceName"] for mapping in mapped} == {"example.org/gpu", "example.org/other"}
    cluster.pod("late", "research", 0, amounts={"example.org/other": "1"})
    assert cluster.stays_pending("late")


def test_kais_binder_is_not_asked_for_what_only_a_class_offers(cluster: Cluster, requesting: None) -> None:
    cluster.controller(binding="bindrequest")
    cluster.pod("asking", "research", 0, amounts={"deviceclass.resource.kubernetes.io/gpu": "1"})
    wait_for("it is told", lambda: "offered only by DeviceClass gpu" in condition(cluster, "asking").get("message", ""))
    assert cluster.bound() == []
