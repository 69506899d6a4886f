"""With ``binding: bindrequest`` KAI's binder is asked, and what becomes of its answers."""

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder, GangBound, GangPlacement, Placement
from kai_solver.cluster.bindrequests import UNSEEN_S, BindRequests, Reckoned, claim_names, unfinished
from kai_solver.cluster.devices import Devices
from kai_solver.cluster.resources import BIND_REQUESTS, NODES, PODS, RESOURCE_CLAIMS, Resource
from kai_solver.domain import Allotted
from tests.cluster.preparing_world import World

DEVICE = Allotted("gpus", "gpu.example.org", "a", "gpu-0")
OURS = "kai-scheduler"


class Bench(World):
    """``answer`` is KAI's binder: told of each request, after a while."""

    def __init__(self, pool: str = "") -> None:
        super().__init__()
        self.node("a")
        self.devices = Devices(self.api, self.store)
        self.requests = BindRequests(
            self.api,
            self.store,
            self.patience(300),
            self.devices,
            ("kai.scheduler/node-pool", pool),
            clock=lambda: time.time() + self.now_s,
        )
        self.answer: Callable[[Object], None] = self.bound
        self.while_waiting = lambda _: self.binder()
        self.outcomes: list[GangBound] = []

    def binder(self) -> None:
        for request in self.all():
            if not request.get("status"):
                self.answer(request)

    def bound(self, request: Object) -> None:
        name = request["spec"]["podName"]
        target = {"metadata": {"name": name}, "target": {"name": request["spec"]["selectedNode"]}}
        self.api.create(PODS, "n", target, subresource="binding")
        self.say(request, "Succeeded")

    def failed(self, request: Object) -> None:
        self.say(request, "Failed", reason="no device answered")

    def say(self, request: Object, phase: str, **more: str) -> None:
        name = request["metadata"]["name"]
        self.api.patch(BIND_REQUESTS, "n", name, {"status": {"phase": phase, **more}}, subresource="status")

    def all(self) -> list[Object]:
        return self.api.page(BIND_REQUESTS).items

    def one(self) -> Object:
        (found,) = self.all()
        return found

    def placement(self, name: str = "p", **fields: Any) -> Placement:
        return self.pod(name, "a", schedulerName=OURS, **fields)

    def run(self, *placements: Placement, needed: int | None = None) -> GangBound:
        """Bind a gang by `Binder`."""
        assumed = Assumed()
        with ThreadPoolExecutor(2) as pool:
            binder = Binder(
                self.api,
                assumed,
                pool,
                lambda: self.leads,
                self.outcomes.append,
                (Reckoned(self.devices),),
                sleep=lambda _: None,
                way=self.requests,
            )
            with ThreadPoolExecutor(1) as runner:
                binder.submit(GangPlacement("n/g", placements, len(placements) if needed is None else needed), runner)
        return self.outcomes[-1]

    def nodes(self) -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in self.api.page(PODS).items]


# -- what is asked -----------------------------------------------------------------------------------------------------


def test_a_request_is_as_kais_scheduler_writes_it() -> None:
    bench = Bench(pool="a100")
    placement = replace(
        bench.placement(),
        annotations=(("received-resource-type", "Fraction"),),
        devices=((3, 500), (4, 500)),
        groups=("g", "h"),
    )
    bench.requests.bind(placement)
    found = bench.one()
    assert (found["metadata"]["name"], found["metadata"]["namespace"]) == ("p", "n")
    assert bench.requests._request(placement)["kind"] == "BindRequest", "an API server asks for it, MemoryApi does not"
    assert found["metadata"]["labels"] == {"selected-node": "a", "kai.scheduler/node-pool": "a100"}
    assert found["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": placement.uid}
    ]
    assert found["spec"] == {
        "podName": "p",
        "selectedNode": "a",
        "receivedResourceType": "Fraction",
        "receivedGPU": {"count": 2, "portion": "0.50"},
        "selectedGPUGroups": ["g", "h"],
    }, "and no backoffLimit"


@pytest.mark.parametrize(
    ("devices", "wanted"),
    [((), {"count": 0, "portion": "0.00"}), (((0, 1000), (1, 1000)), {"count": 2, "portion": "1.00"})],
)
def test_whole_devices_and_none(devices: Any, wanted: Any) -> None:
    bench = Bench()
    bench.requests.bind(replace(bench.placement(), devices=devices))
    assert bench.one()["spec"]["receivedGPU"] == wanted
    assert bench.one()["metadata"]["labels"] == {"selected-node": "a"}
    assert "selectedGPUGroups" not in bench.one()["spec"]


def test_numa_zones_are_handed_on() -> None:
    bench = Bench()
    zones = [{"zone": "node-1", "amount": {"nvidia.com/gpu": "2"}}]
    stated = (("kai.scheduler/numa-placement-predicted", json.dumps(zones)),)
    bench.requests.bind(replace(bench.placement(), annotations=stated))
    assert bench.one()["spec"]["predictedNUMAZones"] == zones


def test_a_node_with_a_long_name_is_no_label() -> None:
    bench = Bench()
    bench.requests.bind(replace(bench.placement(), node="n" * 64))
    assert bench.one()["metadata"]["labels"] == {}
    assert bench.one()["spec"]["selectedNode"] == "n" * 64


def test_claims_are_called_what_the_pod_calls_them() -> None:
    bench = Bench()
    bench.api.create(RESOURCE_CLAIMS, "n", {"metadata": {"name": "c"}, "spec": {}})
    held = {"devices": {"results": [{"request": "r", "driver": "d", "pool": "p", "device": "x"}]}}
    bench.api.create(RESOURCE_CLAIMS, "n", {"metadata": {"name": "t"}, "spec": {}, "status": {"allocation": held}})
    entries = [{"name": "own", "resourceClaimName": "c"}, {"name": "made", "resourceClaimTemplateName": "x"}]
    placement = bench.placement(resourceClaims=entries)
    status = {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "t"}]}
    bench.api.patch(PODS, "n", "p", {"status": status}, subresource="status")
    bench.see()
    bench.requests.bind(replace(placement, claims=(("n/c", (DEVICE,)), ("n/t", ()))))
    own, made = bench.one()["spec"]["resourceClaimAllocations"]
    assert own["name"] == "own"
    assert own["allocation"]["devices"]["results"][0]["device"] == "gpu-0"
    assert made == {"name": "made", "allocation": held}, "as it is: the binder only reserves it"


def test_the_group_of_a_pod_is_told_before() -> None:
    bench = Bench()
    placement = replace(bench.placement(), annotations=(("pod-group-name", "g"), ("kai-solver/gpus", "0,3")))
    bench.requests.bind(placement)
    assert bench.api.get(PODS, "n", "p")["metadata"]["annotations"] == {
        "pod-group-name": "g",
        "kai-solver/gpus": "0,3",
    }


def test_asked_twice_it_is_one_request() -> None:
    bench = Bench()
    placement = bench.placement()
    bench.requests.bind(placement)
    before = bench.one()
    bench.requests.bind(placement)
    assert bench.one() == before


def test_a_request_of_an_earlier_pod_or_place_makes_way() -> None:
    bench = Bench()
    placement = bench.placement()
    bench.requests.bind(replace(placement, uid="earlier"))
    bench.requests.bind(placement)
    assert bench.one()["metadata"]["ownerReferences"][0]["uid"] == placement.uid
    bench.failed(bench.one())
    bench.requests.bind(replace(placement, node="b"))
    assert bench.one()["spec"]["selectedNode"] == "b"
    assert not bench.one().get("status")


# -- what becomes of it ------------------------------------------------------------------------------------------------


def test_a_gang_is_bound_when_the_binder_has_bound_it() -> None:
    bench = Bench()
    outcome = bench.run(bench.placement("p"), bench.placement("q"))
    assert [placement.name for placement in outcome.bound] == ["p", "q"]
    assert bench.nodes() == ["a", "a"]
    assert [found["status"]["phase"] for found in bench.all()] == ["Succeeded", "Succeeded"], "they go with their pods"


def test_one_that_fails_releases_the_gang_and_takes_all_requests_back() -> None:
    bench = Bench()
    placements = [bench.placement(name) for name in "pqr"]
    acts: dict[str, Callable[[Object], None]] = {"p": bench.bound, "q": bench.failed, "r": lambda _: None}
    bench.answer = lambda request: acts[request["spec"]["podName"]](request)
    outcome = bench.run(*placements)
    assert outcome.released
    assert not outcome.bound
    why = {placement.name: text for placement, text in outcome.failed}
    assert why["q"] == "KAI's binder failed: no device answered"
    assert why["r"] == "the rest of its gang could not be bound"
    assert [found["metadata"]["name"] for found in bench.all()] == ["p"], "bound: its pod leaves, and it goes with it"
    assert [bool(pod["metadata"].get("deletionTimestamp")) for pod in bench.api.page(PODS).items] == [
        True,
        False,
        False,
    ]
    assert bench.now_s < 2, "nobody waits for the third"


def test_an_elastic_rest_may_fail_alone() -> None:
    bench = Bench()
    placements = [bench.placement("p"), bench.placement("q")]
    bench.answer = lambda request: bench.failed(request) if request["spec"]["podName"] == "q" else bench.bound(request)
    outcome = bench.run(*placements, needed=1)
    assert [placement.name for placement in outcome.bound] == ["p"]
    assert not outcome.released
    assert [found["metadata"]["name"] for found in bench.all()] == ["p"]


@pytest.mark.slow
def test_a_binder_that_is_silent_is_waited_for_no_longer_than_set() -> None:
    bench = Bench()
    bench.answer = lambda _: None
    outcome = bench.run(bench.placement())
    assert "has not bound it within 300 s" in outcome.failed[0][1]
    assert bench.now_s == pytest.approx(300, abs=1)
    assert bench.all() == []


@pytest.mark.parametrize("what", ["deleted", "elsewhere", "request"])
def test_what_others_do_meanwhile_ends_the_waiting(what: str) -> None:
    bench = Bench()
    placement = bench.placement()

    def meddle(_: Object) -> None:
        if what == "deleted":
            bench.api.delete(PODS, "n", "p")
        elif what == "elsewhere":
            target = {"metadata": {"name": "p"}, "target": {"name": "b"}}
            bench.api.create(PODS, "n", target, subresource="binding")
        elif bench.now_s > 1:
            bench.api.delete(BIND_REQUESTS, "n", "p")

    bench.answer = meddle
    ((_, why),) = bench.run(placement).failed
    wanted = {"deleted": "the pod is gone", "elsewhere": "on node 'b' already", "request": "BindRequest was deleted"}
    assert wanted[what] in why
    assert bench.now_s < 3


def test_a_request_that_was_deleted_before_any_watch_showed_it_ends_the_waiting() -> None:
    bench = Bench()
    bench.sees_from_s = 1000
    bench.answer = lambda request: bench.api.delete(BIND_REQUESTS, "n", request["metadata"]["name"])
    ((_, why),) = bench.run(bench.placement()).failed
    assert why == "its BindRequest was deleted"
    assert bench.now_s == pytest.approx(UNSEEN_S, abs=0.5)


def test_a_watch_that_is_behind_is_no_deletion(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.sees_from_s = 9
    get, asked = bench.api.get, list[float]()

    def slow(resource: Resource, namespace: str, name: str) -> Object:
        if resource == BIND_REQUESTS:
            asked.append(bench.now_s)
            if len(asked) == 1:
                raise ApiError(503, "later")
        return get(resource, namespace, name)

    monkeypatch.setattr(bench.api, "get", slow)
    assert bench.run(bench.placement()).bound
    assert len(asked) == 4, "now and then"


def test_a_replica_that_stops_leading_takes_nothing_back() -> None:
    bench = Bench()

    def stop(_: Object) -> None:
        bench.leads = False

    bench.answer = stop
    outcome = bench.run(bench.placement())
    assert "no longer leads" in outcome.failed[0][1]
    assert len(bench.all()) == 1, "the next leader reads it"


def test_what_is_taken_back_is_tried_until_the_server_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placements = [bench.placement("p"), bench.placement("q")]
    bench.answer = lambda request: bench.failed(request) if request["spec"]["podName"] == "q" else None
    delete, refused = bench.api.delete, ["p"]

    def refuse(resource: Resource, namespace: str, name: str, **words: Any) -> None:
        if name in refused:
            refused.remove(name)
            raise ApiError(503, "later")
        delete(resource, namespace, name, **words)

    monkeypatch.setattr(bench.api, "delete", refuse)
    assert not bench.run(*placements).bound
    assert refused == []
    assert bench.all() == []


@contextmanager
def refusing_deletes(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Inside it, the API server answers every deletion with an internal error."""

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(500, "InternalError")

    with monkeypatch.context() as patched:
        patched.setattr(bench.api, "delete", refuse)
        yield


def test_what_could_not_be_taken_back_is_deleted_when_the_server_is_well_again(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement, other = bench.placement("p"), bench.placement("q")
    for each in (placement, other):
        bench.requests.bind(each)
    with refusing_deletes(bench, monkeypatch):
        with pytest.raises(ApiError):
            bench.requests.take_back(placement)
        bench.see()
        assert bench.requests.collect() == 1
    assert bench.requests.collect() == 1
    assert bench.one()["spec"]["podName"] == "q", "a thread waits for that one"


def test_what_could_not_be_taken_back_and_is_asked_for_again_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    placement = bench.placement("p")
    bench.requests.bind(placement)
    with refusing_deletes(bench, monkeypatch), pytest.raises(ApiError):
        bench.requests.take_back(placement)
    bench.requests.bind(placement)
    bench.see()
    assert bench.requests.collect() == 0
    assert len(bench.all()) == 1


# -- claims, and requests of others ------------------------------------------------------------------------------------


def test_devices_count_as_given_from_the_plan_until_the_claim_says_so() -> None:
    bench = Bench()
    bench.api.create(RESOURCE_CLAIMS, "n", {"metadata": {"name": "c"}, "spec": {}})
    placement = bench.placement(resourceClaims=[{"name": "own", "resourceClaimName": "c"}])
    placement = replace(placement, claims=(("n/c", (DEVICE,)),))
    step = Reckoned(bench.devices)
    assert step.concerns(placement)
    assert not step.concerns(bench.placement("q"))
    step.assume(placement)
    step.prepare(placement)

    def devices() -> list[str]:
        (claim,) = bench.requests.overlay(bench.store.all(RESOURCE_CLAIMS), 0.0)
        allocation = claim.get("status", {}).get("allocation") or {"devices": {"results": []}}
        return [found["device"] for found in allocation["devices"]["results"]]

    assert devices() == ["gpu-0"]
    step.undo(placement)
    assert devices() == []
    bench.requests.bind(placement)
    assert devices() == [], "the watch has not shown it"
    bench.see()
    assert devices() == ["gpu-0"], "a leader that comes later reads it from the request"
    bench.failed(bench.one())
    bench.see()
    assert devices() == []
    assert "status" not in bench.api.get(RESOURCE_CLAIMS, "n", "c"), "the claim is the binder's to write"


def test_claims_that_a_pod_does_not_have_yet_have_no_name() -> None:
    entries = [{"name": "a", "resourceClaimName": "c"}, {"name": "b", "resourceClaimTemplateName": "t"}]
    assert claim_names({"metadata": {"namespace": "n"}, "spec": {"resourceClaims": entries}}) == {"a": "n/c"}
    assert claim_names({}) == {}


@pytest.mark.parametrize(
    ("what", "is_stale"), [("waits", False), ("failed", True), ("node", True), ("old", True), ("bound", False)]
)
def test_requests_of_an_earlier_leader_are_deleted_where_they_lead_nowhere(what: str, is_stale: bool) -> None:
    bench = Bench()
    placement = bench.placement()
    bench.requests.bind(placement)
    bench.requests._made.clear()  # another process asked
    if what == "failed":
        bench.failed(bench.one())
    elif what == "bound":
        bench.bind(placement)
        bench.failed(bench.one())
    elif what == "node":
        bench.api.delete(NODES, "", "a")
    bench.now_s = 301 if what == "old" else 299
    bench.see()
    assert bench.requests.collect() == is_stale
    assert len(bench.all()) == (not is_stale)


@pytest.mark.parametrize("what", ["waited for", "other scheduler", "other pool"])
def test_requests_of_others_are_left_alone(what: str) -> None:
    bench = Bench(pool="b" if what == "other pool" else "")
    placement = bench.pod("p", "a", schedulerName="another") if what == "other scheduler" else bench.placement()
    bench.requests.bind(placement)
    if what == "other pool":
        body = {"metadata": {"labels": {"kai.scheduler/node-pool": "c"}}}
        bench.api.patch(BIND_REQUESTS, "n", "p", body)
    if what != "waited for":
        bench.requests._made.clear()
    bench.failed(bench.one())
    bench.see()
    assert bench.requests.collect() == 0
    assert len(bench.all()) == 1


def test_a_request_of_a_bound_pod_says_nothing_any_more() -> None:
    bench = Bench()
    placement = bench.placement()
    bench.requests.bind(placement)
    bench.say(bench.one(), "Succeeded")
    bench.see()
    requests = bench.store.all(BIND_REQUESTS)
    assert unfinished(requests, bench.store) == requests, "its pod is not shown on its node yet"
    bench.bind(placement)
    assert unfinished(bench.store.all(BIND_REQUESTS), bench.store) == ()
