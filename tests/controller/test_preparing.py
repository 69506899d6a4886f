"""How pods get their nodes follows the settings: by a replica over an API server in memory."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kai_solver.cluster import unused
from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.devices import allocation_of
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import (
    BIND_REQUESTS,
    DEVICE_CLASSES,
    NODES,
    POD_GROUPS,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    Resource,
)
from kai_solver.cluster.sharing import Sharing
from kai_solver.cluster.store import Store
from kai_solver.controller.preparing import preparing
from kai_solver.controller.reporting.reporters import LogReporter
from kai_solver.controller.settings import ControllerSettings
from kai_solver.domain import Allotted
from tests.controller.replicas import bound, cluster, cluster_of, pod, running, until

REQUESTED: dict[str, Any] = {"binding": "bindrequest"}


def requests(api: MemoryApi) -> list[Object]:
    return api.page(BIND_REQUESTS).items


@contextmanager
def binder(api: MemoryApi, refused: set[str]) -> Iterator[None]:
    """KAI's; what is ``refused`` fails once."""
    over = threading.Event()

    def serve(request: Object) -> None:
        name = request["metadata"]["name"]
        status = {"phase": "Failed", "reason": "no"} if name in refused else {"phase": "Succeeded"}
        if name not in refused:
            target = {"metadata": {"name": name}, "target": {"name": request["spec"]["selectedNode"]}}
            api.create(PODS, "n", target, subresource="binding")
        refused.discard(name)
        api.patch(BIND_REQUESTS, "n", name, {"status": status}, subresource="status")

    def work() -> None:
        while not over.wait(0.01):
            for request in requests(api):
                if not request.get("status"):
                    try:
                        serve(request)
                    except ApiError:
                        continue

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def test_kais_binder_binds_and_what_fails_is_asked_again() -> None:
    api = cluster()
    for name in ("p", "q"):
        pod(api, name)
    with binder(api, {"q"}), running(api, **REQUESTED) as replica:
        until(lambda: bound(api) == {"p", "q"})
        until(lambda: not replica.scheduler.binder.open)
    assert {found["status"]["phase"] for found in requests(api)} == {"Succeeded"}


def test_what_an_earlier_leader_asked_for_is_no_place_for_others() -> None:
    api = cluster()
    pod(api, "early")
    with running(api, **REQUESTED) as first:
        until(lambda: len(requests(api)) == 1)
        first.lost = True  # it dies, and takes nothing back
    api._closed = False  # the next one has a connection of its own
    for index in range(8):
        pod(api, f"late-{index}")
    with running(api, **REQUESTED):
        until(lambda: len(requests(api)) == 8)
        with binder(api, set()):
            until(lambda: len(bound(api)) == 8)
        assert "early" in bound(api)


DRIVER = "gpu.example.org"


def offer(api: MemoryApi, **device_class: str) -> None:
    """A small device and a large one on the node, and a class of both."""
    api.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": device_class})
    devices = [{"name": name, "capacity": {"memory": {"value": size}}} for name, size in (("s", "20Gi"), ("l", "80Gi"))]
    spec = {"driver": DRIVER, "nodeName": "a", "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}}
    api.create(RESOURCE_SLICES, "", {"metadata": {"name": "slice"}, "spec": {**spec, "devices": devices}})


def given(claim: Object) -> list[str]:
    return [found["device"] for found in claim["status"]["allocation"]["devices"]["results"]]


def test_a_claim_gets_the_device_that_its_selector_allows() -> None:
    api = cluster()
    offer(api)
    selector = {"cel": {"expression": f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) >= 0"}}
    exactly = {"deviceClassName": "gpu", "selectors": [selector]}
    request = {"devices": {"requests": [{"name": "gpu", "exactly": exactly}]}}
    metadata = {"name": "c", "labels": {"kai.scheduler/queue": "q"}}
    api.create(RESOURCE_CLAIMS, "n", {"metadata": metadata, "spec": request})
    pod(api, "p", gpus=0)
    api.patch(PODS, "n", "p", {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}})
    with running(api):
        until(lambda: bound(api) == {"p"})
    claim = api.get(RESOURCE_CLAIMS, "n", "c")
    assert given(claim) == ["l"]
    assert [found["name"] for found in claim["status"]["reservedFor"]] == ["p"]


@pytest.mark.slow
def test_an_extended_resource_that_a_class_offers_is_had_by_a_claim_of_our_own() -> None:
    api = cluster()
    offer(api, extendedResourceName="example.org/gpu")
    for index in range(3):
        limits = {"example.org/gpu": "1"}
        spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c", "resources": {"limits": limits}}]}
        metadata = {"name": f"p{index}", "labels": {"kai.scheduler/queue": "q"}}
        api.create(PODS, "n", {"metadata": metadata, "spec": spec})
    with running(api):
        until(lambda: len(bound(api)) == 2)
        pods = [found for found in api.page(PODS, namespace="n").items if found["spec"].get("nodeName")]
        stated = {found["status"]["extendedResourceClaimStatus"]["resourceClaimName"] for found in pods}
        claims = {claim["metadata"]["name"]: claim for claim in api.page(RESOURCE_CLAIMS).items}
        assert claims.keys() == stated
        assert sorted(device for claim in claims.values() for device in given(claim)) == ["l", "s"]
        (name,) = {"p0", "p1", "p2"} - bound(api)

        def told() -> str:
            found = api.get(PODS, "n", name).get("status", {}).get("conditions") or [{}]
            return str(found[0].get("message"))

        until(lambda: "no nodes with enough resources" in told() or "Insufficient" in told())
        first = pods[0]
        api.delete(PODS, "n", first["metadata"]["name"], grace_s=0)
        api.delete(RESOURCE_CLAIMS, "n", first["status"]["extendedResourceClaimStatus"]["resourceClaimName"])
        until(lambda: name in bound(api))


@pytest.mark.parametrize("binding", ["own", "bindrequest"])
def test_a_part_of_a_gpu_needs_an_image_unless_kais_binder_has_one(binding: str) -> None:
    api = cluster()
    annotations = {"gpu-fraction": "0.5"}
    metadata = {"name": "half", "labels": {"kai.scheduler/queue": "q"}, "annotations": annotations}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}
    api.create(PODS, "n", {"metadata": metadata, "spec": spec})

    def told() -> str:
        found = api.get(PODS, "n", "half").get("status", {}).get("conditions") or [{}]
        return str(found[0].get("message"))

    with running(api, binding=binding, sharing={"image": ""}):
        if binding == "own":
            until(lambda: "set sharing.image" in told())
            assert api.page(PODS, namespace="kai-resource-reservation").items == []
        else:
            until(lambda: len(requests(api)) == 1)
            (group,) = requests(api)[0]["spec"]["selectedGPUGroups"]
            assert group
            assert requests(api)[0]["spec"]["receivedGPU"] == {"count": 1, "portion": "0.50"}


@pytest.mark.parametrize("length", range(20, 64))
def test_the_label_of_reservation_pods_is_one_that_servers_take(length: int) -> None:
    pool = "p" * (length - 2) + "-" + "y" * (64 - length)
    found = preparing(MemoryApi(), Store(), ControllerSettings(node_pool=pool), lambda: True)
    (sharing,) = (step for step in found.steps if isinstance(step, Sharing))
    assert len(sharing.kind.made_by) <= 63
    assert sharing.kind.made_by[-1].isalnum()


def test_a_claim_of_a_dead_leader_pins_no_pod_to_a_node_that_it_cannot_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unused, "LOOK_S", 0.05)
    monkeypatch.setattr(unused, "UNUSED_S", 0.2)
    api = cluster()
    offer(api)
    api.patch(NODES, "", "a", {"spec": {"unschedulable": True}})
    api.create(NODES, "", {"metadata": {"name": "b"}, "spec": {}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}})
    pool = {"name": "b", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "b", "pool": pool, "devices": [{"name": "other"}]}
    api.create(RESOURCE_SLICES, "", {"metadata": {"name": "slice-b"}, "spec": spec})
    request = {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}}
    metadata = {"name": "c", "labels": {"kai.scheduler/queue": "q"}}
    claim = api.create(RESOURCE_CLAIMS, "n", {"metadata": metadata, "spec": request})
    pod(api, "p", gpus=0)
    made = api.patch(PODS, "n", "p", {"spec": {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}})
    user = {"resource": "pods", "name": "p", "uid": made["metadata"]["uid"]}
    allocation = allocation_of(Store(), claim, (Allotted("gpu", DRIVER, "a", "s"),), "a")
    status = {"allocation": allocation, "reservedFor": [user]}
    api.patch(RESOURCE_CLAIMS, "n", "c", {"status": status}, subresource="status")
    with running(api):
        until(lambda: bound(api) == {"p"})
    assert api.get(PODS, "n", "p")["spec"]["nodeName"] == "b"
    assert given(api.get(RESOURCE_CLAIMS, "n", "c")) == ["other"]


@pytest.mark.parametrize("has_controller", [True, False])
def test_where_one_of_a_gang_cannot_be_bound_only_pods_with_a_controller_are_deleted(has_controller: bool) -> None:
    class Refusing(MemoryApi):
        def create(self, resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
            if subresource == "binding" and body["metadata"]["name"] == "q":
                until(lambda: bound(self) == {"p"})
                raise ApiError(403, "Forbidden", "a policy")
            return super().create(resource, namespace, body, subresource=subresource)

    api, over = cluster_of(Refusing()), threading.Event()
    api.create(POD_GROUPS, "n", {"metadata": {"name": "g"}, "spec": {"queue": "q", "minMember": 2}})
    owner = {"apiVersion": "v1", "kind": "Node", "name": "a", "uid": "u", "controller": True}
    for name in ("p", "q"):
        pod(api, name)
        marks = {"annotations": {"pod-group-name": "g"}, "ownerReferences": [owner] if has_controller else []}
        api.patch(PODS, "n", name, {"metadata": marks})

    class Told(LogReporter):
        def bound(self, outcome: GangBound) -> None:
            outcomes.append(outcome)
            over.set()

    outcomes: list[GangBound] = []
    with running(api, (Told(),)):
        assert over.wait(20)
    assert outcomes[0].released == has_controller
    assert [placement.name for placement in outcomes[0].bound] == ([] if has_controller else ["p"])


def test_a_shared_device_is_held_by_the_resource_that_the_cluster_has() -> None:
    api = cluster()
    offers = {"nvidia.com/gpu": None, "amd.com/gpu": "8"}
    api.patch(NODES, "", "a", {"status": {"allocatable": offers}}, subresource="status")
    labels, annotations = {"kai.scheduler/queue": "q"}, {"gpu-fraction": "0.5"}
    spec = {"schedulerName": "kai-scheduler", "containers": [{"name": "c"}]}
    api.create(PODS, "n", {"metadata": {"name": "half", "labels": labels, "annotations": annotations}, "spec": spec})
    with running(api, sharing={"image": "agent", "wait": 0.1}, policy={"gpu_resources": ["amd.com/gpu"]}):
        until(lambda: bool(api.page(PODS, namespace="kai-resource-reservation").items))
    (holder,) = api.page(PODS, namespace="kai-resource-reservation").items
    assert holder["spec"]["containers"][0]["resources"]["limits"] == {"amd.com/gpu": "1"}
