"""Claims of devices are allocated as planned, once, and reserved for the pods that use them."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import LONGEST_S
from kai_solver.cluster.binding import BindError, Placement
from kai_solver.cluster.devices import FINALIZER, Devices, is_allocated
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DEVICE_CLASSES, RESOURCE_CLAIMS, Resource
from kai_solver.domain import Allotted
from tests.cluster.preparing_world import World

GPU0 = Allotted("gpus", "gpu.example.org", "a", "gpu-0")
GPU1 = replace(GPU0, device="gpu-1")


class Bench(World):
    def __init__(self, api: MemoryApi | None = None) -> None:
        super().__init__(api)
        self.devices = Devices(self.api, self.store, lambda: self.now_s)
        told = {"opaque": {"driver": "gpu.example.org", "parameters": {"mode": "quiet"}}}
        self.api.create(DEVICE_CLASSES, "", {"metadata": {"name": "gpu"}, "spec": {"config": [told]}})
        self.claim("c")

    def claim(self, name: str) -> None:
        request = {"name": "gpus", "exactly": {"deviceClassName": "gpu"}}
        self.api.create(
            RESOURCE_CLAIMS, "n", {"metadata": {"name": name}, "spec": {"devices": {"requests": [request]}}}
        )
        self.see()

    def user(self, name: str = "p", *devices: Allotted, node: str = "a") -> Placement:
        return replace(self.pod(name, node), claims=(("n/c", devices or (GPU0,)),))

    def found(self) -> Object:
        return self.api.get(RESOURCE_CLAIMS, "n", "c")

    def status(self) -> Any:
        return self.found().get("status", {})

    def given(self) -> list[str]:
        allocation = self.status().get("allocation") or {"devices": {"results": []}}
        return [result["device"] for result in allocation["devices"]["results"]]

    def users(self) -> list[str]:
        return [user["name"] for user in self.status().get("reservedFor") or ()]


def test_a_claim_is_allocated_for_the_node_and_reserved_for_the_pod() -> None:
    bench = Bench()
    placement = bench.user()
    assert bench.devices.concerns(placement)
    assert not bench.devices.concerns(bench.pod("q", "a"))
    bench.devices.prepare(placement)
    assert bench.status()["allocation"] == {
        "devices": {
            "results": [{"request": "gpus", "driver": "gpu.example.org", "pool": "a", "device": "gpu-0"}],
            "config": [
                {
                    "source": "FromClass",
                    "requests": ["gpus"],
                    "opaque": {"driver": "gpu.example.org", "parameters": {"mode": "quiet"}},
                }
            ],
        },
        "nodeSelector": {
            "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a"]}]}]
        },
    }
    assert bench.status()["reservedFor"] == [{"resource": "pods", "name": "p", "uid": placement.uid}]
    assert bench.found()["metadata"]["finalizers"] == [FINALIZER]


def test_done_twice_it_does_no_harm() -> None:
    bench = Bench()
    placement = bench.user()
    bench.devices.prepare(placement)
    before = bench.found()
    bench.devices.prepare(placement)
    assert bench.found() == before


def test_a_shared_claim_that_is_allocated_is_only_reserved() -> None:
    bench = Bench()
    first, second = bench.user(), bench.user("q")
    bench.devices.prepare(first)
    bench.devices.prepare(second)
    assert bench.given() == ["gpu-0"]
    assert bench.users() == ["p", "q"]
    bench.devices.undo(second)
    assert (bench.given(), bench.users()) == (["gpu-0"], ["p"])
    bench.devices.undo(first)
    assert (bench.given(), bench.users()) == ([], [])


def test_what_another_scheduler_allocated_stays_when_we_leave() -> None:
    bench = Bench()
    results = [{"request": "gpus", "driver": "gpu.example.org", "pool": "a", "device": "gpu-0"}]
    status = {"allocation": {"devices": {"results": results}}}
    bench.api.patch(RESOURCE_CLAIMS, "n", "c", {"status": status}, subresource="status")
    placement = bench.user()
    bench.devices.prepare(placement)
    assert bench.users() == ["p"]
    bench.devices.undo(placement)
    assert (bench.given(), bench.users()) == (["gpu-0"], [])


def test_a_claim_that_was_allocated_otherwise_cannot_be() -> None:
    bench = Bench()
    bench.devices.prepare(bench.user())
    with pytest.raises(BindError, match="allocated by another client"):
        bench.devices.prepare(bench.user("q", GPU1))
    assert bench.users() == ["p"]


def test_a_claim_has_no_more_users_than_it_may() -> None:
    bench = Bench()
    bench.devices.prepare(bench.user())
    users = [{"resource": "pods", "name": f"u{i}", "uid": str(i)} for i in range(256)]
    bench.api.patch(RESOURCE_CLAIMS, "n", "c", {"status": {"reservedFor": users}}, subresource="status")
    with pytest.raises(BindError, match="256 users"):
        bench.devices.prepare(bench.user("q"))


def test_a_claim_that_leaves_or_is_gone_cannot_be() -> None:
    bench = Bench()
    bench.api.patch(RESOURCE_CLAIMS, "n", "c", {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    with pytest.raises(BindError, match="being deleted"):
        bench.devices.prepare(bench.user())
    bench.api.delete(RESOURCE_CLAIMS, "n", "c")
    with pytest.raises(ApiError) as caught:
        bench.devices.prepare(bench.user("q"))
    assert caught.value.is_missing


class Busy(MemoryApi):
    """Somebody else changes the claim before each of the first writes to its status."""

    rivals = 3

    def patch(self, resource: Resource, namespace: str, name: str, body: Any, **words: Any) -> Object:
        if resource == RESOURCE_CLAIMS and words.get("subresource") == "status" and self.rivals:
            self.rivals -= 1
            super().patch(resource, namespace, name, {"metadata": {"labels": {"rival": str(self.rivals)}}})
        return super().patch(resource, namespace, name, body, **words)


def test_what_writes_at_the_same_time_is_not_overwritten() -> None:
    bench = Bench(Busy())
    bench.devices.prepare(bench.user())
    assert bench.given() == ["gpu-0"]
    assert bench.found()["metadata"]["labels"] == {"rival": "0"}


def test_until_the_watch_shows_it_an_allocation_is_assumed() -> None:
    bench = Bench()
    placement = bench.user()
    claims = bench.store.all(RESOURCE_CLAIMS)
    assert bench.devices.overlay(claims, 0.0) is claims
    bench.devices.assume(placement)
    (assumed,) = bench.devices.overlay(claims, 0.0)
    assert assumed["status"]["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert "status" not in claims[0], "the store's own objects are not changed"
    bench.devices.prepare(placement)
    bench.see()
    shown = bench.store.all(RESOURCE_CLAIMS)
    assert bench.devices.overlay(shown, 0.0) is shown, "the API server has the last word"


def test_what_is_undone_is_assumed_no_longer() -> None:
    bench = Bench()
    first, second = bench.user(), bench.user("q")
    bench.devices.assume(first)
    bench.devices.assume(second)
    bench.devices.undo(first)
    claims = bench.store.all(RESOURCE_CLAIMS)
    assert bench.devices.overlay(claims, 0.0) != claims, "the other one still wants it"
    bench.devices.undo(second)
    assert bench.devices.overlay(claims, 0.0) is claims


def test_what_cannot_be_given_back_counts_as_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch has not shown the allocation: who would be given the device now would share it."""
    bench = Bench()
    placement = bench.user()
    bench.devices.assume(placement)
    bench.devices.prepare(placement)

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(0, "reset")

    with monkeypatch.context() as patched:
        patched.setattr(bench.api, "get", refuse)
        with pytest.raises(ApiError):
            bench.devices.undo(placement)
    assert bench.given() == ["gpu-0"]
    assert all(map(is_allocated, bench.devices.overlay(bench.store.all(RESOURCE_CLAIMS), 0.0)))
    bench.devices.undo(placement)
    assert bench.given() == []
    assert not any(map(is_allocated, bench.devices.overlay(bench.store.all(RESOURCE_CLAIMS), 0.0)))


def test_what_cannot_be_given_back_counts_as_given_for_a_while_only(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement, claims = bench.user(), bench.store.all(RESOURCE_CLAIMS)

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(0, "reset")

    monkeypatch.setattr(bench.api, "get", refuse)
    bench.devices.assume(placement)
    with pytest.raises(ApiError):
        bench.devices.undo(placement)
    bench.now_s = LONGEST_S - 1
    assert bench.devices.overlay(claims, 0.0) != claims
    bench.devices.assume(placement)
    bench.now_s = LONGEST_S
    assert bench.devices.overlay(claims, 0.0) != claims, "it is being bound again"
    with pytest.raises(ApiError):
        bench.devices.undo(placement)
    bench.now_s = 2 * LONGEST_S
    assert bench.devices.overlay(claims, 0.0) is claims, "the API server never had it"


def test_a_claim_that_is_gone_is_given_back() -> None:
    bench = Bench()
    placement, claims = bench.user(), bench.store.all(RESOURCE_CLAIMS)
    bench.devices.assume(placement)
    bench.devices.prepare(placement)
    assert bench.devices.overlay(claims, 0.0) != claims
    bench.api.patch(RESOURCE_CLAIMS, "n", "c", {"metadata": {"finalizers": None}})
    bench.api.delete(RESOURCE_CLAIMS, "n", "c")
    bench.devices.undo(placement)
    assert bench.devices.overlay(claims, 0.0) is claims


def test_what_was_allocated_by_a_try_whose_answer_got_lost_is_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement, patch = bench.user(), bench.api.patch

    def lose(*words: Any, **more: Any) -> Object:
        found = patch(*words, **more)
        if more.get("subresource") == "status":
            raise ApiError(0, "reset")
        return found

    with monkeypatch.context() as patched:
        patched.setattr(bench.api, "patch", lose)
        with pytest.raises(ApiError):
            bench.devices.prepare(placement)
    bench.devices.prepare(placement)
    bench.devices.undo(placement)
    assert (bench.given(), bench.users()) == ([], [])
