"""Pods that stay on nodes which are to be drained are told so, and their nodes, once while it stands."""

from datetime import UTC, datetime
from typing import Any

import pytest

from kai_solver.cluster.events import CHANGED_S
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.controller.turns import NEVER_S, next_turn_s
from kai_solver.kubeobjects import names
from tests.controller.reporting_world import World
from tests.support.builders import NOW_S, a_cluster, a_gang, a_node, a_queue


@pytest.fixture
def world() -> World:
    """A pod without a controller, which nothing would make again, runs on node a."""
    made = World()
    made.queue("q")
    made.node("a")
    made.node("b")
    made.pod("bare")
    made.round()
    made.run("bare")
    return made


def drain(world: World, node: str, in_s: float | None) -> None:
    at = None if in_s is None else datetime.fromtimestamp(world.now + in_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    world.api.patch(NODES, "", node, {"metadata": {"annotations": {names.OWN_DRAIN_AT: at}}})


def node_of(world: World) -> str:
    return str(world.get(PODS, "bare")["spec"]["nodeName"])


def told(world: World) -> dict[str, str]:
    return {name: found["NotMoved"] for name in ("bare", "a", "b") if "NotMoved" in (found := world.events(name))}


def test_the_pod_and_its_node_are_told(world: World) -> None:
    node = node_of(world)
    drain(world, node, 3600.0)
    world.round()
    assert told(world) == {}, "there is time"
    drain(world, node, 300.0)
    world.round()
    found = told(world)
    assert set(found) == {"bare", node}
    assert found["bare"].startswith(f"Pod n/bare stays: node {node} is to be drained at 1970-01-12T13:")
    assert found["bare"].endswith("but no controller would make it again")
    assert found[node] == "1 pod stays though the node is to be drained: n/bare. Their events say why"
    assert not [note for note in world.round() if "events" in note], "once"


def test_it_is_told_again_where_it_comes_back(world: World) -> None:
    node = node_of(world)
    drain(world, node, 300.0)
    world.round()
    drain(world, node, None)
    world.round()
    world.now += CHANGED_S
    drain(world, node, 200.0)
    assert [note for note in world.round() if "events" in note]


def test_a_cycle_is_due_when_pods_have_to_leave() -> None:
    def turn_of(**node: Any) -> float:
        gangs = [a_gang("runs", on="n0"), a_gang("waits")]
        return next_turn_s(a_cluster([a_node("n0", 4, **node)], gangs, [a_queue("q")])) - NOW_S

    assert turn_of() == NEVER_S
    assert turn_of(drain_at_s=NOW_S + 1000.0) == pytest.approx(370.0)
    assert turn_of(drain_at_s=NOW_S + 600.0) == NEVER_S, "it came already"
