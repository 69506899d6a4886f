"""Claims that hold devices for no pod are freed after a while, and no others."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object, meta
from kai_solver.cluster.binding import Placement
from kai_solver.cluster.devices import Devices, node_of
from kai_solver.cluster.extended import Extended
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS, Resource
from kai_solver.cluster.unused import UNUSED_S, UnusedClaims
from kai_solver.domain import Allotted
from tests.cluster.preparing_world import World

GPU = Allotted("gpus", "gpu.example.org", "a", "gpu-0")
RESOURCE = "example.org/gpu"


class Bench(World):
    def __init__(self, api: MemoryApi | None = None) -> None:
        super().__init__(api)
        self.api.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": RESOURCE}})
        request = {"name": "gpus", "exactly": {"deviceClassName": "gpu"}}
        body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
        self.api.create(RESOURCE_CLAIMS, "n", body)
        self.see()
        self.is_ours, self.under_way = True, False
        self.lead()

    def lead(self) -> None:
        """Another leader, which remembers nothing."""
        self.devices, self.extended = Devices(self.api, self.store), Extended(self.api, self.store)
        self.unused = UnusedClaims(
            self.api,
            self.store,
            self.devices,
            lambda: self.leads,
            is_ours=lambda _: self.is_ours,
            expected=lambda pod: dict(pod) if self.under_way else pod,
            monotonic=lambda: self.now_s,
        )

    def user(self, name: str = "p", scheduler: str = "kai-scheduler") -> Placement:
        return replace(self.pod(name, "a", schedulerName=scheduler), claims=(("n/c", (GPU,)),))

    def asking(self, name: str = "e") -> Placement:
        containers = [{"name": "c", "resources": {"limits": {RESOURCE: "1"}}}]
        placement = self.pod(name, "a", schedulerName="kai-scheduler", containers=containers)
        return replace(placement, extended=(("gpu", (replace(GPU, request="gpu"),)),))

    def wait(self) -> None:
        """Long enough."""
        for _ in range(2):
            self.see()
            self.unused.collect()
            self.now_s += UNUSED_S

    def given(self) -> Any:
        return self.api.get(RESOURCE_CLAIMS, "n", "c").get("status", {}).get("allocation")

    def made(self) -> list[str]:
        return [claim["metadata"]["name"] for claim in self.api.page(RESOURCE_CLAIMS).items][1:]

    def told(self, name: str = "e") -> Any:
        return self.api.get(PODS, "n", name)["status"].get("extendedResourceClaimStatus")


def test_devices_of_a_pod_that_goes_on_waiting_are_given_back_after_a_while() -> None:
    bench = Bench()
    bench.devices.prepare(bench.user())
    bench.lead()
    bench.see()
    bench.unused.collect()
    bench.now_s = UNUSED_S - 1
    bench.unused.collect()
    assert node_of(bench.api.get(RESOURCE_CLAIMS, "n", "c")) == "a"
    bench.now_s = UNUSED_S
    bench.unused.collect()
    assert bench.given() is None
    assert "reservedFor" not in bench.api.get(RESOURCE_CLAIMS, "n", "c")["status"]


def test_a_claim_that_is_used_between_two_looks_begins_anew() -> None:
    bench = Bench()
    bench.devices.prepare(bench.user())
    bench.wait()
    bench.api.patch(RESOURCE_CLAIMS, "n", "c", {"status": {"reservedFor": None}}, subresource="status")
    bench.devices.prepare(bench.user("q"))
    bench.under_way = True
    bench.wait()
    bench.under_way = False
    bench.see()
    bench.unused.collect()
    assert bench.given()


@pytest.mark.parametrize(
    "why", ["bound", "two users", "another scheduler", "another pool", "under way", "gone", "else"]
)
def test_a_claim_that_may_be_used_keeps_its_devices(why: str) -> None:
    bench = Bench()
    placement = bench.user(scheduler="kube-scheduler" if why == "another scheduler" else "kai-scheduler")
    bench.devices.prepare(placement)
    if why == "bound":
        bench.bind(placement)
    if why == "two users":
        bench.devices.prepare(bench.user("q"))
    if why == "gone":
        bench.api.delete(PODS, "n", "p")
    if why == "else":
        other = {"nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]}}
        bench.api.patch(RESOURCE_CLAIMS, "n", "c", {"status": {"allocation": other}}, subresource="status")
    bench.is_ours, bench.under_way = why != "another pool", why == "under way"
    bench.lead()
    bench.wait()
    assert bench.given()


def test_a_pod_that_was_bound_and_is_not_seen_so_keeps_its_devices() -> None:
    bench = Bench()
    placement = bench.user()
    bench.devices.prepare(placement)
    bench.see()
    bench.unused.collect()
    target = {"metadata": {"name": "p"}, "target": {"name": "a"}}
    bench.api.create(PODS, "n", target, subresource="binding")
    bench.now_s = UNUSED_S
    bench.unused.collect()
    assert bench.given()


class Dying(MemoryApi):
    """No pod is told its claim."""

    is_dead = True

    def patch(self, resource: Resource, namespace: str, name: str, body: Any, **words: Any) -> Object:
        if self.is_dead and resource == PODS:
            raise ApiError(0, "Closed")
        return super().patch(resource, namespace, name, body, **words)


def test_a_claim_that_its_pod_was_never_told_is_deleted() -> None:
    bench = Bench(api := Dying())
    placement = bench.asking()
    with pytest.raises(ApiError):
        bench.extended.prepare(placement)
    api.is_dead = False
    bench.lead()
    (first,) = bench.made()
    bench.extended.prepare(placement)
    bench.bind(placement)
    bench.wait()
    (second,) = bench.made()
    assert second != first, "also where the pod has another one by now"
    assert bench.told()["resourceClaimName"] == second


def test_a_pod_that_was_told_its_claim_and_goes_on_waiting_is_told_otherwise() -> None:
    bench = Bench()
    bench.extended.prepare(bench.asking())
    bench.lead()
    bench.wait()
    assert (bench.made(), bench.told()) == ([], None)


def test_nothing_is_deleted_of_a_pod_that_runs() -> None:
    bench = Bench()
    placement = bench.asking()
    bench.extended.prepare(placement)
    bench.bind(placement)
    bench.lead()
    bench.wait()
    assert bench.told()["resourceClaimName"] == bench.made()[0]


def test_malformed_claims_are_left_alone_and_refusals_are_tried_again() -> None:
    bench = Bench()
    bench.devices.prepare(bench.user())
    body = {"metadata": {"name": "d"}, "spec": {}, "status": {"reservedFor": "p", "allocation": 7}}
    bench.api.create(RESOURCE_CLAIMS, "n", body)

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(500, "InternalError")

    patch = bench.api.patch
    bench.api.patch = refuse  # type: ignore[assignment, method-assign]
    bench.wait()
    assert bench.given()
    bench.api.patch = patch  # type: ignore[method-assign]
    bench.unused.collect()
    assert bench.given() is None
    assert meta(bench.api.get(RESOURCE_CLAIMS, "n", "d"))["name"] == "d"
