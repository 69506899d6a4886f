"""List and watch through every failure that an API server has."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from kai_solver.cluster import api as api_module
from kai_solver.cluster import reflector
from kai_solver.cluster import store as store_module
from kai_solver.cluster.api import ApiError, Object, Page, WatchEvent
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.reflector import Reflector
from kai_solver.cluster.resources import NODES, PODS, QUEUES, Resource
from kai_solver.cluster.store import Store
from tests.conftest import Caught


class Faulty(MemoryApi):
    """Raises what is in ``list_faults`` and ``watch_faults``, in turn, before it answers again."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.list_faults: list[ApiError] = []
        self.watch_faults: list[ApiError] = []
        self.lists = self.watches = 0
        self.events_before_fault = 0

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        self.lists += 1
        if self.list_faults:
            raise self.list_faults.pop(0)
        return super().page(resource, namespace=namespace, limit=2, continue_=continue_)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        self.watches += 1
        for heard, event in enumerate(super().watch(resource, resource_version, 0.05)):
            if self.watch_faults and heard >= self.events_before_fault:
                raise self.watch_faults.pop(0)
            yield event


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "SHORTEST_S", 0.0)
    monkeypatch.setattr(reflector, "ABSENT_S", 0.02)
    monkeypatch.setattr(reflector, "REFUSED_S", 0.0)
    monkeypatch.setattr(reflector, "MISSED_PAUSE_S", 0.02)


@contextmanager
def reflecting(
    api: MemoryApi, *, is_optional: bool = False, resource: Resource = NODES
) -> Iterator[tuple[Store, list[ApiError]]]:
    stop, store, complaints = threading.Event(), Store(), list[ApiError]()
    one = Reflector(
        api, resource, store, stop, lambda _resource, error: complaints.append(error), is_optional=is_optional
    )
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        yield store, complaints
    finally:
        stop.set()
        thread.join(5)
        assert not thread.is_alive(), "a reflector ends when it is told to"


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    end_s = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end_s, "never came true"
        time.sleep(0.01)


def add(api: MemoryApi, *names: str) -> None:
    for name in names:
        api.create(NODES, "", {"metadata": {"name": name}})


def names(store: Store) -> set[str]:
    return {item["metadata"]["name"] for item in store.all(NODES)}


def test_pages_are_joined_and_changes_followed() -> None:
    api = Faulty()
    add(api, "a", "b", "c", "d", "e")
    with reflecting(api) as (store, complaints):
        until(lambda: names(store) == set("abcde"))
        api.delete(NODES, "", "a")
        add(api, "f")
        until(lambda: names(store) == set("bcdef"))
    assert not complaints
    assert api.lists == 3, "watches that end by themselves list nothing again"


@pytest.mark.parametrize("status", [0, 429, 500, 503, 403])
def test_a_list_that_fails_is_tried_again(status: int) -> None:
    api = Faulty()
    add(api, "a")
    api.list_faults = [ApiError(status, "no"), ApiError(status, "no")]
    with reflecting(api) as (store, complaints):
        until(lambda: names(store) == {"a"})
    assert len(complaints) == 2


def test_a_watch_that_breaks_goes_on_where_it_stopped() -> None:
    api = Faulty()
    add(api, "a")
    with reflecting(api) as (store, complaints):
        until(lambda: names(store) == {"a"})
        lists, api.events_before_fault = api.lists, 1
        api.watch_faults = [ApiError(0, "reset"), ApiError(0, "reset")]
        add(api, "b", "c", "d")
        until(lambda: names(store) == set("abcd"))
        assert api.lists == lists
    assert len(complaints) == 2


def test_a_watch_that_is_too_old_lists_again() -> None:
    api = Faulty()
    add(api, "a")
    with reflecting(api) as (store, complaints):
        until(lambda: names(store) == {"a"})
        lists = api.lists
        api.watch_faults = [ApiError(410, "Expired")]
        add(api, "b")
        until(lambda: names(store) == {"a", "b"})
        assert api.lists > lists
    assert [error.status for error in complaints] == [410]


class Troubled(MemoryApi):
    """Never lets a list end, or tells no version, or ends each watch after a bookmark."""

    def __init__(self, trouble: str) -> None:
        super().__init__()
        self.trouble, self.requests = trouble, 0
        add(self, "a", "b", "c")

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        self.requests += 1
        if self.trouble == "continue" and continue_:
            raise ApiError(410, "Expired", "The provided continue parameter is too old")
        found = super().page(resource, limit=2 if self.trouble == "continue" else limit)
        return Page(found.items, "" if self.trouble == "version" else found.resource_version, found.continue_)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        self.requests += 1
        yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": resource_version}})


@pytest.mark.parametrize("trouble", ["continue", "version", "bookmark"])
def test_a_server_in_trouble_is_not_asked_without_pause(trouble: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reflector, "SHORTEST_S", 1.0)
    api = Troubled(trouble)
    with reflecting(api) as (store, complaints):
        time.sleep(0.5)
        assert api.requests < 30
        assert trouble == "continue" or names(store) == {"a", "b", "c"}
    assert bool(complaints) == (trouble != "bookmark")


@pytest.mark.parametrize("is_watched", [False, True])
def test_an_object_that_an_unexpected_error_lost_is_listed_again(
    monkeypatch: pytest.MonkeyPatch, is_watched: bool, faults: list[Caught]
) -> None:
    def key_of(item: Object) -> str:
        key = api_module.key_of(item)
        if key == "lost" and not faults:
            raise ValueError("once")
        return key

    monkeypatch.setattr(store_module, "key_of", key_of)
    api = Faulty()
    add(api, "a", *([] if is_watched else ["lost"]))
    with reflecting(api) as (store, complaints):
        until(lambda: "a" in names(store))
        if is_watched:
            add(api, "lost")
        until(lambda: names(store) == {"a", "lost"})
    assert len(faults) == 1
    assert not complaints
    assert not store.notices()


def test_a_list_that_outlives_its_pages_begins_anew() -> None:
    class Expiring(Faulty):
        expired = False

        def page(
            self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
        ) -> Page:
            if continue_ and not self.expired:
                self.expired = True
                raise ApiError(410, "Expired")
            return super().page(resource, namespace=namespace, limit=limit, continue_=continue_)

    api = Expiring()
    add(api, "a", "b", "c")
    with reflecting(api) as (store, _):
        until(lambda: names(store) == set("abc"))


@pytest.mark.parametrize("is_optional", [True, False])
def test_a_kind_that_we_may_not_see_is_empty_where_it_is_optional(is_optional: bool) -> None:
    class Forbidding(Faulty):
        def page(
            self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
        ) -> Page:
            self.lists += 1
            raise ApiError(403, "Forbidden")

    api = Forbidding()
    with reflecting(api, is_optional=is_optional) as (store, complaints):
        until(lambda: api.lists > 2)
        assert store.is_synced([NODES]) is is_optional
    assert (len(complaints) == 1) is is_optional


def test_a_kind_that_is_not_installed_is_empty_and_no_error() -> None:
    api = Faulty(served=(PODS,))
    with reflecting(api, resource=QUEUES) as (store, complaints):
        until(lambda: store.is_synced([QUEUES]))
        until(lambda: api.lists > 2)
    assert not complaints


def test_a_server_that_denies_a_kind_of_the_core_is_not_believed() -> None:
    api = Faulty()
    api.list_faults = [ApiError(404, "NotFound")] * 3
    add(api, "a")
    with reflecting(api) as (store, complaints):
        until(lambda: names(store) == {"a"})
    assert [error.status for error in complaints] == [404] * 3, "nodes do not go because a proxy answers for the server"


def test_a_refusal_by_a_server_that_was_just_started_empties_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know our rights yet: what was known of the kind stays, or gangs would lose their owners."""
    monkeypatch.setattr(reflector, "REFUSED_S", 1000.0)
    api = Faulty()
    add(api, "a")
    store, stop = Store(), threading.Event()
    one = Reflector(api, NODES, store, stop, is_optional=True)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        until(lambda: len(store.all(NODES)) == 1)
        lists = api.lists
        api.list_faults = [ApiError(403, "Forbidden")] * 3
        store.outdate()
        one.renew()
        api.hang_up()
        until(lambda: api.lists > lists + 2)
        assert len(store.all(NODES)) == 1
        until(lambda: store.is_synced([NODES]))
        assert len(store.all(NODES)) == 1
    finally:
        stop.set()
        thread.join(5)


class Silent(MemoryApi):
    """Watches of before a cut show nothing more: their connections are half open."""

    lists = 0

    def page(self, resource: Resource, **more: Any) -> Page:
        self.lists += 1
        return super().page(resource, **more)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        found = super().watch(resource, self.page(resource).resource_version, timeout_s)
        return (event for event in found if event.object["metadata"]["name"] != "b")


def test_what_is_told_to_list_again_waits_for_no_watch() -> None:
    api, store, stop = Silent(), Store(), threading.Event()
    add(api, "a")
    one = Reflector(api, NODES, store, stop)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        until(lambda: len(store.all(NODES)) == 1)
        add(api, "b")
        time.sleep(0.1)
        assert len(store.all(NODES)) == 1, "the watch is silent"
        store.outdate()
        one.renew()
        api.hang_up()
        until(lambda: store.is_synced([NODES]))
        assert len(store.all(NODES)) == 2
    finally:
        stop.set()
        thread.join(5)


def test_what_was_seen_before_it_was_told_to_list_again_is_not_kept() -> None:
    """A list and a watch that began before may be older than what is listed then."""

    class Held(MemoryApi):
        asked, go = threading.Event(), threading.Event()
        is_first = True

        def page(self, resource: Resource, **more: Any) -> Page:
            found = super().page(resource, **more)
            if self.is_first:
                self.is_first = False
                self.asked.set()
                assert self.go.wait(20)
            return found

    api, store, stop = Held(), Store(), threading.Event()
    seen: list[int] = []
    store.listen(lambda *_: seen.append(len(store.all(NODES))))
    add(api, "a")
    one = Reflector(api, NODES, store, stop)
    thread = threading.Thread(target=one.run)
    thread.start()
    try:
        assert api.asked.wait(20)
        add(api, "b")
        one.renew()
        api.go.set()
        until(lambda: store.is_synced([NODES]))
        assert seen[0] == 2, "the old list was thrown away"
    finally:
        stop.set()
        thread.join(5)
