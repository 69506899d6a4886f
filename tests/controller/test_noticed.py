"""What cannot be used of an object is told to it, and logged, once while it stands."""

from typing import Any

import pytest

from kai_solver.cluster.resources import PODS, QUEUES
from kai_solver.controller.loop import Cycle
from kai_solver.controller.orders import Orders
from kai_solver.controller.reporting.noticed import STANDS_S
from kai_solver.controller.reporting.reporters import LogReporter
from kai_solver.domain import Notice, Plan, Snapshot
from kai_solver.units import ResourceSchema
from tests.controller.reporting_world import World


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world(clock: Clock) -> World:
    made = World()
    made.status_reporter._noticed.monotonic = clock
    made.queue("q")
    made.node("a")
    made.pod("fine")
    return made


def test_a_pod_whose_group_never_comes_is_told_so_after_a_while(world: World, clock: Clock) -> None:
    world.pod("lost", group="nowhere")
    world.round()
    assert world.events("lost") == {}
    assert world.condition("lost") == {}
    clock.now_s += STANDS_S
    world.told()
    assert "waits for PodGroup n/nowhere, which does not exist" in world.events("lost")["NotHonoured"]
    condition = world.condition("lost")
    assert (condition["status"], condition["reason"]) == ("False", "NotHonoured"), "which no autoscaler acts on"
    assert "nowhere" in condition["message"]
    clock.now_s += STANDS_S
    assert [said for said in world.round() if "lost" in said] == [], "once"


def test_what_is_over_in_a_moment_is_not_told(world: World, clock: Clock) -> None:
    world.pod("waits", group="g")
    world.round()
    world.gang("g", 1)
    world.round()
    clock.now_s += STANDS_S
    world.told()
    assert "NotHonoured" not in world.events("waits")
    assert world.condition("waits").get("reason") != "NotHonoured"


def test_objects_of_other_kinds_hear_it_too(world: World, clock: Clock) -> None:
    world.api.create(QUEUES, "", {"metadata": {"name": "odd"}, "spec": {"resources": {"gpu": {"quota": "much"}}}})
    world.round()
    clock.now_s += STANDS_S
    world.told()
    assert "much" in world.events("odd")["SetAside"]


def test_what_gangs_are_told_comes_from_the_plan(world: World, clock: Clock) -> None:
    world.pod("odd")
    world.api.patch(PODS, "n", "odd", {"metadata": {"annotations": {"gpu-fraction": "much"}}})
    world.pod("large", gpus=16)
    world.round()
    before = world.condition("large")
    world.status_reporter._noticed._due = {Notice("warning", "Pod n/large", "something"): 0.0}
    world.status_reporter._noticed._snapshot = world.scheduler.view.snapshot(world.now)
    world.told()
    assert world.events("large")["NotHonoured"] == "something"
    assert world.condition("large") == before
    assert before["reason"] == "Unschedulable"


def test_the_log_names_each_object_once_while_it_stands(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = LogReporter()

    def told(*notices: Notice) -> list[str]:
        snapshot = Snapshot(1000.0, ResourceSchema(), (), (), (), notices=notices)
        reporter.cycle(Cycle(1, snapshot, Plan(), Orders(), (), frozenset(), 0.0, 0.0))
        return [line for line in capsys.readouterr().out.splitlines() if line]

    aside = Notice("set-aside", "Pod n/p", "7 is not a name")
    (line,) = told(aside)
    assert "set aside" in line
    assert "Pod n/p" in line
    assert "7 is not a name" in line
    assert told(aside) == []
    assert told(Notice("set-aside", "Pod n/p", "8 is not a name")) == []
    assert told() == []
    assert len(told(aside)) == 1


def test_many_objects_do_not_flood_the_log(capsys: pytest.CaptureFixture[str]) -> None:
    notices: Any = tuple(Notice("warning", f"Pod n/p{i}", "odd") for i in range(50))
    snapshot = Snapshot(1000.0, ResourceSchema(), (), (), (), notices=notices)
    LogReporter().cycle(Cycle(1, snapshot, Plan(), Orders(), (), frozenset(), 0.0, 0.0))
    lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert len(lines) == 21
    assert "30" in lines[-1]
