"""What a question tried and took back leaves no trace: nobody is gone or moved whom the plan does not name."""

from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Plan
from kai_solver.engine import cycle
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model

Document = dict[str, Any]
ZONE = {"topology": "dc", "required": "zone"}


def a_node(name: str, gpus: int, zone: str, memory: int = 80_000, **more: Any) -> Document:
    return {"name": name, "gpus": gpus, "cpu": 16, "gpuMemory": memory, "labels": {"zone": zone, "rack": zone}} | more


def a_queue(name: str, gpus: int, **more: Any) -> Document:
    quota = {"cpu": "unlimited", "memory": "unlimited", "gpu": gpus}
    return {"name": name, "quota": quota, "weight": 0} | more


def a_gang(name: str, queue: str, born: int, least: int, *pods: Document, **more: Any) -> Document:
    made = [{"name": f"{name}-{i}", "cpu": "100m", "order": [0, float(i), ""]} | pod for i, pod in enumerate(pods)]
    made = [pod | ({"status": "Running"} if "node" in pod else {}) for pod in made]
    start = {"lastStart": 500.0} if any("node" in pod for pod in pods) else {}
    priority = {"priority": 50, "created": float(born), "minMember": least}
    return {"name": name, "queue": queue, "pods": made} | priority | start | more


def shares(milli: int, *devices: int, node: str = "", count: int = 2) -> Document:
    asked: Document = {"gpus": milli / 1000} | ({"gpuDevices": count} if count > 1 else {})
    return asked | ({"node": node, "devices": list(devices)} if node else {})


def whole(node: str = "", *devices: int) -> Document:
    return {"gpus": 1} | ({"node": node, "devices": list(devices)} if node else {})


def of_one_zone() -> Document:
    """Consolidation moves ``pair``, which must lie in one zone, for ``late``; reclaim takes the place of ``late``."""
    here = shares(250, 0, node="n2", count=1) | {"cpu": 4}
    gangs = [
        a_gang("r2", "a", 10, 4, here, here, here, here),
        a_gang("r3", "a", 53, 3, whole("n4", 0), shares(300, 1, 2, node="n4")),
        a_gang("pair", "a", 83, 1, {"node": "n1"}, {"node": "n1"}, topology=ZONE),
        a_gang("r8", "a", 41, 1, shares(300, 1, 2, node="n4")),
        a_gang("late", "a", 83, 1, shares(500)),
        a_gang("w0", "b", 19, 2, *[{"gpuMemory": 20_000}] * 3, {"gpuMemory": 20_000, "cpu": "500m"}),
    ]
    nodes = [
        a_node("n0", 1, "z0", 40_000),
        a_node("n1", 2, "z0", pods=4),
        a_node("n2", 2, "z0", taints=[{"key": "t", "effect": "NoSchedule"}]),
        a_node("n3", 0, "z1"),
        a_node("n4", 3, "z0", 40_000),
    ]
    tops = [a_queue("ta", 0, priority=101), a_queue("tb", 0, priority=100)]
    leaves = [a_queue("a", 2, parent="ta"), a_queue("b", 4, parent="tb")]
    return {"nodes": nodes, "gangs": gangs, "queues": [*tops, *leaves]}


def zone_by_zone() -> Document:
    """``asks`` tries the zones one after the other with victims; what was tried in one is no part of the next."""
    groups = [{"name": "s0", "minMember": 2}, {"name": "s1", "minMember": 1}, {"name": "s2", "minMember": 0}]
    own: Document = {"preemptible": False, "topology": ZONE | {"preferred": "rack"}, "minGroups": 2, "groups": groups}
    asks = a_gang("asks", "b", 79, 2, whole() | {"group": "s0"}, whole() | {"group": "s0"}, **own)
    del asks["minMember"]
    everywhere = [whole(*seat) for seat in (("n2", 0), ("n3", 0), ("n4", 0), ("n4", 1), ("n4", 2))]
    quarters = [{"gpuMemory": 20_000, "node": "n5", "devices": [device]} for device in (0, 1)]
    gangs = [
        a_gang("r0", "b", 93, 5, *everywhere),
        a_gang("r3", "b", 77, 2, shares(300, 2, 3, node="n0")),
        asks | {"priority": 100},
        a_gang("r5", "a", 0, 1, shares(250, count=1)),
        a_gang("r8", "c", 42, 2, *quarters),
        a_gang("w1", "c", 28, 1, whole()),
        a_gang("w3", "a", 59, 0, whole()),
    ]
    offers = [("n0", 4, "0"), ("n2", 1, "1"), ("n3", 1, "2"), ("n4", 3, "1"), ("n5", 2, "2")]
    nodes = [a_node(name, gpus, "z1" if rack == "2" else "z0") for name, gpus, rack in offers]
    for node, (_, _, rack) in zip(nodes, offers, strict=True):
        node["labels"]["rack"] = rack
    spread = {"nodes": "spread", "maxGpusPerNode": 2, "maxPodsPerNode": 1}
    limited = {"limit": {"cpu": "unlimited", "memory": "unlimited", "gpu": 5}}
    queues = [
        a_queue("a", 4, placement=spread),
        a_queue("b", 1, **limited),
        a_queue("top", 2),
        a_queue("c", 1, parent="top"),
    ]
    return {"nodes": nodes, "gangs": gangs, "queues": queues}


def decided(document: Document, model: str) -> Plan:
    topologies = [{"name": "dc", "levels": [{"label": "zone"}, {"label": "rack"}]}]
    snapshot = snapshot_from_native({"format": "kai-solver/v1", "now": 1000.0, "topologies": topologies} | document)
    plan = cycle(snapshot, load_model(model), budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    assert not [note for note in plan.notes if "refused" in note], plan.notes
    return plan


@pytest.mark.parametrize("document", [of_one_zone(), zone_by_zone()], ids=["of-one-zone", "zone-by-zone"])
@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_what_is_disturbed_is_disturbed_for_some_gang(document: Document, model: str) -> None:
    plan = decided(document, model)
    assert plan.admitted
    assert all(move.helps for move in plan.moves)
    assert all(eviction.helps for eviction in plan.evictions)


def given_and_lost() -> Document:
    """Allocate gives ``r1`` its second pod, which takes its queue above its share; no running pod may pay for that."""
    running = shares(300, 0, 1, node="n0")
    gangs = [
        a_gang("r1", "b", 61, 2, running, shares(300)),
        a_gang("r3", "c", 49, 2, {"gpus": 0.25}, {}),
    ]
    queues = [a_queue("a", 1), a_queue("ab", 1, parent="a")]
    queues += [a_queue("b", 1, parent="ab"), a_queue("c", 2, parent="ab")]
    return {"nodes": [a_node("n0", 2, "z0", pods=4)], "gangs": gangs, "queues": queues}


@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_places_of_this_cycle_give_no_right_to_reclaim(model: str) -> None:
    plan = decided(given_and_lost(), model)
    assert plan.evictions == ()
