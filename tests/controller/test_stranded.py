"""Pods bound to a node that is gone: released when it stays away, and nobody else."""

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

from kai_solver.cluster.api import Object
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.binding import Binder, GangPlacement, Placement
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.cluster.store import Store
from kai_solver.controller.stranded import GONE_S, Stranded


class Noting(Binder):
    """Notes who is to be released."""

    def __init__(self) -> None:
        super().__init__(MemoryApi(), Assumed(), ThreadPoolExecutor(1), lambda: True, lambda _: None)
        self.released: list[str] = []

    def strand(self, gang: GangPlacement, why: str, runner: Executor) -> None:
        self.released += [placement.name for placement in gang.placements]


class World:
    """Two pods of one gang, on two nodes of their own."""

    def __init__(self) -> None:
        self.now_s, self.store, self.binder = 0.0, Store(), Noting()
        self.stranded = Stranded(lambda: self.now_s)
        self.store.listen(self.stranded)
        self.stranded.watch([GangPlacement("n/g", tuple(Placement("n", p, f"u-{p}", f"node-{p}") for p in "ab"), 2)])
        self.store.replace(PODS, [pod("a"), pod("b")])
        self.nodes("node-a", "node-b")

    def nodes(self, *names: str) -> None:
        self.store.replace(NODES, [{"metadata": {"name": name}} for name in names])

    def look(self, at_s: float) -> list[str]:
        """Who is released at the look."""
        self.now_s, self.binder.released = at_s, []
        self.stranded.release(self.store, self.binder, self.binder.pool)
        return self.binder.released


def pod(name: str, **status: Any) -> Object:
    metadata = {"namespace": "n", "name": name, "uid": f"u-{name}"}
    return {"metadata": metadata, "spec": {"nodeName": f"node-{name}"}, "status": status}


def test_whose_node_stays_away_is_released() -> None:
    world = World()
    assert world.look(0.0) == []
    world.nodes("node-a")
    assert world.look(1.0) == []
    assert world.look(1.0 + GONE_S) == ["b"]


def test_who_stays_all_the_same_is_released_ever_more_rarely() -> None:
    world = World()
    world.nodes("node-a")
    assert world.look(0.0) == []
    released = [second for second in range(5, 100) if world.look(float(second))]
    assert released == [5, 6, 8, 12, 20, 36, 66, 96]


def test_who_is_being_deleted_is_not_released_again() -> None:
    world = World()
    world.nodes("node-a")
    assert world.look(0.0) == []
    leaving = pod("b")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    world.store.replace(PODS, [pod("a"), leaving])
    assert world.look(2 * GONE_S) == []


def test_whose_node_comes_back_stays() -> None:
    world = World()
    world.nodes("node-a")
    assert world.look(1.0) == []
    world.nodes("node-a", "node-b")
    assert world.look(2.0) == []
    world.nodes("node-a")
    assert world.look(2.0 + GONE_S) == [], "it must be away for as long anew"
    assert world.look(2.0 + 2 * GONE_S) == ["b"]


@pytest.mark.parametrize("after", [[pod("a"), pod("b", phase="Running")], [pod("a")]])
def test_what_began_or_is_gone_is_not_looked_for_any_more(after: list[Object]) -> None:
    world = World()
    world.store.replace(PODS, after)
    world.nodes("node-a")
    assert world.look(0.0) == world.look(2 * GONE_S) == []


def test_what_is_still_being_bound_waits() -> None:
    world = World()
    world.nodes()
    world.binder._open.add("n/g")
    assert world.look(0.0) == world.look(GONE_S) == []
    world.binder._open.clear()
    assert world.look(GONE_S + 1.0) == ["a", "b"]


def test_nodes_that_went_are_not_remembered_for_ever() -> None:
    world = World()
    world.nodes()
    world.look(0.0)
    assert set(world.stranded._missing) == {"node-a", "node-b"}
    world.store.replace(PODS, [])
    world.look(1.0)
    assert world.stranded._missing == {}


def test_pods_that_went_before_their_binding_was_ordered_are_not_remembered_for_ever() -> None:
    world = World()
    late = Placement("n", "late", "u-late", "node-a")
    world.stranded.watch([GangPlacement("n/late", (late,), 1)])
    world.look(0.0)
    assert set(world.stranded._bound) == {"n/a", "n/b"}
