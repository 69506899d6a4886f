"""Gangs are bound all or nothing, whatever the API server does."""

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kai_solver.cluster import trying
from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder, BindError, Directly, GangBound, GangPlacement, LateError, Placement
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import PODS, Resource
from kai_solver.cluster.resting import Resting
from tests.conftest import Caught

Fault = Callable[[str], ApiError | None]


class Faulty(MemoryApi):
    """``before`` and ``after`` a bind of a pod of that name, an error may come."""

    def __init__(self) -> None:
        super().__init__()
        self.before: Fault = lambda _: None
        self.after: Fault = lambda _: None
        self.binds = 0

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        if subresource != "binding":
            return super().create(resource, namespace, body, subresource=subresource)
        self.binds += 1
        name = body["metadata"]["name"]
        early = self.before(name)
        if early is not None:
            raise early
        found = super().create(resource, namespace, body, subresource=subresource)
        late = self.after(name)
        if late is not None:
            raise late
        return found


class Bench:
    """A gang of four pods, a binder, and what became of it."""

    def __init__(self, *steps: Any) -> None:
        self.api, self.assumed = Faulty(), Assumed()
        self.placements: list[Placement] = []
        for index in range(4):
            made = self.api.create(PODS, "n", {"metadata": {"name": f"p{index}"}, "spec": {}})
            self.placements.append(Placement("n", f"p{index}", made["metadata"]["uid"], f"node{index}"))
        self.leads = True
        self.outcomes: list[GangBound] = []
        self.slept: list[float] = []
        self.pool = ThreadPoolExecutor(4)
        self.binder = Binder(
            self.api,
            self.assumed,
            self.pool,
            lambda: self.leads,
            self.outcomes.append,
            steps,
            sleep=self.slept.append,
        )

    def run(self, needed: int = 4) -> GangBound:
        with ThreadPoolExecutor(1) as runner:
            self.binder.submit(GangPlacement("n/g", tuple(self.placements), needed), runner)
        self.pool.shutdown()
        assert not self.binder.open
        return self.outcomes[-1]

    def nodes(self) -> list[str]:
        return [item["spec"].get("nodeName", "") for item in self.api.page(PODS).items]

    def leaving(self) -> list[str]:
        found = self.api.page(PODS).items
        return [item["metadata"]["name"] for item in found if "deletionTimestamp" in item["metadata"]]


def once(name: str, error: ApiError) -> Fault:
    """The fault comes the first time only."""
    left = [error]
    return lambda asked: left.pop() if asked == name and left else None


def test_all_are_bound_and_assumed_until_seen() -> None:
    bench = Bench()
    outcome = bench.run()
    assert len(outcome.bound) == 4
    assert bench.nodes() == ["node0", "node1", "node2", "node3"]
    seen = bench.assumed.overlay(bench.api.page(PODS).items, bench.binder.clock())
    assert len(bench.assumed) == 0, "the API server shows it: nothing is left to assume"
    assert [pod["spec"]["nodeName"] for pod in seen] == bench.nodes()


@pytest.mark.parametrize("status", [0, 429, 500, 503])
def test_what_passes_is_tried_again(status: int) -> None:
    bench = Bench()
    bench.api.before = once("p1", ApiError(status, "later", retry_after_s=3.0))
    assert len(bench.run().bound) == 4
    assert bench.slept
    assert bench.slept[0] >= 3.0, "as long as the server asks"


def test_an_answer_that_got_lost_is_no_second_bind() -> None:
    bench = Bench()
    bench.api.after = once("p2", ApiError(0, "reset"))
    outcome = bench.run()
    assert len(outcome.bound) == 4
    assert not outcome.failed


def test_an_unexpected_error_is_tried_once_more_before_a_gang_is_released(faults: list[Caught]) -> None:
    bench, left = Bench(), [ValueError("once")]

    def fails_once(name: str) -> ApiError | None:
        if name == "p1" and left:
            raise left.pop()
        return None

    bench.api.before = fails_once
    assert len(bench.run().bound) == 4
    assert not bench.leaving()
    assert len(faults) == 1


def test_a_conflict_that_nothing_explains_is_tried_again() -> None:
    bench = Bench()
    bench.api.before = once("p1", ApiError(409, "Conflict", "the object has been modified"))
    assert len(bench.run().bound) == 4
    assert len(bench.slept) == 1


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}, "gone, or is being deleted"),
        ({"spec": {"nodeName": "elsewhere"}}, "elsewhere"),
        ({"spec": {"schedulingGates": [{"name": "quota"}]}}, "gates"),
    ],
)
def test_a_conflict_that_the_pod_explains_is_final(change: dict[str, Any], why: str) -> None:
    bench = Bench()
    bench.api.patch(PODS, "n", "p3", change)
    outcome = bench.run()
    assert not bench.slept
    assert why in {placement.name: text for placement, text in outcome.failed}["p3"]
    assert outcome.released


def test_a_pod_made_anew_under_its_name_is_not_the_one() -> None:
    bench = Bench()
    bench.api.delete(PODS, "n", "p3")
    bench.api.create(PODS, "n", {"metadata": {"name": "p3"}, "spec": {}})
    assert "gone, or is being deleted" in {placement.name: why for placement, why in bench.run().failed}["p3"]
    assert bench.nodes()[3] == ""


def test_nothing_is_bound_to_a_node_that_went() -> None:
    bench = Bench()
    bench.binder.has_node = lambda name: name != "node3"
    outcome = bench.run()
    assert outcome.released
    assert "node3 is gone" in {placement.name: why for placement, why in outcome.failed}["p3"]
    assert bench.nodes()[3] == ""


def test_stranded_pods_go_at_once_and_others_stay() -> None:
    bench = Bench()
    bench.run()
    bench.binder.has_node = lambda name: name != "node3"
    bench.binder.pool = ThreadPoolExecutor(1)
    with ThreadPoolExecutor(1) as runner:
        bench.binder.strand(GangPlacement("n/g", (bench.placements[3],), 0), "its node is gone", runner)
    assert bench.nodes() == ["node0", "node1", "node2"]
    assert bench.outcomes[-1].released
    assert not bench.leaving()
    assert not bench.binder.open


def test_one_that_fails_for_good_releases_the_rest() -> None:
    bench = Bench()
    bench.api.before = lambda name: ApiError(403, "Forbidden") if name == "p3" else None
    outcome = bench.run()
    assert outcome.released
    assert not outcome.bound
    assert bench.leaving() == ["p0", "p1", "p2"]
    assert len(bench.assumed) == 3, "they count as leaving until the watch shows it"
    assert "Forbidden" in {placement.name: why for placement, why in outcome.failed}["p3"]


def test_pods_that_nobody_creates_again_stay_bound() -> None:
    bench = Bench()
    bench.binder.comes_back = lambda placement: placement.name == "p0"
    bench.api.before = lambda name: ApiError(403, "Forbidden") if name == "p3" else None
    outcome = bench.run()
    assert bench.leaving() == ["p0"]
    assert [placement.name for placement in outcome.bound] == ["p1", "p2"]
    assert [placement.name for placement, _ in outcome.failed] == ["p0", "p3"]
    assert outcome.released
    assert bench.binder.resting.now() == {"n/g"}, "the rest is tried again, later"
    assert [pod["spec"].get("nodeName") for pod in bench.api.page(PODS).items][1:3] == ["node1", "node2"]


def test_what_may_not_be_released_counts_as_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    bench.api.before = lambda name: ApiError(403, "Forbidden") if name == "p3" else None

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiError(403, "Forbidden", "a policy")

    monkeypatch.setattr(bench.api, "delete", refuse)
    outcome = bench.run()
    assert not outcome.released
    assert [placement.name for placement in outcome.bound] == ["p0", "p1", "p2"]
    assert [(placement.name, why) for placement, why in outcome.failed] == [("p3", "403 Forbidden")]


def test_what_is_released_has_its_place_until_it_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The watch has shown neither the bindings nor the deletions, and pods have their grace."""
    bench = Bench()
    waiting, delete, during = bench.api.page(PODS).items, bench.api.delete, list[list[str]]()

    def places() -> list[str]:
        return [pod["spec"].get("nodeName", "") for pod in bench.assumed.overlay(waiting, bench.binder.clock())]

    def deleting(*words: Any, **more: Any) -> None:
        during.append(places())
        delete(*words, **more)

    monkeypatch.setattr(bench.api, "delete", deleting)
    bench.api.before = lambda name: ApiError(403, "Forbidden") if name == "p3" else None
    assert bench.run().released
    assert [*during, places()] == [["node0", "node1", "node2", ""]] * 4


def test_an_elastic_rest_may_fail_alone() -> None:
    bench = Bench()
    bench.api.before = lambda name: ApiError(404, "NotFound") if name == "p3" else None
    outcome = bench.run(needed=3)
    assert [placement.name for placement in outcome.bound] == ["p0", "p1", "p2"]
    assert not bench.leaving()
    assert bench.assumed.overlay(bench.api.page(PODS).items, 0.0)[3]["spec"].get("nodeName") is None


def test_a_pod_bound_elsewhere_is_left_there() -> None:
    bench = Bench()
    target = {"metadata": {"name": "p0"}, "target": {"name": "elsewhere"}}
    MemoryApi.create(bench.api, PODS, "n", target, subresource="binding")
    outcome = bench.run()
    assert outcome.released
    assert bench.nodes()[0] == "elsewhere"
    assert bench.leaving() == ["p1", "p2", "p3"]


def test_a_replica_that_does_not_lead_writes_nothing() -> None:
    bench = Bench()
    bench.leads = False
    outcome = bench.run()
    assert len(outcome.failed) == 4
    assert bench.api.binds == 0


def test_a_replica_that_stops_leading_in_the_middle_releases_nothing() -> None:
    bench = Bench()

    def stop(_: str) -> None:
        bench.leads = False

    bench.api.after = stop
    outcome = bench.run()
    assert outcome.failed
    assert not bench.leaving(), "the next leader sees what is bound, and decides"


class Step:
    """A preparation that fails for pods of some names."""

    def __init__(self, *bad: str) -> None:
        self.bad = bad
        self.assumed: list[str] = []
        self.prepared: list[str] = []
        self.undone: list[str] = []

    def concerns(self, placement: Placement) -> bool:
        return placement.name != "p0"

    def assume(self, placement: Placement) -> None:
        self.assumed.append(placement.name)

    def prepare(self, placement: Placement) -> None:
        if placement.name in self.bad:
            raise BindError("the volume cannot be made there")
        self.prepared.append(placement.name)

    def undo(self, placement: Placement) -> None:
        self.undone.append(placement.name)


def test_nothing_is_bound_before_everything_is_prepared() -> None:
    step = Step("p2")
    bench = Bench(step)
    outcome = bench.run()
    assert bench.api.binds == 0
    assert not outcome.released
    assert sorted(step.undone) == ["p1", "p2", "p3"]
    assert "volume" in {placement.name: why for placement, why in outcome.failed}["p2"]


@pytest.mark.parametrize(("error", "waited_s"), [(LateError("no volume"), 100.0), (BindError("no volume"), 0.0)])
def test_what_waited_in_vain_rests_longer(error: BindError, waited_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    class Slow(Step):
        def prepare(self, placement: Placement) -> None:
            if placement.name == "p2":
                now_s[0] += 100.0
                raise error

    now_s, rests = [0.0], list[float]()
    bench = Bench(Slow())
    bench.binder.clock = lambda: now_s[0]
    monkeypatch.setattr(Resting, "failed", lambda _, __, waited_s: rests.append(waited_s))
    assert len(bench.run().failed) == 4
    assert rests == [waited_s]


def test_what_the_server_would_not_take_back_is_taken_back_later() -> None:
    class Refusing(Step):
        def undo(self, placement: Placement) -> None:
            if placement.name == "p1" and refusals:
                raise refusals.pop()
            super().undo(placement)

    refusals = [ApiError(503, "busy"), ApiError(0, "reset")]
    step = Refusing("p2")
    bench = Bench(step)
    assert len(bench.run().failed) == 4
    assert sorted(step.undone) == ["p1", "p2", "p3"]
    assert len(bench.slept) == 2


def test_what_cannot_be_taken_back_holds_up_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Step):
        def undo(self, placement: Placement) -> None:
            raise ApiError(503 if placement.name == "p1" else 403, "no")

    monkeypatch.setattr(trying, "TRY_S", 0.0)
    bench = Bench(Refusing("p2"))
    assert len(bench.run().failed) == 4
    assert len(bench.assumed) == 0


def test_what_was_prepared_stays_for_those_that_are_bound() -> None:
    step = Step("p3")
    bench = Bench(step)
    assert len(bench.run(needed=3).bound) == 3
    assert step.undone == ["p3"]


@pytest.mark.usefixtures("faults")
def test_a_fault_of_our_own_leaves_no_gang_open() -> None:
    class Broken(Step):
        def prepare(self, placement: Placement) -> None:
            raise ZeroDivisionError

    step = Broken()
    bench = Bench(step)
    assert len(bench.run().failed) == 4
    assert len(bench.assumed) == 0
    assert sorted(step.undone) == ["p1", "p2", "p3"], "devices that were assumed would be lost to all"
    assert bench.binder.resting.now() == {"n/g"}, "or it would be tried in every cycle"


def test_a_fault_while_the_rest_is_taken_back_costs_no_bound_pod_its_place(faults: list[Caught]) -> None:
    class Strange(Step):
        has_failed = False

        def concerns(self, placement: Placement) -> bool:
            if self.has_failed:
                raise ZeroDivisionError
            return super().concerns(placement)

        def prepare(self, placement: Placement) -> None:
            if placement.name == "p3":
                with ready:
                    ready.wait_for(lambda: len(self.prepared) == 2, 20)
                    self.has_failed = True
                    raise BindError("the volume cannot be made there")
            super().prepare(placement)
            with ready:
                ready.notify_all()

    ready, step = threading.Condition(), Strange()
    bench = Bench(step)
    assert [placement.name for placement in bench.run(needed=3).bound] == ["p0", "p1", "p2"]
    assert len(bench.assumed) == 3, "or a cycle would promise their places to others before a watch shows them"
    assert step.undone == []
    assert [type(fault.error) for fault in faults] == [ZeroDivisionError]


def test_a_fault_while_others_bind_takes_back_what_they_were_asked_for(faults: list[Caught]) -> None:
    class Strange(Directly):
        def outcome(self, placements: Sequence[Placement], needed: int) -> dict[str, str]:
            raise ZeroDivisionError

        def take_back(self, placement: Placement) -> None:
            taken.append(placement.name)

    taken: list[str] = []
    bench = Bench()
    bench.binder.way = Strange(bench.api, lambda _: True)
    assert len(bench.run().failed) == 4
    assert sorted(taken) == ["p0", "p1", "p2", "p3"]
    assert len(bench.assumed) == 0
    assert [type(fault.error) for fault in faults] == [ZeroDivisionError]


def test_a_place_is_kept_however_long_it_takes_to_be_seen() -> None:
    bench = Bench()
    waiting = bench.api.page(PODS).items
    assert bench.run().bound
    seen = bench.assumed.overlay(waiting, bench.binder.clock() + 1e6)
    assert [pod["spec"].get("nodeName") for pod in seen] == bench.nodes(), "a watch may be silent for minutes"


def test_a_place_is_kept_while_it_is_not_known_whether_its_pod_was_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trying, "TRY_S", 0.0)
    step = Step()
    bench = Bench(step)
    waiting = bench.api.page(PODS).items
    bench.api.after = lambda name: ApiError(0, "reset") if name == "p3" else None
    away, get, seen = [ApiError(0, "reset")] * 5, bench.api.get, list[str]()

    def look(resource: Resource, namespace: str, name: str) -> Object:
        if away:
            seen.append(bench.assumed.overlay(waiting, bench.binder.clock())[3]["spec"].get("nodeName"))
            raise away.pop()
        return get(resource, namespace, name)

    monkeypatch.setattr(bench.api, "get", look)
    outcome = bench.run()
    assert seen == ["node3"] * 5
    assert len(outcome.bound) == 4, "only the answer got lost"
    assert step.undone == [], "what it uses stays its own"


@pytest.mark.parametrize("is_gone", [True, False])
def test_what_was_not_bound_by_a_server_that_fails_gives_back_what_was_prepared(
    monkeypatch: pytest.MonkeyPatch, is_gone: bool
) -> None:
    monkeypatch.setattr(trying, "TRY_S", 0.0)
    step = Step()
    bench = Bench(step)

    def fail(name: str) -> ApiError | None:
        if name == "p3" and is_gone:
            bench.api.delete(PODS, "n", "p3")
        return ApiError(500, "broken") if name == "p3" else None

    bench.api.before = fail
    assert [placement.name for placement, _ in bench.run(needed=3).failed] == ["p3"]
    assert step.undone == ["p3"]
    assert len(bench.assumed) == 3


def test_a_replica_that_stops_leading_while_it_is_not_known_leaves_it_to_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(trying, "TRY_S", 0.0)
    step = Step()
    bench = Bench(step)
    bench.api.after = lambda name: ApiError(0, "reset") if name == "p3" else None

    def away(*_: object) -> Object:
        bench.leads = False
        raise ApiError(0, "reset")

    monkeypatch.setattr(bench.api, "get", away)
    assert "no longer leads" in {placement.name: why for placement, why in bench.run(needed=3).failed}["p3"]
    assert step.undone == []


def test_all_is_assumed_before_anything_is_done() -> None:
    step = Step()
    bench = Bench(step)
    bench.leads = False
    bench.run()
    assert step.assumed == ["p1", "p2", "p3"]
    assert step.prepared == []


def test_long_preparations_do_not_hold_up_other_binds() -> None:
    class Slow(Step):
        def prepare(self, placement: Placement) -> None:
            seen.append(threading.current_thread().name)

    seen: list[str] = []
    bench = Bench(Slow())
    with ThreadPoolExecutor(2, "wait") as waits:
        bench.binder.waits = waits
        assert len(bench.run().bound) == 4
    assert len(seen) == 3
    assert all(name.startswith("wait") for name in seen)


def test_gangs_that_wait_for_others_do_not_hold_up_the_rest() -> None:
    class Slow(Step):
        def prepare(self, placement: Placement) -> None:
            assert go.wait(20)

    go = threading.Event()
    bench = Bench(Slow())
    plain, volume = bench.placements[0], bench.placements[1]
    with ThreadPoolExecutor(1) as runner, ThreadPoolExecutor(1) as patient, ThreadPoolExecutor(1) as waits:
        bench.binder.patient, bench.binder.waits = patient, waits
        bench.binder.submit(GangPlacement("n/slow", (volume,), 1), runner)
        bench.binder.submit(GangPlacement("n/quick", (plain,), 1), runner)
        runner.submit(lambda: None).result(20)
        assert bench.nodes() == ["node0", "", "", ""]
        go.set()
    assert bench.nodes() == ["node0", "node1", "", ""]


def test_a_replica_that_stops_leading_takes_nothing_back() -> None:
    class Deposed(Step):
        def prepare(self, placement: Placement) -> None:
            bench.leads = False
            super().prepare(placement)

    step = Deposed("p2")
    bench = Bench(step)
    assert bench.run().failed
    assert step.undone == []


class Held(MemoryApi):
    """Bindings wait until ``go``."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go = threading.Event(), threading.Event()

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        if subresource == "binding":
            self.asked.set()
            assert self.go.wait(20)
        return super().create(resource, namespace, body, subresource=subresource)


def bound_in(api: MemoryApi) -> list[str]:
    return [pod["metadata"]["name"] for pod in api.page(PODS).items if pod["spec"].get("nodeName")]


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_a_pool_that_is_shut_down_keeps_nothing_waiting(threads: int) -> None:
    """Futures that a shutdown cancels notify no waiter: threads waited for them for ever."""
    api, leads = Held(), [True]
    placements = []
    for index in range(4):
        made = api.create(PODS, "n", {"metadata": {"name": f"p{index}"}, "spec": {}})
        placements.append(Placement("n", f"p{index}", made["metadata"]["uid"], "node"))
    pool, outcomes = ThreadPoolExecutor(threads), list[GangBound]()
    binder = Binder(api, Assumed(), pool, lambda: leads[0], outcomes.append)
    runner = ThreadPoolExecutor(1)
    binder.submit(GangPlacement("n/g", tuple(placements), 4), runner)
    assert api.asked.wait(10)
    leads[0] = False
    pool.shutdown(wait=False, cancel_futures=True)
    api.go.set()
    runner.shutdown(wait=True)
    (outcome,) = outcomes
    assert [placement.name for placement in outcome.bound] == bound_in(api), "the next leader decides about them"
    assert {why for _, why in outcome.failed} == {"this process no longer leads"}
    assert not binder.open


def test_a_gang_that_comes_after_the_shutdown_fails_and_ends() -> None:
    bench = Bench()
    bench.pool.shutdown()
    outcome = bench.run()
    assert {why for _, why in outcome.failed} == {"this process no longer leads"}


def test_a_server_that_asks_for_hours_is_not_obeyed() -> None:
    bench = Bench()
    bench.api.before = once("p1", ApiError(429, "later", retry_after_s=86_400.0))
    assert len(bench.run().bound) == 4
    assert max(bench.slept) <= trying.TRY_S
