"""Events: one for the same thing, counted; few writes for what is told again and again."""

import tracemalloc
from collections.abc import Mapping
from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.cluster.events import AGAIN_S, CHANGED_S, GONE_S, LONGEST, About, Events
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import EVENTS, PODS, Resource
from kai_solver.cluster.writer import Writer


class Clock:
    now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class World:
    def __init__(self, api: MemoryApi | None = None) -> None:
        self.api, self.clock = api or MemoryApi(), Clock()
        self.writer = Writer(lambda: True, monotonic=self.clock)
        self.gone: set[str] = set()
        self.events = Events(
            self.api, self.writer, "kai-scheduler", self.clock, lambda about: about.name not in self.gone
        )

    def tell(
        self, message: str = "text", *, name: str = "p", reason: str = "Unschedulable", state: bool = True
    ) -> None:
        self.events.report(About(PODS, "n", name, "u"), "Warning", reason, message, {"a": "b"}, state=state)

    def after(self, seconds: float = 0.0) -> dict[str, int]:
        """Counts by message."""
        self.clock.now += seconds
        while self.writer.step() is not None:
            pass
        return {item["message"]: item["count"] for item in self.api.page(EVENTS).items}


def test_an_event_says_by_what_why_and_when() -> None:
    world = World()
    world.tell()
    world.after()
    (event,) = world.api.page(EVENTS).items
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Pod", "namespace": "n", "name": "p", "uid": "u"}
    assert (event["type"], event["reason"], event["count"]) == ("Warning", "Unschedulable", 1)
    assert event["firstTimestamp"] == event["lastTimestamp"] == "1970-01-12T13:46:40Z"
    assert event["source"] == {"component": "kai-scheduler"}
    assert event["metadata"]["annotations"] == {"a": "b"}
    assert event["metadata"]["namespace"] == "n"


def test_the_same_again_is_counted_and_written_now_and_then() -> None:
    world = World()
    for _ in range(5):
        world.tell()
        assert world.after(1.0) == {"text": 1}
    assert world.after(AGAIN_S) == {"text": 5}
    assert world.writer.counts.written == 2


def test_a_state_in_other_words_is_told_once_a_while_and_only_the_newest() -> None:
    world = World()
    for number in range(5):
        world.tell(f"{number} nodes")
        world.after(1.0)
    assert world.after() == {"0 nodes": 1}
    assert world.after(CHANGED_S) == {"0 nodes": 1, "4 nodes": 1}


def test_what_happened_is_told_each_time() -> None:
    world = World()
    for number in range(3):
        world.tell(f"node {number}", reason="Evict", state=False)
    assert world.after() == {"node 0": 1, "node 1": 1, "node 2": 1}


def test_pods_have_events_of_their_own() -> None:
    world = World()
    world.tell(name="p")
    world.tell(name="q")
    world.after()
    assert len(world.api.page(EVENTS).items) == 2


def test_a_new_process_goes_on_counting() -> None:
    world = World()
    world.tell()
    world.after()
    second = World(world.api)
    second.tell()
    second.tell()
    assert second.after() == {"text": 3}


def test_an_event_that_the_server_has_forgotten_is_made_anew() -> None:
    world = World()
    world.tell()
    world.after()
    (event,) = world.api.page(EVENTS).items
    world.api.delete(EVENTS, "n", event["metadata"]["name"])
    world.tell()
    assert world.after(AGAIN_S) == {"text": 1}


def test_a_message_is_no_longer_than_servers_take() -> None:
    world = World()
    world.tell("x" * 5000)
    (message,) = world.after()
    assert len(message) == LONGEST


def test_the_name_of_an_event_is_one_that_servers_take() -> None:
    world = World()
    world.tell(name="a" * 229 + "-b" + "c" * 10)
    world.tell(name="a" * 228 + ".-b")
    world.after()
    starts = {item["metadata"]["name"].rpartition(".")[0] for item in world.api.page(EVENTS).items}
    assert starts == {"a" * 229, "a" * 228}


class Forgetful(MemoryApi):
    """Keeps no event, so that all memory is the writer's."""

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        return {}


def test_what_was_told_of_pods_that_are_gone_is_not_remembered_for_ever() -> None:
    """Four events a second for an hour: after that, as much is held as after the first half of it."""
    world, held = World(Forgetful()), []
    tracemalloc.start()
    try:
        for number in range(7200):
            world.tell(name=f"pod-{number}")
            world.tell(name=f"pod-{number}", reason="Scheduled", state=False)
            world.clock.now += 0.5
            while world.writer.step() is not None:
                pass
            if number in (3599, 7199):
                held.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert held[1] < 1.1 * held[0]


def test_events_about_what_is_gone_are_forgotten_with_what_waits_to_be_counted() -> None:
    world = World()
    for name in ("p", "q"):
        world.tell(name=name)
        world.tell(name=name, reason="Scheduled", state=False)
    world.after()
    for name in ("p", "q"):
        world.tell(name=name)
    world.gone.add("p")
    world.after(GONE_S - 1.0)
    world.events.tidy()
    assert len(world.events._tallies) == 4, "it may come again in a moment"
    world.after(GONE_S)
    world.events.tidy()
    assert (
        {about.name for about, *_ in world.events._tallies}
        == {"q"}
        == {about.name for about, _ in world.events._latest}
    )
    assert {key[3] for key in (*world.writer._wishes, *world.writer._written_s)} == {"q"}
    world.after(AGAIN_S)
    assert sorted(item["count"] for item in world.api.page(EVENTS).items) == [1, 1, 1, 2]


def test_what_the_server_does_not_have_yet_is_written_although_its_object_is_gone() -> None:
    world = World()
    world.tell("first")
    assert world.after() == {"first": 1}
    world.tell("second")
    world.tell("third")
    world.gone.add("p")
    assert world.after(GONE_S + 1.0) == {"first": 1}, "other words of one state wait"
    world.events.tidy()
    assert [message for *_, message in world.events._tallies] == ["third"]
    assert world.after(CHANGED_S) == {"first": 1, "third": 1}
    world.events.tidy()
    assert not world.events._tallies


def test_an_event_that_was_forgotten_goes_on_counting() -> None:
    world = World()
    world.tell()
    world.after()
    world.clock.now += 2 * AGAIN_S
    world.tell(name="another")
    world.after()
    world.tell()
    world.after()
    assert sorted(item["count"] for item in world.api.page(EVENTS).items) == [1, 2]
