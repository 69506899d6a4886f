"""Placement by queue and workload, from a cluster to a plan that the checker judges."""

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.check import WASTE, check_plan
from kai_solver.domain import Action, Bind, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model

GREEDY = load_model("greedy-only")


def a_cluster(*gangs: dict[str, Any], nodes: int = 4, placement: dict[str, Any] | None = None) -> Snapshot:
    """``nodes`` nodes of four GPUs and one queue below a department; ``placement`` is the department's."""
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"name": "n{i}", "count": nodes, "gpus": 4}],
            "queues": [
                {"name": "all", "quota": 99, "placement": placement or {}},
                {"name": "q", "parent": "all", "quota": 99},
            ],
            "gangs": [{"queue": "q", **gang} for gang in gangs],
        }
    )


def plan_of(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, GREEDY)
    assert check_plan(snapshot, plan) == ()
    return plan


def per_node(plan: Plan) -> list[int]:
    """Pods on the nodes that get some, most first."""
    return sorted(Counter(bind.node for bind in plan.binds).values(), reverse=True)


REPLICAS = {"name": "chat", "pods": [{"replicas": 4, "gpus": 1}]}


@pytest.mark.parametrize(
    ("department", "workload", "expected"),
    [
        ({}, {}, [4]),
        ({"nodes": "spread"}, {}, [1, 1, 1, 1]),
        ({"nodes": "spread"}, {"nodes": "binpack"}, [4]),
        ({"maxPodsPerNode": 2}, {}, [2, 2]),
        ({"maxGpusPerNode": 3}, {}, [3, 1]),
        ({"minNodes": 3}, {}, [2, 1, 1]),
        ({"minNodes": 3}, {"minNodes": 1}, [4]),
        ({"minNodes": 2}, {"maxPodsPerNode": 2}, [2, 2]),
    ],
)
def test_the_workload_speaks_before_its_queues(
    department: dict[str, Any], workload: dict[str, Any], expected: list[int]
) -> None:
    assert per_node(plan_of(a_cluster(REPLICAS | {"placement": workload}, placement=department))) == expected


def test_replicas_that_are_gangs_of_their_own_spread_as_one_workload() -> None:
    alone = {"name": "chat-{i}", "count": 4, "pods": [{"gpus": 1}], "placement": {"minNodes": 4}}
    assert per_node(plan_of(a_cluster(alone))) == [4]
    assert per_node(plan_of(a_cluster(alone | {"workload": "chat"}))) == [1, 1, 1, 1]


def test_pods_that_run_count_and_may_stay_where_they_are_too_many() -> None:
    pods = [{"replicas": 4, "gpus": 1, "running": {"n0": 2}}]
    elastic = {"name": "chat", "minMember": 1, "placement": {"maxPodsPerNode": 1}, "pods": pods}
    plan = plan_of(a_cluster(elastic, nodes=3))
    assert sorted(bind.node for bind in plan.binds) == ["n1", "n2"]
    assert not plan.evictions


def test_an_elastic_workload_takes_new_nodes_until_there_are_enough() -> None:
    pods = [{"replicas": 5, "gpus": 1, "running": {"n3": 2}}]
    elastic = {"name": "chat", "minMember": 1, "placement": {"minNodes": 3}, "pods": pods}
    assert Counter(bind.node for bind in plan_of(a_cluster(elastic)).binds)["n3"] <= 1
    assert len({bind.node for bind in plan_of(a_cluster(elastic)).binds} - {"n3"}) == 2


def test_what_has_room_but_not_as_asked_is_told_so() -> None:
    (pending,) = plan_of(a_cluster(REPLICAS | {"placement": {"minNodes": 4}}, nodes=3)).pending
    assert (pending.reason.value, pending.proof.state) == ("PlacementNotSatisfied", "proven")
    assert "at least 4 nodes" in pending.message


@pytest.mark.parametrize(
    ("placement", "moved"),
    [({"maxGpusPerNode": 3}, "n1"), ({"maxPodsPerNode": 3}, "n1"), ({"minNodes": 4}, "n1")],
)
def test_the_checker_refuses_a_plan_that_breaks_a_rule(placement: dict[str, Any], moved: str) -> None:
    free, ruled = a_cluster(REPLICAS), a_cluster(REPLICAS | {"placement": placement})
    plan = plan_of(free)
    assert {bind.node for bind in plan.binds} == {"n0"}
    assert {violation.rule for violation in check_plan(ruled, plan)} == {"spacing"}
    apart = tuple(replace(b, node=f"n{i}") if i else b for i, b in enumerate(plan.binds))
    assert check_plan(ruled, replace(plan, binds=apart)) == ()
    assert moved in {bind.node for bind in apart}


def shares(*running: float, slots: int, wanted: float, **queue: Any) -> Snapshot:
    """One node of two GPUs with so many pod slots."""
    on_gpu_0 = {"status": "Running", "node": "n", "devices": [0]}
    old = [{"name": f"old-{i}", "gpus": share, **on_gpu_0} for i, share in enumerate(running)]
    gangs = [{"name": "old", "queue": "q", "pods": old}] if old else []
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [{"name": "n", "gpus": 2, "pods": slots}],
            "queues": [{"name": "q", "quota": 9, **queue}],
            "gangs": [*gangs, {"name": "new", "queue": "q", "pods": [{"gpus": wanted}]}],
        }
    )


@pytest.mark.parametrize(
    ("running", "slots", "wanted", "fits"),
    [
        ((), 1, 0.5, False),
        ((), 2, 0.5, True),
        ((0.5,), 3, 0.5, True),
        ((0.5,), 2, 0.5, False),
        ((0.5,), 3, 0.6, False),
        ((0.5,), 4, 0.6, True),
        ((0.5,), 2, 1, False),
        ((0.5,), 3, 1, True),
    ],
)
def test_a_reservation_pod_takes_a_slot_for_each_shared_gpu(
    running: tuple[float, ...], slots: int, wanted: float, *, fits: bool
) -> None:
    snapshot = shares(*running, slots=slots, wanted=wanted)
    plan = plan_of(snapshot)
    assert [bind.pod for bind in plan.binds] == (["default/new-0"] if fits else [])
    larger = cycle(shares(*running, slots=9, wanted=wanted), GREEDY)
    rules = {violation.rule for violation in check_plan(snapshot, replace(plan, binds=larger.binds, admitted=ADMITTED))}
    assert bool(rules) is not fits


ADMITTED = (("default/new", Action.ALLOCATE),)


def test_where_shares_spread_but_slots_are_scarce_the_gpu_that_is_shared_is_joined() -> None:
    spread = {"placement": {"nodes": "spread", "devices": "spread"}}
    (roomy,) = plan_of(shares(0.5, slots=9, wanted=0.5, **spread)).binds
    (scarce,) = plan_of(shares(0.5, slots=3, wanted=0.5, **spread)).binds
    assert [devices_of(bind) for bind in (roomy, scarce)] == [[1], [0]]


def devices_of(bind: Bind) -> list[int]:
    return [device.index for device in bind.devices]


class Random:
    """A cluster by chance: rules of placement, shares and scarce pod slots, some of its pods running."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        counts = range(self.dice.randint(2, 4))
        self.nodes = [{"name": f"n{i}", "gpus": self.one_of(1, 2, 4), "pods": self.one_of(3, 5, 9)} for i in counts]
        self.free = {node["name"]: [1000] * node["gpus"] for node in self.nodes}
        self.slots = {node["name"]: node["pods"] for node in self.nodes}

    def one_of(self, *options: Any) -> Any:
        return self.dice.choice(options)

    def snapshot(self) -> Snapshot:
        queues = [{"name": name, "quota": self.one_of(0, 2, 8), "placement": self.placement()} for name in "ab"]
        gangs = [self.gang(number) for number in range(self.dice.randint(2, 8))]
        document = {"format": "kai-solver/v1", "nodes": self.nodes, "queues": queues, "gangs": gangs}
        return snapshot_from_native(document)

    def placement(self) -> dict[str, Any]:
        options = {"nodes": "spread", "devices": "spread", "maxGpusPerNode": 2, "maxPodsPerNode": 1, "minNodes": 3}
        return {key: value for key, value in options.items() if self.dice.random() < 0.25}

    def gang(self, number: int) -> dict[str, Any]:
        size, runs = self.one_of(0.3, 0.5, 1, 2), self.one_of(True, False)
        pods = [self.pod(size, runs=runs) | {"name": f"g{number}-{i}"} for i in range(self.dice.randint(1, 4))]
        more = {"queue": self.one_of("a", "b"), "priority": self.one_of(50, 75), "workload": self.one_of("", "w")}
        return {"name": f"g{number}", "minMember": 1, "placement": self.placement(), "pods": pods, **more}

    def pod(self, size: float, *, runs: bool) -> dict[str, Any]:
        """A pod on a node where its GPUs and a slot for itself and every device are free, if it is to run."""
        milli, count = (int(size * 1000), 1) if size < 1 else (1000, int(size))
        for name, free in self.free.items() if runs else ():
            devices = [d for d, f in enumerate(free) if f >= milli][:count]
            if len(devices) == count and self.slots[name] > count:
                self.slots[name] -= 1 + (size < 1)
                for device in devices:
                    free[device] -= milli
                return {"gpus": size, "status": "Running", "node": name, "devices": devices}
        return {"gpus": size}


@pytest.mark.parametrize("seed", range(60))
def test_no_plan_by_chance_is_refused(seed: int) -> None:
    snapshot = Random(seed).snapshot()
    plan = cycle(snapshot, GREEDY)
    assert [v for v in check_plan(snapshot, plan) if v.rule not in WASTE] == []
    assert not [note for note in plan.notes if "refused" in note]
