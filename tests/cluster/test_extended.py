"""Extended resources that DRA serves: a claim of our own, told to the pod, where the server knows such claims."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import LONGEST_S
from kai_solver.cluster.binding import BindError, Placement
from kai_solver.cluster.extended import AGAIN_S, Extended
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, Resource
from kai_solver.domain import Allotted
from tests.cluster.preparing_world import World

RESOURCE = "example.org/gpu"
DEVICES = tuple(Allotted("gpu", "gpu.example.org", "a", f"gpu-{index}") for index in range(3))


class Old(MemoryApi):
    """A server without the feature gate: it drops the field."""

    def patch(self, resource: Resource, namespace: str, name: str, body: Any, **words: Any) -> Object:
        if resource == PODS and words.get("subresource") == "status":
            body = {**body, "status": {k: v for k, v in body["status"].items() if k != "extendedResourceClaimStatus"}}
        return super().patch(resource, namespace, name, body, **words)


class Bench(World):
    def __init__(self, api: MemoryApi | None = None) -> None:
        super().__init__(api)
        self.extended = Extended(self.api, self.store, lambda: self.now_s)
        self.api.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": RESOURCE}})

    def placement(self, *counts: int, count: int | None = None, resource: str = RESOURCE, **spec: Any) -> Placement:
        """A pod whose containers ask for so many each, and the devices that the plan gives it."""
        containers = [{"name": f"c{i}", "resources": {"limits": {resource: str(n)}}} for i, n in enumerate(counts)]
        placement = self.pod("p", "a", containers=containers, **spec)
        return replace(placement, extended=(("gpu", DEVICES[: sum(counts) if count is None else count]),))

    def claims(self) -> list[Object]:
        return self.api.page(RESOURCE_CLAIMS).items

    def told(self) -> Any:
        return self.api.get(PODS, "n", "p")["status"].get("extendedResourceClaimStatus")

    def overlaid(self) -> tuple[Any, list[str]]:
        """What a cycle sees: the pod's claim, and the names of all claims with their devices."""
        (pod,) = self.extended.pods(self.store.all(PODS), 0.0)
        claims = self.extended.claims(self.store.all(RESOURCE_CLAIMS), 0.0)
        given = [f"{c['metadata']['name']}: {len(c['status']['allocation']['devices']['results'])}" for c in claims]
        stated = pod["status"].get("extendedResourceClaimStatus") or {}
        return stated.get("resourceClaimName"), given


def test_the_claim_is_made_allocated_and_told_container_by_container() -> None:
    bench = Bench()
    placement = bench.placement(1, 2)
    assert bench.extended.concerns(placement)
    assert not bench.extended.concerns(replace(placement, extended=()))
    bench.extended.prepare(placement)
    (claim,) = bench.claims()
    assert claim["metadata"]["name"].startswith("p-extended-resources-")
    assert claim["metadata"]["annotations"] == {"resource.kubernetes.io/extended-resource-claim": "true"}
    assert claim["metadata"]["ownerReferences"][0]["uid"] == placement.uid
    assert [found["exactly"]["count"] for found in claim["spec"]["devices"]["requests"]] == [1, 2]
    results = claim["status"]["allocation"]["devices"]["results"]
    assert [(found["request"], found["device"]) for found in results] == [
        ("container-0-request-0", "gpu-0"),
        ("container-1-request-0", "gpu-1"),
        ("container-1-request-0", "gpu-2"),
    ]
    assert claim["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": placement.uid}]
    assert bench.told()["resourceClaimName"] == claim["metadata"]["name"]
    assert bench.told()["requestMappings"][1] == {
        "containerName": "c1",
        "resourceName": RESOURCE,
        "requestName": "container-1-request-0",
    }


def initial(*counts: int, **more: str) -> list[Object]:
    return [
        {"name": f"i{n}", "resources": {"limits": {RESOURCE: str(count)}}, **more} for n, count in enumerate(counts)
    ]


@pytest.mark.parametrize(
    ("init", "main", "requests", "told"),
    [
        (initial(2), (2,), {1: 2}, {"i0": 1, "c0": 1}),
        (initial(1), (2, 1), {1: 2, 2: 1}, {"i0": 2, "c0": 1, "c1": 2}),
        (initial(3), (1,), {0: 3}, {"i0": 0, "c0": 0}),
        (initial(1, 3), (1, 1), {0: 3}, dict.fromkeys(("i0", "i1", "c0", "c1"), 0)),
        (initial(2, restartPolicy="Always"), (1,), {0: 2, 1: 1}, {"i0": 0, "c0": 1}),
        (
            [*initial(1, restartPolicy="Always"), {**initial(2)[0], "name": "s"}],
            (1,),
            {0: 3},
            {"i0": 0, "s": 0, "c0": 0},
        ),
    ],
)
def test_devices_of_init_containers_are_those_of_the_containers_that_follow(
    init: list[Object], main: tuple[int, ...], requests: dict[int, int], told: dict[str, int]
) -> None:
    bench = Bench()
    bench.extended.prepare(bench.placement(*main, count=sum(requests.values()), initContainers=init))
    (claim,) = bench.claims()
    stated = {one["name"]: one["exactly"]["count"] for one in claim["spec"]["devices"]["requests"]}
    assert stated == {f"container-{index}-request-0": count for index, count in requests.items()}
    devices = [one["device"] for one in claim["status"]["allocation"]["devices"]["results"]]
    assert len(set(devices)) == len(devices) == sum(requests.values()), "no device is in two requests"
    mapped = {one["containerName"]: one["requestName"] for one in bench.told()["requestMappings"]}
    assert mapped == {name: f"container-{index}-request-0" for name, index in told.items()}


def test_the_name_of_the_class_asks_for_it_too() -> None:
    bench = Bench()
    bench.extended.prepare(bench.placement(1, resource="deviceclass.resource.kubernetes.io/gpu"))
    assert bench.told()["requestMappings"][0]["resourceName"] == "deviceclass.resource.kubernetes.io/gpu"


def test_several_resources_are_had_by_one_claim() -> None:
    bench, named = Bench(), "deviceclass.resource.kubernetes.io/nic"
    nic, config = "example.org/nic", [{"opaque": {"driver": "nic.example.org", "parameters": {"mtu": 9000}}}]
    bench.api.create(
        DEVICE_CLASSES, "", {"metadata": {"name": "nic"}, "spec": {"extendedResourceName": nic, "config": config}}
    )
    containers = [
        {"name": "c0", "resources": {"limits": {nic: "1", RESOURCE: "2", "cpu": "1"}}},
        {"name": "c1", "resources": {"limits": {named: "1", "example.org/else": "1"}}},
    ]
    nics = tuple(Allotted("nic", "nic.example.org", "a", f"nic-{index}") for index in range(2))
    placement = replace(bench.pod("p", "a", containers=containers), extended=(("gpu", DEVICES[:2]), ("nic", nics)))
    bench.extended.prepare(placement)
    (claim,) = bench.claims()
    requests = {found["name"]: found["exactly"] for found in claim["spec"]["devices"]["requests"]}
    assert {name: (asked["deviceClassName"], asked["count"]) for name, asked in requests.items()} == {
        "container-0-request-0": ("gpu", 2),
        "container-0-request-1": ("nic", 1),
        "container-1-request-0": ("nic", 1),
    }
    allocated = claim["status"]["allocation"]["devices"]
    assert [(found["request"], found["device"]) for found in allocated["results"]] == [
        ("container-0-request-0", "gpu-0"),
        ("container-0-request-0", "gpu-1"),
        ("container-0-request-1", "nic-0"),
        ("container-1-request-0", "nic-1"),
    ]
    assert [(found["source"], found["requests"]) for found in allocated["config"]] == [
        ("FromClass", ["container-0-request-1"]),
        ("FromClass", ["container-1-request-0"]),
    ]
    told = [(m["containerName"], m["resourceName"], m["requestName"]) for m in bench.told()["requestMappings"]]
    assert told == [
        ("c0", RESOURCE, "container-0-request-0"),
        ("c0", nic, "container-0-request-1"),
        ("c1", named, "container-1-request-0"),
    ]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"count": 1}, "are not what its containers ask for"),
        ({"count": 3}, "are not what its containers ask for"),
        ({"initContainers": [{"name": "i", "resources": {"limits": {RESOURCE: "3"}}}]}, "are not what its containers"),
    ],
)
def test_what_does_not_fit_the_pod_is_not_made(words: Any, why: str) -> None:
    bench = Bench()
    with pytest.raises(BindError, match=why):
        bench.extended.prepare(bench.placement(2, **words))
    assert bench.claims() == []


def test_until_the_watch_shows_it_a_cycle_sees_it_all_the_same() -> None:
    bench = Bench()
    placement = bench.placement(2)
    assert bench.overlaid() == (None, [])
    bench.extended.assume(placement)
    assert bench.overlaid() == ("p-extended-resources", ["p-extended-resources: 2"])
    bench.extended.prepare(placement)
    name = bench.claims()[0]["metadata"]["name"]
    assert bench.overlaid() == (name, [f"{name}: 2"]), "the watch has shown neither"
    bench.see()
    assert bench.overlaid() == (name, [f"{name}: 2"])
    bench.bind(placement)
    pods = bench.store.all(PODS)
    assert bench.extended.pods(pods, 0.0) is pods
    assert bench.overlaid() == (name, [f"{name}: 2"])


def test_what_could_not_be_bound_is_taken_away() -> None:
    bench = Bench()
    placement = bench.placement(1)
    bench.extended.assume(placement)
    bench.extended.undo(placement)
    assert bench.overlaid() == (None, []), "nothing was made"
    bench.extended.prepare(placement)
    bench.extended.undo(placement)
    assert bench.claims() == []
    assert bench.told() is None
    bench.extended.undo(placement)


def test_what_could_not_be_bound_is_taken_away_though_the_watch_has_shown_it_long_since() -> None:
    bench = Bench()
    placement = bench.placement(1)
    bench.extended.assume(placement)
    bench.extended.prepare(placement)
    bench.see()
    assert bench.overlaid()[0] == bench.claims()[0]["metadata"]["name"]
    bench.extended.undo(placement)  # another pod of its gang had to wait for a volume, in vain
    assert (bench.claims(), bench.told()) == ([], None)


class Losing(MemoryApi):
    """Does what it is asked to do to the status of ``kind``, once without an answer; or does nothing at all."""

    kind: Resource | None = None
    away = False

    def patch(self, resource: Resource, namespace: str, name: str, body: Any, **words: Any) -> Object:
        if self.away:
            raise ApiError(503, "away")
        found = super().patch(resource, namespace, name, body, **words)
        if resource == self.kind and words.get("subresource") == "status":
            self.kind = None
            raise ApiError(0, "reset")
        return found


@pytest.mark.parametrize("kind", [RESOURCE_CLAIMS, PODS])
@pytest.mark.parametrize("is_seen", [True, False])
def test_a_claim_whose_answer_got_lost_is_no_reason_for_another(kind: Resource, is_seen: bool) -> None:
    bench = Bench(api := Losing())
    placement = bench.placement(1)
    bench.extended.assume(placement)
    api.kind = kind
    with pytest.raises(ApiError):
        bench.extended.prepare(placement)
    if is_seen:
        bench.see()
    bench.extended.prepare(placement)
    (claim,) = bench.claims()
    assert bench.told()["resourceClaimName"] == claim["metadata"]["name"]
    bench.extended.undo(placement)
    assert (bench.claims(), bench.told()) == ([], None)


def test_what_cannot_be_taken_away_counts_as_given_for_a_while_and_no_pod_seems_told() -> None:
    bench = Bench(api := Losing())
    placement = bench.placement(1)
    bench.extended.assume(placement)
    bench.extended.prepare(placement)
    api.away = True
    with pytest.raises(ApiError):
        bench.extended.undo(placement)
    (claim,) = bench.claims()
    assert bench.overlaid() == (None, [f"{claim['metadata']['name']}: 1"])
    bench.now_s = LONGEST_S
    assert bench.overlaid() == (None, [])


def test_what_cannot_be_taken_away_at_first_is_tried_again() -> None:
    bench = Bench(api := Losing())
    placement = bench.placement(1)
    bench.extended.prepare(placement)
    api.away = True
    with pytest.raises(ApiError):
        bench.extended.undo(placement)
    api.away = False
    bench.extended.undo(placement)
    assert (bench.claims(), bench.told(), bench.overlaid()) == ([], None, (None, []))


def test_a_server_without_the_feature_gate_is_known_by_what_it_does_not_keep() -> None:
    bench = Bench(Old())
    placement = bench.placement(1)
    bench.extended.assume(placement)
    with pytest.raises(BindError, match="DRAExtendedResource is off"):
        bench.extended.prepare(placement)
    bench.extended.undo(placement)
    assert bench.claims() == []
    with pytest.raises(BindError, match="DRAExtendedResource is off"):
        bench.extended.prepare(placement)
    assert bench.claims() == [], "nothing is tried"
    bench.now_s = AGAIN_S + 1
    with pytest.raises(BindError):
        bench.extended.prepare(placement)
    assert len(bench.claims()) == 1, "after a while it is tried again"


def test_a_pod_that_is_gone_is_left_alone() -> None:
    bench = Bench()
    placement = bench.placement(1)
    bench.extended.assume(placement)
    bench.api.delete(PODS, "n", "p")
    bench.see()
    assert bench.extended.pods((), 0.0) == ()
    assert bench.extended.claims((), 0.0) == ()
    with pytest.raises(BindError, match="gone"):
        bench.extended.prepare(placement)
