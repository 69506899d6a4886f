"""Resource claims of Kubernetes: v1 and the betas, what is set aside, extended resources, and the way back."""

from typing import Any

import pytest

from kai_solver.claims import lower
from kai_solver.domain import Requirement, Snapshot
from kai_solver.kubeobjects import KubeSettings, objects_from_documents, snapshot_from_objects
from kai_solver.kubeobjects.export import objects_from_snapshot

API = "resource.k8s.io/v1"
DRIVER = "gpu.nvidia.com"
Object = dict[str, Any]


def device_class(more: Object | None = None, **spec: Any) -> Object:
    selector = {"cel": {"expression": f"device.driver == '{DRIVER}'"}}
    base = {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": DRIVER}}
    return base | {"spec": {"selectors": [selector]} | spec} | (more or {})


def a_slice(devices: list[Object], node: str = "n", name: str = "s", **spec: Any) -> Object:
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    base: Object = {"driver": DRIVER, "pool": pool, "nodeName": node, "devices": devices}
    return {"apiVersion": API, "kind": "ResourceSlice", "metadata": {"name": name}, "spec": base | spec}


def gpu(name: str, model: str = "A100", **more: Any) -> Object:
    attributes = {"productName": {"string": model}, "driverVersion": {"version": "550.1.0"}, "ecc": {"bool": False}}
    return {"name": name, "attributes": attributes, "capacity": {"memory": {"value": "40Gi"}}, **more}


def a_claim(name: str = "c", request: Object | None = None, status: Object | None = None, **devices: Any) -> Object:
    wanted = request or {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    return {
        "apiVersion": API,
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": "ns", "labels": {"kai.scheduler/queue": "q"}},
        "spec": {"devices": {"requests": [wanted]} | devices},
        "status": status or {},
    }


def uses(**entry: str) -> Object:
    return {"spec": {"resourceClaims": [{"name": "gpu", **entry}]}}


@pytest.fixture
def seen(build: Any) -> Any:
    """``seen(pod_more, *objects)``: the lowered snapshot of one node, one pod of queue q, and ``objects``."""

    def read(pod: Object, *objects: Object, **node: Any) -> Snapshot:
        labelled = build.pod("p", pod | {"metadata": {"labels": {"kai.scheduler/queue": "q"}}}, **node)
        everything = [build.node("n", gpus=0), labelled, *objects]
        found = objects_from_documents(("f", value) for value in everything)
        return lower(snapshot_from_objects(found, now_s=build.now_s))

    return read


def blocked(snapshot: Snapshot) -> str:
    return "\n".join(snapshot.gangs[0].pods[0].constraints.blocked)


def notices(snapshot: Snapshot) -> str:
    return "\n".join(f"{notice.object}: {notice.text}" for notice in snapshot.notices)


def test_a_claim_becomes_gpus_of_node_and_pod(seen: Any) -> None:
    pod = uses(resourceClaimName="c")
    snapshot = seen(pod, device_class(), a_slice([gpu("gpu-0"), gpu("gpu-1")]), a_claim())
    assert (snapshot.nodes[0].gpus, snapshot.gangs[0].pods[0].gpu.devices) == (2, 1)
    assert blocked(snapshot) == ""


def test_the_betas_are_read_like_v1(seen: Any) -> None:
    beta = gpu("gpu-0")
    basic = {"name": beta.pop("name"), "basic": beta}
    expression = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('40Gi')) == 0"
    selector = {"cel": {"expression": expression}}
    request = {"name": "gpu", "deviceClassName": DRIVER, "selectors": [selector]}
    objects = [device_class(), a_slice([basic]), a_claim(request=request)]
    older = [value | {"apiVersion": "resource.k8s.io/v1beta1"} for value in objects]
    assert blocked(seen(uses(resourceClaimName="c"), *older)) == ""
    selector["cel"]["expression"] = expression.replace("==", ">")
    assert "no node offers a device that matches" in blocked(seen(uses(resourceClaimName="c"), *older))


def test_an_allocated_claim_holds_its_devices(seen: Any) -> None:
    results = [{"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-1"}]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": [{"resource": "pods", "name": "p"}]}
    objects = [device_class(), a_slice([gpu("gpu-0"), gpu("gpu-1")]), a_claim(status=status)]
    snapshot = seen(uses(resourceClaimName="c"), *objects, node="n", phase="Running")
    assert snapshot.gangs[0].pods[0].devices == (1,)


@pytest.mark.parametrize(
    ("request_", "constraints", "text"),
    [
        ({"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": DRIVER}]}, [], "firstAvailable"),
        ({"name": "gpu", "exactly": {"deviceClassName": DRIVER, "adminAccess": True}}, [], "adminAccess"),
        ({"name": "gpu", "exactly": {"deviceClassName": DRIVER, "allocationMode": "Most"}}, [], "allocationMode"),
        ({"name": "gpu", "exactly": {"deviceClassName": DRIVER, "capacity": {"requests": {}}}}, [], "capacity"),
        (
            {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 2}},
            [{"matchAttribute": "d/x"}],
            "constraints",
        ),
        ({"name": "gpu", "exactly": {"deviceClassName": "other"}}, [], "device class other does not exist"),
    ],
)
def test_what_is_not_supported_makes_the_pod_wait_with_that_reason(
    seen: Any, request_: Object, constraints: list[Object], text: str
) -> None:
    offered = a_slice([gpu("gpu-0"), gpu("gpu-1")])
    claim = a_claim(request=request_, constraints=constraints)
    assert text in blocked(seen(uses(resourceClaimName="c"), device_class(), offered, claim))


def test_a_constraint_on_one_device_always_holds(seen: Any) -> None:
    claim = a_claim(constraints=[{"matchAttribute": "d/x"}])
    assert blocked(seen(uses(resourceClaimName="c"), device_class(), a_slice([gpu("gpu-0")]), claim)) == ""


@pytest.mark.parametrize(
    ("offered", "text"),
    [
        (a_slice([gpu("g", consumesCounters=[{"counterSet": "x"}])]), "consumesCounters"),
        (a_slice([gpu("g", allowMultipleAllocations=True)]), "allowMultipleAllocations"),
        (a_slice([gpu("g", taints=[{"key": "broken", "effect": "NoExecute"}])]), "is tainted: broken"),
        (a_slice([gpu("g")], nodeName=None, allNodes=True), "not of one node"),
        (a_slice([gpu("g")], pool={"name": "n", "generation": 1, "resourceSliceCount": 2}), "1 of 2 ResourceSlices"),
        (a_slice([gpu("g") | {"capacity": {"memory": {"value": "much"}}}]), "much"),
        (a_slice([{"attributes": {}}]), "name"),
    ],
)
def test_devices_that_cannot_be_given_are_left_out_with_a_notice(seen: Any, offered: Object, text: str) -> None:
    snapshot = seen({}, device_class(), offered)
    assert snapshot.nodes[0].gpus == 0
    assert text in notices(snapshot)


def test_of_a_pool_the_newest_generation_counts(seen: Any) -> None:
    newer = a_slice([gpu("g")], name="t", pool={"name": "n", "generation": 2, "resourceSliceCount": 1})
    assert seen({}, device_class(), a_slice([gpu("a"), gpu("b")]), newer).nodes[0].gpus == 1


def test_claims_of_templates_are_found_made_or_waited_for(seen: Any) -> None:
    pod = uses(resourceClaimTemplateName="t")
    rest = [device_class(), a_slice([gpu("gpu-0")])]
    assert 'to create the resourceclaim "p-gpu"' in blocked(seen(pod, *rest))
    template = {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "ns"},
        "spec": {"spec": a_claim()["spec"]},
    }
    made = seen(pod, *rest, template)
    assert made.gangs[0].pods[0].claims == ("ns/p-gpu",)
    assert blocked(made) == ""
    generated = a_claim("p-gpu-x7")
    generated["metadata"] |= {
        "labels": {},
        "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"},
        "ownerReferences": [{"kind": "Pod", "name": "p", "uid": "uid-p"}],
    }
    found = seen(pod, *rest, generated)
    assert found.gangs[0].pods[0].claims == ("ns/p-gpu-x7",)
    assert blocked(found) == ""
    stated = pod | {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7"}]}}
    assert seen(stated, *rest, generated).gangs[0].pods[0].claims == ("ns/p-gpu-x7",)
    without = pod | {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    assert seen(without, *rest).gangs[0].pods[0].claims == ()


def test_a_claim_that_does_not_exist_makes_its_pod_wait(seen: Any) -> None:
    assert 'resourceclaim.resource.k8s.io "x" not found' in blocked(seen(uses(resourceClaimName="x")))


def test_a_class_backs_gpus_that_pods_ask_for_as_a_resource(seen: Any, build: Any) -> None:
    offered = [device_class(extendedResourceName="nvidia.com/gpu"), a_slice([gpu("gpu-0")])]
    pod = {"spec": {"containers": [{"name": "m", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]}}
    snapshot = seen(pod, *offered)
    assert snapshot.gangs[0].pods[0].claims == ("ns/p-extended-0",)
    assert snapshot.gangs[0].pods[0].gpu.devices == 1
    mapping = {"containerName": "m", "resourceName": "nvidia.com/gpu", "requestName": "gpu"}
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": [mapping]}}
    results = [{"request": "gpu", "driver": DRIVER, "pool": "n", "device": "gpu-0"}]
    claim = a_claim(status={"allocation": {"devices": {"results": results}}})
    running = seen(pod | {"status": status}, *offered, claim, node="n", phase="Running").gangs[0].pods[0]
    assert (running.claims, running.gpu.devices, running.devices) == (("ns/c",), 1, (0,))


def test_one_claim_for_several_resources_stands_for_each_of_them(seen: Any) -> None:
    devices = a_slice([gpu("gpu-0"), gpu("gpu-1")])
    offered = [device_class(extendedResourceName="nvidia.com/gpu"), devices]
    limits = {"nvidia.com/gpu": "1", f"deviceclass.resource.kubernetes.io/{DRIVER}": "1"}
    pod = {"spec": {"containers": [{"name": "m", "resources": {"limits": limits}}]}}
    mappings = [
        {"containerName": "m", "resourceName": resource, "requestName": f"r-{number}"}
        for number, resource in enumerate(limits)
    ]
    status = {"extendedResourceClaimStatus": {"resourceClaimName": "c", "requestMappings": mappings}}
    results = [{"request": f"r-{i}", "driver": DRIVER, "pool": "n", "device": f"gpu-{i}"} for i in range(2)]
    claim = a_claim(status={"allocation": {"devices": {"results": results}}})
    exactly = {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}
    claim["spec"]["devices"]["requests"] = [{"name": f"r-{i}", "exactly": exactly} for i in range(2)]
    snapshot = seen(pod | {"status": status}, *offered, claim, node="n", phase="Running")
    running = snapshot.gangs[0].pods[0]
    assert running.claims == ("ns/c", "ns/c#1")
    assert (running.gpu.devices, running.devices) == (2, (0, 1)), "neither is counted twice, or left out"
    parts = {part.name: part for part in snapshot.claims.claims}
    assert [[a.device for a in parts[name].allotted] for name in ("c", "c#1")] == [["gpu-0"], ["gpu-1"]]
    assert parts["c"].extended == "gpu"


def test_what_is_exported_is_read_again(seen: Any, build: Any) -> None:
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "allocationMode": "All"}}
    own = a_claim("d", request={"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": DRIVER}]})
    own["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": "p", "uid": "u"}]
    objects = [device_class(), a_slice([gpu("gpu-0"), gpu("gpu-1")]), a_claim(request=request), own]
    snapshot = seen(uses(resourceClaimName="c"), *objects)
    again = lower(snapshot_from_objects(objects_from_snapshot(snapshot), now_s=build.now_s))
    assert again.claims is not None
    assert again.claims.devices == snapshot.claims.devices
    assert again.claims.classes == snapshot.claims.classes
    assert [c.key for c in again.claims.claims] == ["ns/c", "ns/d"]
    assert again.claims.claims[0] == snapshot.claims.claims[0]
    assert again.claims.claims[1].is_own
    assert "firstAvailable" in again.claims.claims[1].problem
    assert again.gangs[0].pods[0].gpu == snapshot.gangs[0].pods[0].gpu
    assert again.schema == snapshot.schema


# -- where nobody makes claims for extended resources ------------------------------------------------------------------


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", "example.org/thing", f"deviceclass.resource.kubernetes.io/{DRIVER}"]
)
def test_what_only_a_class_offers_is_refused_by_name(build: Any, resource: str) -> None:
    offered: dict[str, Any] = {} if resource.endswith(DRIVER) else {"extendedResourceName": resource}
    pod = build.pod("p", {"spec": {"containers": [{"name": "c", "resources": {"limits": {resource: "1"}}}]}})
    plain = build.pod("plain")
    everything = [build.node("n", gpus=0), pod, plain, device_class(**offered), a_slice([gpu("gpu-0")])]
    found = objects_from_documents(("f", value) for value in everything)

    def blocked(settings: KubeSettings) -> dict[str, tuple[str, ...]]:
        gangs = snapshot_from_objects(found, now_s=build.now_s, settings=settings).gangs
        return {gang.pods[0].name: gang.pods[0].constraints.blocked for gang in gangs}

    refused = blocked(KubeSettings(extended_claims=False))
    assert refused["p"][0].startswith(f"{resource} is offered only by DeviceClass {DRIVER}")
    assert refused["plain"] == ()
    assert blocked(KubeSettings()) == {"p": (), "plain": ()}


def test_what_a_plugin_offers_too_comes_from_there(build: Any) -> None:
    nodes = [build.node("n", gpus=0), build.node("m", gpus=2)]
    everything = [*nodes, build.pod("p", gpus=1), device_class(extendedResourceName="nvidia.com/gpu")]
    found = objects_from_documents(("f", value) for value in [*everything, a_slice([gpu("gpu-0")])])
    snapshot = snapshot_from_objects(found, now_s=build.now_s, settings=KubeSettings(extended_claims=False))
    constraints = snapshot.gangs[0].pods[0].constraints
    assert constraints.blocked == ()
    assert constraints.node_terms == (((Requirement("metadata.name", "In", ("m",)),),),)
