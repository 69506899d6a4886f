"""Evictions: budgets hold, rates are limited, the fence is asked."""

from collections.abc import Callable, Mapping
from concurrent.futures import Executor, Future
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.cluster.api import ApiError, Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.evicting import FORGOTTEN_S, FRESH_S, Departed, Departure, Evictor, Rates
from kai_solver.cluster.fenced import FencedApi
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import DISRUPTION_BUDGETS, PODS, Resource


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def departure(
    name: str, gang: str = "n/g", queue: str = "q", helps: tuple[str, ...] = ("n/h",), uid: str = ""
) -> Departure:
    return Departure("n", name, uid, gang, queue, "reclaim", helps=helps)


def running(api: MemoryApi, name: str) -> str:
    made = api.create(PODS, "n", {"metadata": {"name": name, "labels": {"app": "x"}}, "spec": {"nodeName": "n1"}})
    return str(made["metadata"]["uid"])


class Later(Executor):
    """Runs what it was given when told to."""

    def __init__(self) -> None:
        self.given: list[Callable[[], Any]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.given.append(lambda: fn(*args, **kwargs))
        return Future()

    def run(self, count: int = 100) -> None:
        for act in self.given[:count]:
            act()
        del self.given[:count]


def leaving(api: MemoryApi, assumed: Assumed) -> set[str]:
    """Pods that only count as leaving, and are not seen to."""
    seen = api.page(PODS).items
    counted = assumed.overlay(seen, 1e10)
    return {
        after["metadata"]["name"]
        for before, after in zip(seen, counted, strict=True)
        if "deletionTimestamp" in after["metadata"] and "deletionTimestamp" not in before["metadata"]
    }


def test_a_pod_leaves_and_counts_as_leaving() -> None:
    api, assumed = MemoryApi(), Assumed()
    uid = running(api, "p")
    runner, told = Later(), list[tuple[Departed, ...]]()
    evictor = Evictor(api, assumed, lambda: True)
    evictor.submit([departure("p", uid=uid)], runner, told.append)
    assert leaving(api, assumed) == {"p"}, "from the moment on at which it is decided"
    assert "deletionTimestamp" not in api.get(PODS, "n", "p")["metadata"]
    at_work = evictor.at_work
    runner.run()
    assert "deletionTimestamp" in api.get(PODS, "n", "p")["metadata"]
    assert [outcome.refused for outcome in told[0]] == [""]
    assert (at_work, evictor.at_work) == (True, False)
    assert len(assumed) == 1


def test_what_is_refused_counts_as_leaving_no_longer() -> None:
    api, assumed, runner, told = Noting(refused="eviction"), Assumed(), Later(), list[tuple[Departed, ...]]()
    departures = [departure(name, uid=running(api, name)) for name in "pq"]
    Evictor(api, assumed, lambda: True).submit(departures, runner, told.append)
    runner.run(1)
    assert leaving(api, assumed) == {"q"}
    assert not told, "all of them together"
    runner.run(1)
    assert leaving(api, assumed) == set()
    assert [outcome.departure.name for outcome in told[0]] == ["p", "q"]


def test_what_is_refused_has_the_place_that_no_watch_has_shown_yet() -> None:
    api, assumed, runner = Noting(refused="eviction"), Assumed(), Later()
    uid = running(api, "p")
    assumed.bound("n/p", uid, "n1", 0.0)
    Evictor(api, assumed, lambda: True).submit([departure("p", uid=uid)], runner, lambda _: None)
    runner.run()
    waiting = {"metadata": {"namespace": "n", "name": "p", "uid": uid}, "spec": {}}
    assert assumed.overlay([waiting], 1e12)[0]["spec"]["nodeName"] == "n1"


def test_whose_turn_comes_too_late_is_decided_anew() -> None:
    api, assumed, runner, clock, told = Noting(), Assumed(), Later(), Clock(), list[tuple[Departed, ...]]()
    evictor = Evictor(api, assumed, lambda: True, monotonic=clock)
    evictor.submit([departure(name, uid=running(api, name)) for name in "pq"], runner, told.append)
    clock.now += FRESH_S
    runner.run(1)
    clock.now += 1.0
    runner.run(1)
    assert [(outcome.put_off, bool(outcome.refused)) for outcome in told[0]] == [(False, False), (True, True)]
    assert api.notes.count("eviction") == 1
    assert leaving(api, assumed) == set(), "one is seen to leave, the other stays"
    assert not evictor.protected(0.0), "nobody refused it"


@pytest.mark.usefixtures("faults")
def test_a_fault_of_ours_spares_the_others() -> None:
    class Strange(MemoryApi):
        def create(self, resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
            if subresource == "eviction" and body["metadata"]["name"] == "p":
                raise KeyError("nobody thought of this")
            return super().create(resource, namespace, body, subresource=subresource)

    api, runner, told = Strange(), Later(), list[tuple[Departed, ...]]()
    evictor = Evictor(api, Assumed(), lambda: True, clock=Clock())
    evictor.submit([departure(name, uid=running(api, name)) for name in "pq"], runner, told.append)
    runner.run()
    assert ["KeyError" in outcome.refused for outcome in told[0]] == [True, False]
    assert evictor.protected(1001.0) == {"n/p"}


def test_those_under_way_count_for_the_rates() -> None:
    api, runner = MemoryApi(), Later()
    evictor = Evictor(api, Assumed(), lambda: True, Rates(per_cycle=2))
    going, _ = evictor.within_rates([departure("a", uid="a"), departure("b", uid="b")])
    evictor.submit(going, runner, lambda _: None)
    more = [departure("c", gang="n/g2")]
    assert evictor.within_rates(more) == ([], more)
    runner.run()
    assert evictor.within_rates(more) == (more, [])


def test_a_budget_refuses_and_the_pod_is_left_alone_ever_longer() -> None:
    api, clock = MemoryApi(), Clock()
    uid = running(api, "p")
    budget = {
        "metadata": {"name": "b"},
        "spec": {"selector": {"matchLabels": {"app": "x"}}},
        "status": {"disruptionsAllowed": 0},
    }
    api.create(DISRUPTION_BUDGETS, "n", budget)
    evictor = Evictor(api, Assumed(), lambda: True, clock=clock)
    waits = []
    for _ in range(10):
        outcome = evictor.evict(departure("p", uid=uid))
        assert outcome.by_budget
        began = clock.now
        while "n/p" in evictor.protected(clock.now):
            clock.now += 1
        waits.append(clock.now - began)
    assert waits[:4] == [5, 10, 20, 40]
    assert waits[-1] == 300


def test_a_clock_that_is_set_back_protects_no_pod_for_longer() -> None:
    api, clock = MemoryApi(), Clock()
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    api.create(DISRUPTION_BUDGETS, "n", budget)
    evictor = Evictor(api, Assumed(), lambda: True, clock=clock)
    assert evictor.evict(departure("p", uid=running(api, "p"))).by_budget
    clock.now -= 500.0
    assert evictor.protected(clock.now) == {"n/p"}
    assert evictor.protected(clock.now + 5) == frozenset()


class Noting(MemoryApi):
    """Notes what pods are told, in order; refuses what it should."""

    def __init__(self, refused: str = "") -> None:
        super().__init__()
        self.notes: list[str] = []
        self.refused = refused

    def _note(self, note: str) -> None:
        self.notes.append(note)
        if note == self.refused:
            raise ApiError(500, "Broken")

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        self._note(subresource or "create")
        return super().create(resource, namespace, body, subresource=subresource)

    def patch(self, resource: Resource, namespace: str, name: str, body: Any, **options: Any) -> Object:
        (condition,) = body["status"]["conditions"]
        self._note(f"{condition['type']} {condition['status']}: {condition['message']}")
        return super().patch(resource, namespace, name, body, **options)


@pytest.mark.parametrize("grace_s", [30, 0])
@pytest.mark.parametrize("status", [0, 408, 504])
def test_an_answer_that_got_lost_is_no_refusal(status: int, grace_s: int) -> None:
    """The pod leaves, or is gone: its place is kept, it is told nothing else, and nobody asks again."""

    class Losing(Noting):
        def create(self, resource: Resource, namespace: str, body: Any, *, subresource: str = "") -> Object:
            found = super().create(resource, namespace, body, subresource=subresource)
            if subresource == "eviction":
                if not grace_s:
                    self.delete(PODS, "n", "p", grace_s=0)
                raise ApiError(status, "reset")
            return found

    api = Losing()
    evictor = Evictor(api, Assumed(), lambda: True)
    outcome = evictor.evict(departure("p", uid=running(api, "p")))
    assert (outcome.refused, outcome.at_s > 0) == ("", True)
    assert not any("EvictionRefused" in note or "False" in note for note in api.notes)
    assert not evictor.protected(0.0)


@pytest.mark.parametrize("is_away", [True, False])
def test_what_stays_after_an_answer_that_got_lost_was_refused(monkeypatch: pytest.MonkeyPatch, is_away: bool) -> None:
    """As far as can be seen: where nobody answers, too, it is decided anew."""
    api = Noting(refused="eviction")

    def away(*_: Any) -> Object:
        raise ApiError(0, "reset")

    if is_away:
        monkeypatch.setattr(api, "get", away)
    evictor = Evictor(api, Assumed(), lambda: True)
    assert "Broken" in evictor.evict(departure("p", uid=running(api, "p"))).refused
    assert evictor.protected(0.0) == {"n/p"}


def test_refusals_of_pods_that_nothing_asks_for_any_more_are_forgotten() -> None:
    api, clock = Noting(refused="eviction"), Clock()
    evictor = Evictor(api, Assumed(), lambda: True, clock=clock)
    for name in ("p", "q"):
        assert evictor.evict(departure(name, uid=running(api, name))).refused
    clock.now += FORGOTTEN_S
    assert len(evictor._refusals) == 2
    assert evictor.protected(clock.now + 6.0) == frozenset()
    assert not evictor._refusals, "or they would be kept for ever"


def test_a_pod_is_told_why_before_it_is_evicted() -> None:
    api = Noting()
    uid = running(api, "p")
    Evictor(api, Assumed(), lambda: True).evict(replace(departure("p", uid=uid), message="for the better"))
    assert api.notes[1:3] == ["DisruptionTarget True: reclaim: for the better", "eviction"]


def test_a_move_says_where_to_and_for_which_gang() -> None:
    moved = replace(departure("p", helps=("n/h", "n/i")), rule="consolidation", message="room", target="n2")
    assert moved.cause == "consolidation: room; it goes to n2 for n/h, n/i"


def test_where_the_cause_cannot_be_written_nothing_is_evicted() -> None:
    api = Noting(refused="DisruptionTarget True: reclaim: ")
    uid = running(api, "p")
    assert "Broken" in Evictor(api, Assumed(), lambda: True).evict(departure("p", uid=uid)).refused
    assert "eviction" not in api.notes
    assert "deletionTimestamp" not in api.get(PODS, "n", "p")["metadata"]


def test_a_pod_that_is_refused_is_told_that_it_stays() -> None:
    api = Noting(refused="eviction")
    uid = running(api, "p")
    Evictor(api, Assumed(), lambda: True).evict(departure("p", uid=uid))
    (condition,) = api.get(PODS, "n", "p")["status"]["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "EvictionRefused")


def test_a_replica_that_stops_leading_between_the_cause_and_the_eviction_does_not_evict() -> None:
    api, leads = Noting(), [False, True]
    uid = running(api, "p")
    assert "leads" in Evictor(api, Assumed(), leads.pop).evict(departure("p", uid=uid)).refused
    assert "eviction" not in api.notes


def test_another_pod_of_that_name_is_not_evicted() -> None:
    api = MemoryApi()
    running(api, "p")
    assert (
        Evictor(api, Assumed(), lambda: True).evict(departure("p", uid="the one before")).refused == "the pod is gone"
    )
    assert "deletionTimestamp" not in api.get(PODS, "n", "p")["metadata"]


def test_a_replica_that_does_not_lead_evicts_no_pod() -> None:
    api = MemoryApi()
    uid = running(api, "p")
    assert "leads" in Evictor(api, Assumed(), lambda: False).evict(departure("p", uid=uid)).refused
    assert "deletionTimestamp" not in api.get(PODS, "n", "p")["metadata"]


@pytest.mark.parametrize(
    ("rates", "going"),
    [
        (Rates(), "abcdef"),
        (Rates(per_cycle=4), "abcd"),
        (Rates(per_cycle=3), "abe"),
        (Rates(per_cycle=1), "ab"),
        (Rates(per_queue=2), "abef"),
        (Rates(per_cycle=3, per_queue=2), "abe"),
    ],
)
def test_rates_are_kept_by_whole_groups(rates: Rates, going: str) -> None:
    """Two pods of one gang for one other, two of a second gang of the same queue, one each of two other queues."""
    wanted = [
        departure("a"),
        departure("b"),
        departure("c", gang="n/g2"),
        departure("d", gang="n/g2"),
        departure("e", gang="n/g3", queue="r"),
        departure("f", gang="n/g4", queue="s"),
    ]
    may, must_wait = Evictor(MemoryApi(), Assumed(), lambda: True, rates).within_rates(wanted)
    assert "".join(sorted(d.name for d in may)) == going
    assert len(may) + len(must_wait) == len(wanted)


def test_a_replica_that_stops_leading_while_the_server_is_asked_notes_no_refusal() -> None:
    """The fence of the connection closes between our look at it and the request."""
    api = Noting()
    uid = running(api, "p")
    api.notes.clear()
    evictor = Evictor(FencedApi(api, lambda: False), Assumed(), lambda: True)
    assert "no longer leads" in evictor.evict(departure("p", uid=uid)).refused
    assert not api.notes
    assert not evictor.protected(0.0), "whoever leads next may ask at once"


def test_an_eviction_that_is_cut_off_with_the_lead_is_no_refusal() -> None:
    class Cut(MemoryApi):
        leads = True

        def patch(self, *_: Any, **__: Any) -> Object:
            self.leads = False
            raise ApiError(0, "Cut")

    api = Cut()
    uid = running(api, "p")
    evictor = Evictor(api, Assumed(), lambda: api.leads)
    assert "no longer leads" in evictor.evict(departure("p", uid=uid)).refused
    assert not evictor.protected(0.0), "whoever leads next may ask at once"
