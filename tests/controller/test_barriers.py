"""Steps of the loop, bound gangs, and parts that fail unexpectedly: each affects only itself, and is retried."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.cluster import store
from kai_solver.cluster.api import Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.resources import NODES, PODS, Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.view import View
from kai_solver.controller import orders
from kai_solver.controller.faults import AGAIN_S, Faults
from kai_solver.controller.keeper import LONGEST_PAUSE_S, OFTEN, WELL_S, Keeper
from kai_solver.controller.reporting.reporters import LogReporter, Reporters
from kai_solver.domain import Plan, Snapshot
from kai_solver.kubeobjects import RawObjects, assemble
from kai_solver.metrics import Metrics
from tests.conftest import Caught
from tests.controller.test_loop import World


@pytest.fixture
def world() -> Iterator[World]:
    made = World()
    made.queue("q")
    made.node("a")
    yield made
    made.close()


def test_cycles_that_break_off_are_tried_again_after_growing_pauses(world: World, faults: list[Caught]) -> None:
    decide, left, pauses = world.scheduler.decide, [3], []

    def strange(snapshot: Snapshot) -> Plan:
        pauses.append(world.scheduler.pause_s)
        if left[0]:
            left[0] -= 1
            raise KeyError("nobody thought of this")
        return decide(snapshot)

    world.scheduler.decide = strange
    world.pod("p", gpus=1)
    world.start()
    world.until(lambda: world.places() == {"p": "a"})
    assert [(fault.where, fault.what) for fault in faults] == [("running", "the cycle")] * 3
    assert pauses[:4] == [0.05, 0.1, 0.2, 0.4]
    world.until(lambda: world.scheduler.problem == "")


def test_a_look_before_a_cycle_that_fails_is_tried_again(world: World, faults: list[Caught]) -> None:
    left = [3]

    def strange() -> bool:
        left[0] -= 1
        if left[0] >= 0:
            raise KeyError("nobody thought of this")
        return True

    world.scheduler.knows = strange
    world.pod("p", gpus=1)
    world.start()
    world.until(lambda: world.places() == {"p": "a"})
    assert len(faults) == 3


class Strange:
    """A preparation of the pods of one gang."""

    def __init__(self, step: str) -> None:
        self.step = step
        self.calls: list[str] = []

    def concerns(self, placement: Any) -> bool:
        return bool(placement.name.startswith("bad"))

    def __getattr__(self, name: str) -> Any:
        def act(placement: Any) -> None:
            self.calls.append(name)
            if name == self.step:
                raise ZeroDivisionError("nobody thought of this")

        return act


@pytest.mark.parametrize("step", ["assume", "prepare", "undo"])
def test_a_gang_whose_binding_fails_unexpectedly_costs_itself(world: World, faults: list[Caught], step: str) -> None:
    strange = Strange(step)
    world.scheduler.binder.steps = (strange,)
    world.pod("bad", gpus=1)
    world.pod("good", gpus=1)
    world.start()
    world.until(lambda: "good" in world.places())
    if step == "undo":  # nothing is to be undone where all goes well
        world.until(lambda: "bad" in world.places())
        assert faults == []
        return
    world.until(lambda: strange.calls.count(step) >= 2)  # it is tried again
    assert world.places() == {"good": "a"}
    failed: list[GangBound] = [outcome for outcome in world.notes.outcomes if outcome.failed]
    assert "unexpected error: ZeroDivisionError" in failed[0].failed[0][1]
    assert {fault.where for fault in faults} == {"binding"}
    strange.step = "nothing"
    world.until(lambda: world.places().keys() == {"good", "bad"})


def test_a_gang_whose_orders_cannot_be_made_costs_itself(
    world: World, faults: list[Caught], monkeypatch: pytest.MonkeyPatch
) -> None:
    placement = orders._placement

    def strange(bind: Any, *rest: Any) -> Any:
        if bind.pod == "n/bad":
            raise KeyError("nobody thought of this")
        return placement(bind, *rest)

    monkeypatch.setattr(orders, "_placement", strange)
    world.pod("bad", gpus=1)
    world.pod("good", gpus=1)
    world.start()
    world.until(lambda: world.places() == {"good": "a"})
    assert {(fault.where, fault.what) for fault in faults} == {("ordering", faults[0].what)}


def test_listeners_and_trimming_that_fail_cost_their_own_object(
    faults: list[Caught], monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[str] = []

    def strange(resource: Resource, key: str, before: Object | None, after: Object | None) -> None:
        raise KeyError("nobody thought of this")

    def trimmed(resource: Resource, value: Object) -> Object:
        if value["metadata"]["name"] == "b":
            raise RecursionError
        return value

    monkeypatch.setattr(store, "trimmed", trimmed)
    kept = Store()
    kept.listen(strange)
    kept.listen(lambda resource, key, before, after: heard.append(key))
    kept.replace(NODES, [{"metadata": {"name": name}} for name in "abc"])
    assert sorted(heard) == ["a", "b", "c"]
    assert kept.is_synced((NODES,))
    assert len(kept.all(NODES)) == 3
    assert {fault.what for fault in faults} == {"Node a", "Node b", "Node c"}


def test_deep_objects_are_news_and_no_error() -> None:
    deep: Any = {}
    for _ in range(5_000):
        deep = {"a": deep}
    pod = {"metadata": {"name": "p"}, "spec": deep}
    other = {"metadata": {"name": "p"}, "spec": {"a": deep}}
    assert store.is_worth_a_cycle(PODS, pod, other)
    assert not store.is_as_expected(pod, other)


class Times:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_part_is_started_again_after_growing_pauses_and_counts_as_failing_meanwhile(faults: list[Caught]) -> None:
    times, pauses, seen = Times(), [], []
    keeper = Keeper(threading.Event(), times)

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            pauses.append(timeout)
            seen.append(bool(keeper.failing))
            times.now_s += timeout or 0.0
            return len(pauses) == 20

    keeper.stop = Stop()
    runs = [0]

    def run() -> None:
        runs[0] += 1
        times.now_s += WELL_S + 1 if runs[0] == 12 else 0.0
        assert bool(keeper.failing) is (OFTEN < runs[0] < 12 or runs[0] > 12 + OFTEN - 1)
        raise OSError("nobody thought of this")

    keeper.keep("part", run)
    assert seen == [False] * 2 + [True] * 9 + [False] * 2 + [True] * 7
    assert all(0.5 * 2**i <= (pause or 0.0) <= 2**i for i, pause in enumerate(pauses[:6]))
    assert all((pause or 0.0) <= LONGEST_PAUSE_S for pause in pauses)
    assert (pauses[11] or 0.0) <= 1.0, "it was well, so it begins anew"
    assert len(faults) == 20


def test_a_part_that_ends_by_itself_is_not_started_again() -> None:
    runs: list[int] = []
    keeper = Keeper(threading.Event())
    keeper.start("part", lambda: runs.append(1)).join(10)
    assert (runs, keeper.failing) == ([1], {})


def test_each_error_of_an_object_is_logged_once_with_its_trace_and_counted_each_time(
    capsys: pytest.CaptureFixture[str],
) -> None:
    metrics, times = Metrics(), Times()
    told = Faults(metrics, times)
    for _ in range(3):
        told("reading", "Pod n/p", KeyError("x"))
    told("reading", "Pod n/q", KeyError("x"))
    assert capsys.readouterr().out.count("unexpected error caught") == 2
    times.now_s = AGAIN_S + 1
    told("reading", "Pod n/p", KeyError("x"))
    assert "Pod n/p" in capsys.readouterr().out
    assert metrics.registry.get_sample_value("kai_solver_faults_total", {"where": "reading"}) == 5


def test_a_reporter_that_fails_spares_the_others(faults: list[Caught]) -> None:
    class Bad:
        def __getattr__(self, name: str) -> Any:
            raise KeyError("nobody thought of this")

    told, heard = Reporters(), []

    class Good(LogReporter):
        def bound(self, outcome: GangBound) -> None:
            heard.append(outcome.gang)

    told.add(Bad())
    told.add(Good())
    told.bound(GangBound("g", ()))
    assert heard == ["g"]
    assert [(fault.where, fault.what) for fault in faults] == [("reporting", "Bad")]


def test_objects_that_spoil_what_is_laid_over_them_cost_themselves(
    world: World, faults: list[Caught], monkeypatch: pytest.MonkeyPatch
) -> None:
    def strange(pods: tuple[Object, ...], now_s: float) -> tuple[Object, ...]:
        if any(pod["metadata"]["name"] == "bad" for pod in pods):
            raise KeyError("nobody thought of this")
        return pods

    view = world.scheduler.view
    monkeypatch.setattr(view, "_overlays", (*view._overlays, strange))
    world.pod("bad", gpus=1)
    world.pod("good", gpus=1)
    world.start()
    world.until(lambda: world.places() == {"good": "a"})
    world.until(lambda: bool(world.notes.cycles))
    assert {(fault.where, fault.what) for fault in faults} == {("reading", "Pod n/bad")}
    notices = world.notes.cycles[-1].snapshot.notices
    assert [notice.object for notice in notices if "nobody thought of this" in notice.text] == ["Pod n/bad"]


@pytest.mark.parametrize("spec", [{}, None, "text", ["text"]])
def test_a_pod_without_a_readable_spec_that_spoils_what_is_laid_over_it_costs_itself(
    spec: object, faults: list[Caught]
) -> None:
    def strange(pods: tuple[Object, ...], _: float) -> tuple[Object, ...]:
        return tuple(pod for pod in pods if pod["spec"]["containers"])

    known = store.Store()
    bad, good = ({"metadata": {"namespace": "n", "name": name}} for name in ("bad", "good"))
    known.replace(PODS, [{**bad, "spec": spec}, {**good, "spec": {"containers": [{}]}}])
    view = View(known, Assumed(), overlays=(strange,))
    assert [pod["metadata"]["name"] for pod in view.objects(0.0).pods] == ["good"]
    assert [fault.what for fault in faults] == ["Pod n/bad"]


def test_a_long_search_for_what_spoils_the_reading_counts_as_life(
    world: World, faults: list[Caught], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that is ended for it would begin the same search again."""
    now_s, read, still_s = [0.0], assemble._read, []

    def strange(objects: RawObjects, *rest: Any) -> Snapshot:
        now_s[0] += 10.0
        still_s.append(now_s[0] - world.scheduler.beat_s)
        if any(pod["metadata"]["name"] == "bad" for pod in objects.pods):
            raise KeyError("nobody thought of this")
        return read(objects, *rest)

    for name in ("bad", *(f"good-{index}" for index in range(20))):
        world.pod(name, gpus=0)
    world.seen()
    monkeypatch.setattr(assemble, "_read", strange)
    world.scheduler.monotonic = lambda: now_s[0]
    world.scheduler.step()
    assert len(still_s) > 5
    assert max(still_s) <= 10.0
    assert {fault.what for fault in faults} == {"Pod n/bad"}
