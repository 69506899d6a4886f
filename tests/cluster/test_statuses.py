"""Statuses: written only where they change something, and made anew where they are outdated."""

from collections.abc import Mapping
from typing import Any

from kai_solver.cluster.api import Object, WatchEvent
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import POD_GROUPS
from kai_solver.cluster.statuses import BEHIND_S, Change, Statuses
from kai_solver.cluster.store import Store
from kai_solver.cluster.writer import Writer


def says(text: str, versioned: bool = False) -> Change:
    def change(item: Object) -> Mapping[str, Any] | None:
        if (item.get("status") or {}).get("text") == text:
            return None
        version = {"metadata": {"resourceVersion": item["metadata"]["resourceVersion"]}} if versioned else {}
        return {**version, "status": {"text": text}}

    return change


class World:
    def __init__(self) -> None:
        self.api, self.store, self.writer = MemoryApi(), Store(), Writer(lambda: True)
        self.statuses = Statuses(self.api, self.store, self.writer)
        self.uid = self.made("g")["metadata"]["uid"]
        self.see()

    def made(self, name: str) -> Object:
        return self.api.create(POD_GROUPS, "n", {"metadata": {"name": name}})

    def see(self) -> None:
        self.store.replace(POD_GROUPS, self.api.page(POD_GROUPS).items)

    def want(self, text: str, key: str = "n/g", uid: str = "", versioned: bool = False) -> None:
        self.statuses.patch(POD_GROUPS, key, says(text, versioned), topic="t", uid=uid)

    def write(self) -> int:
        """How many writes the server saw."""
        before = int(self.api.page(POD_GROUPS).resource_version)
        self.writer.drain(10.0)
        return int(self.api.page(POD_GROUPS).resource_version) - before

    def text(self) -> str:
        return str(self.api.get(POD_GROUPS, "n", "g")["status"]["text"])


def test_what_stands_already_is_not_written() -> None:
    world = World()
    world.want("a")
    assert world.write() == 1
    world.want("a")  # no watch has shown it yet
    assert len(world.writer) == 0
    world.see()
    world.want("a")
    assert len(world.writer) == 0


def test_back_to_what_an_old_watch_shows_is_a_change() -> None:
    world = World()
    world.want("a")
    world.write()
    world.see()
    world.want("b")
    world.write()
    world.want("a")  # the store still shows a
    assert world.write() == 1
    assert world.text() == "a"


def test_a_wish_that_is_fulfilled_meanwhile_is_dropped() -> None:
    world = World()
    world.want("a")
    world.api.patch(POD_GROUPS, "n", "g", {"status": {"text": "a"}}, subresource="status")
    world.see()
    assert world.write() == 0


def test_an_outdated_wish_is_made_anew_of_what_stands() -> None:
    world = World()
    world.want("a", versioned=True)
    world.api.patch(POD_GROUPS, "n", "g", {"status": {"text": "theirs"}}, subresource="status")
    assert world.write() == 1
    assert world.text() == "a"


def test_another_object_of_that_name_is_left_alone() -> None:
    world = World()
    world.want("a", uid=world.uid)
    world.api.delete(POD_GROUPS, "n", "g")
    world.made("g")
    assert world.write() == 0
    world.see()
    world.want("a", uid=world.uid)
    assert len(world.writer) == 0


def test_an_object_that_is_gone_is_no_failure() -> None:
    world = World()
    world.want("a")
    world.api.delete(POD_GROUPS, "n", "g")
    assert world.write() == 0
    assert world.writer.counts.refused == 0
    world.want("a", key="n/never")
    assert len(world.writer) == 0


def test_an_object_is_made_once() -> None:
    world = World()
    body: Object = {"metadata": {"name": "h", "namespace": "n"}}
    world.statuses.create(POD_GROUPS, body)
    assert world.write() == 1
    world.statuses.create(POD_GROUPS, body)
    assert len(world.writer) == 0
    world.statuses.create(POD_GROUPS, {"metadata": {"name": "i", "namespace": "n"}})
    world.made("i")
    assert world.write() == 0, "somebody else was quicker"


def test_an_object_that_we_made_and_that_was_deleted_is_not_there() -> None:
    world = World()
    world.statuses.create(POD_GROUPS, {"metadata": {"name": "h", "namespace": "n"}})
    world.write()
    item = world.api.get(POD_GROUPS, "n", "h")
    world.store.apply(POD_GROUPS, WatchEvent("ADDED", item))
    assert world.statuses.known(POD_GROUPS, "n/h") is not None
    world.store.apply(POD_GROUPS, WatchEvent("DELETED", item))
    assert world.statuses.known(POD_GROUPS, "n/h") is None


def test_answers_with_which_the_watch_has_caught_up_are_forgotten() -> None:
    world, now = World(), [0.0]
    world.statuses = Statuses(world.api, world.store, world.writer, lambda: now[0])
    world.want("a")
    world.write()
    now[0] = BEHIND_S + 1.0
    world.statuses.tidy()
    assert len(world.statuses._answers) == 1, "the watch is behind"
    world.see()
    world.statuses.tidy()
    assert not world.statuses._answers
