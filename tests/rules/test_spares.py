"""Nodes that domains keep free: each rule alone, and against every possible plan of a small cluster."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model
from tests.engine.test_tenants import GPUS, a_gang, nodes_of
from tests.support.clusters import some

GREEDY = load_model("greedy-only")


def a_cluster(
    *gangs: dict[str, Any], kept: int = 1, racks: Sequence[int | None] = (0, 0, 1, 1), **more: Any
) -> Snapshot:
    """Nodes of two GPUs in racks that keep ``kept`` of them; ``closed``: names of nodes that take nothing new."""
    closed = more.pop("closed", ())
    nodes = [
        {"name": f"n{i}", "gpus": GPUS, "labels": {} if rack is None else {"rack": f"r{rack}"}}
        | ({"schedulable": False} if f"n{i}" in closed else {})
        for i, rack in enumerate(racks)
    ]
    topology = {"name": "racks", "levels": ["rack"], "spares": {"level": "rack", "nodes": kept}}
    queues = [{"name": "a", "quota": 99}]
    head = {"format": "kai-solver/v1", "nodes": nodes, "topologies": [topology], "queues": queues}
    return snapshot_from_native(head | {"gangs": list(gangs)} | more)


def plan_of(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, GREEDY)
    assert check_plan(snapshot, plan) == ()
    return plan


def test_a_node_of_each_rack_stays_free() -> None:
    assert len(nodes_of(plan_of(a_cluster(a_gang("w", pods=2))))) == 2
    plan = plan_of(a_cluster(a_gang("w", pods=3), racks=[0, 0, 1, 1]))
    assert plan.pending[0].proof.state == "proven"
    assert "were spares: rack r0 keeps 1 free" in plan.pending[0].message
    assert len(nodes_of(plan_of(a_cluster(a_gang("w", pods=3), racks=[0, 0, 1, 1, None])))) == 3


def test_who_says_so_may_use_spares() -> None:
    assert len(nodes_of(plan_of(a_cluster(a_gang("w", pods=4, mayUseSpares=True))))) == 4


def test_a_gang_below_its_minimum_may_use_spares_and_one_that_grows_may_not() -> None:
    pods = [{"replicas": 2, "gpus": GPUS, "running": {"n0": 1}}]
    broken = {"name": "g", "queue": "a", "pods": pods}
    plan = plan_of(a_cluster(broken, racks=[0, 0, 0], closed=["n1"]))
    assert nodes_of(plan) == {"n2"}
    grows = plan_of(a_cluster({**broken, "minMember": 1}, racks=[0, 0, 0], closed=["n1"]))
    assert not grows.binds


def test_nodes_in_use_are_open_and_pods_of_every_kind_use_them() -> None:
    running = a_gang("r", gpus=1, at="n0")
    assert nodes_of(plan_of(a_cluster(running, a_gang("w", gpus=1), racks=[0, 0]))) == {"n0"}
    tools = {"name": "t", "queue": "a", "pods": [{"cpu": 1}]}
    assert nodes_of(plan_of(a_cluster(running, tools, racks=[0, 0]))) == {"n0"}
    assert plan_of(a_cluster(tools, racks=[0])).pending


def test_daemons_use_no_node_and_other_schedulers_gpus_do() -> None:
    def pods(gpus: int) -> list[dict[str, Any]]:
        return [{"name": f"d{i}", "namespace": "kube-system", "cpu": 1, "gpus": gpus, "running": {f"n{i}": 1}}
                for i in range(2 - gpus)]  # fmt: skip

    assert len(plan_of(a_cluster(a_gang("w", gpus=1), racks=[0, 0], foreign=pods(0))).binds) == 1
    (bind,) = plan_of(a_cluster(a_gang("w", gpus=1), racks=[0, 0], foreign=pods(1))).binds
    assert bind.node == "n0"


def test_where_too_few_are_free_no_more_are_taken() -> None:
    full = [a_gang("r", at="n0")]
    plan = plan_of(a_cluster(*full, a_gang("w"), racks=[0, 0, 0], kept=5))
    assert plan.pending
    assert not plan_of(a_cluster(a_gang("r", gpus=1, at="n0"), a_gang("w", gpus=1), racks=[0, 0], kept=5)).pending


def test_nothing_is_moved_to_a_spare_node() -> None:
    gangs = [a_gang("r0", gpus=1, at="n0"), a_gang("r1", gpus=1, at="n1"), a_gang("w", gpus=2, mayUseSpares=True)]
    plan = plan_of(a_cluster(*gangs, racks=[0, 0, 0]))
    assert nodes_of(plan) == {"n2"}
    assert not plan.moves


def test_the_checker_counts_what_is_left_free() -> None:
    snapshot = a_cluster(a_gang("w", pods=2), racks=[0, 0, 0])
    plan = plan_of(snapshot)
    more = a_cluster(a_gang("w", pods=2), racks=[0, 0, 0], kept=2)
    assert [(v.rule, v.object) for v in check_plan(more, plan)] == [("spares", "r0")]


# -- every plan of a small cluster ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    base = load_model("deterministic")
    with (
        Engine(replace(base, actions=(Action.ALLOCATE,))) as still,
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION))) as moving,
        Engine(replace(base, actions=(Action.ALLOCATE, Action.CONSOLIDATION, Action.PREEMPT))) as preempting,
    ):
        yield {"still": still, "moving": moving, "preempting": preempting}


@st.composite
def clusters(draw: Any, running: int) -> Snapshot:
    """One gang waits; the others run, of one pod each, wherever there is room."""
    racks = draw(st.sampled_from([[0, 0, 1], [0, 0, 0, 1], [0, 0, 1, 1], [0, 0, None]]))
    free = [GPUS] * len(racks)
    gangs: list[dict[str, Any]] = []
    for number in range(draw(st.integers(0, running))):
        node, gpus = draw(st.integers(0, len(racks) - 1)), draw(st.integers(1, GPUS))
        if free[node] >= gpus:
            free[node] -= gpus
            gangs.append(a_gang(f"r{number}", gpus=gpus, at=f"n{node}", priority=draw(st.sampled_from([10, 100]))))
    more: dict[str, Any] = {"mayUseSpares": True} if draw(st.integers(0, 3)) == 0 else {}
    gangs.append(a_gang("w", pods=draw(st.integers(1, 3)), gpus=draw(st.integers(1, GPUS)), priority=50, **more))
    closed = draw(st.sampled_from([(), (), ("n1",)]))
    return a_cluster(*gangs, kept=draw(st.integers(1, 2)), racks=racks, closed=closed)


def is_possible(snapshot: Snapshot, *, may_move: bool, may_evict: bool) -> bool:
    """Whether any assignment runs the waiting gang, whoever else is moved or evicted for it."""
    nodes, names = snapshot.nodes, [node.name for node in snapshot.nodes]
    spares = snapshot.topologies[0].spares
    assert spares is not None
    waiting = next(gang for gang in snapshot.gangs if gang.name == "w")
    running = [(gang, pod) for gang in snapshot.gangs for pod in gang.pods if pod.node]
    origins = [names.index(pod.node) for _, pod in running]
    gone, new = -1, [i for i, node in enumerate(nodes) if node.schedulable]
    options: list[list[int]] = []
    for (gang, _), origin in zip(running, origins, strict=True):
        moves = sorted({origin, *new}) if may_move and gang.preemptible else [origin]
        options.append([*moves, gone] if may_evict and gang.preemptible else moves)
    pods = [pod for _, pod in running] + list(waiting.pods)
    racks: dict[str, list[int]] = {}
    for i, node in enumerate(nodes):
        if node.schedulable and "rack" in node.labels:
            racks.setdefault(node.labels["rack"], []).append(i)

    def free(used: set[int]) -> dict[str, int]:
        return {rack: sum(i not in used for i in members) for rack, members in racks.items()}

    before = free(set(origins))
    for choice in product(*options, *([new] * len(waiting.pods))):
        load = [0] * len(names)
        for pod, at in zip(pods, choice, strict=True):
            if at != gone:
                load[at] += pod.gpu.devices
        counted = choice[: len(running)] if waiting.may_use_spares else choice
        after = free(set(counted))
        if max(load) <= GPUS and all(after[rack] >= min(before[rack], spares.nodes) for rack in racks):
            return True
    return False


def decide(engine: Engine, snapshot: Snapshot, **may: bool) -> None:
    """Fails where the plan breaks a rule, a plan that exists is missed, or what is not so is proven."""
    plan = engine.cycle(snapshot)
    assert check_plan(snapshot, plan) == ()
    assert not any("refused" in note for note in plan.notes), plan.notes
    if plan.pending:
        assert not is_possible(snapshot, **may)
        assert plan.pending[0].proof.state == "proven"
    else:
        assert is_possible(snapshot, **may)


@given(cluster=clusters(3))
@some(30)
def test_every_gang_that_can_be_placed_is_and_every_no_is_proven(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["still"], cluster, may_move=False, may_evict=False)


@given(cluster=clusters(3))
@some(40)
def test_every_gang_that_moves_make_room_for_runs(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["moving"], cluster, may_move=True, may_evict=False)


@given(cluster=clusters(4))
@some(40)
def test_every_gang_that_victims_make_room_for_runs(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["preempting"], cluster, may_move=True, may_evict=True)


@given(cluster=clusters(5))
@some(20, campaign=1000)
def test_in_many_clusters(engines: dict[str, Engine], cluster: Snapshot) -> None:
    decide(engines["still"], cluster, may_move=False, may_evict=False)
    decide(engines["moving"], cluster, may_move=True, may_evict=False)
    decide(engines["preempting"], cluster, may_move=True, may_evict=True)
