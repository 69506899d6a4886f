"""Orders hold only while what they were made from does."""

from collections.abc import Callable
from typing import Any

import pytest

from kai_solver.cluster.binding import GangPlacement, Placement
from kai_solver.cluster.evicting import Departure
from kai_solver.cluster.resources import NODES, PODS
from kai_solver.cluster.store import Store
from kai_solver.controller.freshness import still_holding
from kai_solver.controller.orders import Orders

Object = dict[str, Any]


def node(name: str, **spec: Any) -> Object:
    ready = {"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}
    return {"metadata": {"name": name}, "spec": spec, "status": {"conditions": [ready]}}


def pod(name: str, uid: str = "", **spec: Any) -> Object:
    return {"metadata": {"namespace": "n", "name": name, "uid": uid or name}, "spec": spec}


def leaving(name: str, *helps: str) -> Departure:
    return Departure("n", name, name, "n/v", "q", "reclaim", helps=helps)


ORDERS = Orders(
    binds=(
        GangPlacement("n/g", (Placement("n", "g0", "g0", "a"), Placement("n", "g1", "g1", "b")), 2),
        GangPlacement("n/h", (Placement("n", "h0", "h0", "c"),), 1),
    ),
    departures=(leaving("v0", "n/g"), leaving("v1", "n/g", "n/h"), leaving("v2", "n/h"), leaving("v3")),
)


def world() -> tuple[Store, dict[str, Object]]:
    store = Store()
    store.replace(NODES, [node(name) for name in "abc"])
    store.replace(PODS, [*(pod(name) for name in ("g0", "g1", "h0")), *(pod(f"v{i}", nodeName="a") for i in range(4))])
    return store, {item["metadata"]["name"]: item for item in store.all(NODES)}


def without(store: Store, name: str, *more: Object) -> None:
    kept = [item for item in store.all(PODS) if item["metadata"]["name"] != name]
    store.replace(PODS, [*kept, *more])


def nodes(store: Store, *changed: Object) -> None:
    names = {item["metadata"]["name"] for item in changed}
    store.replace(NODES, [*(n for n in store.all(NODES) if n["metadata"]["name"] not in names), *changed])


def test_orders_hold_while_nothing_changes() -> None:
    store, seen = world()
    assert still_holding(ORDERS, seen, store) == (ORDERS, frozenset())


def test_a_heartbeat_is_no_change() -> None:
    store, seen = world()
    beating = node("a")
    beating["status"]["conditions"][0]["lastHeartbeatTime"] = "2"
    nodes(store, beating)
    assert still_holding(ORDERS, seen, store)[1] == frozenset()


CHANGES: dict[str, Callable[[Store], None]] = {
    "the pod is gone": lambda store: without(store, "g1"),
    "another pod has its name": lambda store: without(store, "g1", pod("g1", uid="other")),
    "somebody bound it": lambda store: without(store, "g1", pod("g1", nodeName="c")),
    "it was gated": lambda store: without(store, "g1", pod("g1", schedulingGates=[{"name": "x"}])),
    "its node was cordoned": lambda store: nodes(store, node("b", unschedulable=True)),
    "its node is gone": lambda store: store.replace(NODES, [node("a"), node("c")]),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_gang_is_dropped_whole_and_its_victims_stay(change: str) -> None:
    store, seen = world()
    CHANGES[change](store)
    orders, lost = still_holding(ORDERS, seen, store)
    assert lost == {"n/g"}
    assert [gang.gang for gang in orders.binds] == ["n/h"]
    assert [d.name for d in orders.departures] == ["v1", "v2", "v3"]


def test_a_victim_that_is_gone_is_not_sent_away() -> None:
    store, seen = world()
    without(store, "v2")
    orders, lost = still_holding(ORDERS, seen, store)
    assert not lost
    assert [d.name for d in orders.departures] == ["v0", "v1", "v3"]
