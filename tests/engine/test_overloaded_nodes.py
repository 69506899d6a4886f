"""Nodes that shrank below what runs there: who could stay there stays, and no bound overlooks what could leave."""

from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Action, Bind, Device, Eviction, Gang, GpuRequest, Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.modelfiles import load_model
from tests.engine.test_false_proofs import LADDERS, actions
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, only_on


def preempting(*binds: tuple[str, str, int], evicted: str, node: str) -> Plan:
    """Pods of the gang ``w`` with one GPU each, in the place of one pod of ``r``."""
    return Plan(
        binds=tuple(Bind(f"ns/{p}", "ns/w", n, (Device(d, 1000),), True, Action.PREEMPT) for p, n, d in binds),
        evictions=(Eviction(f"ns/{evicted}", "ns/r", node, "preempt", ("ns/w",)),),
        admitted=(("ns/w", Action.PREEMPT),),
    )


@pytest.fixture
def shrunk() -> Snapshot:
    """Of an elastic gang, a pod that holds little runs on a node of one core that has half a core too much."""
    cheap = a_pod("r1", gpu=GpuRequest(1, 300), on="b", devices=(0,), order=1, cpu=1000)
    dear = [a_pod("r0", 1, "a", devices=(0,)), a_pod("r2", 1, "a", devices=(1,), order=2)]
    elastic = a_gang("r", dear[0], cheap, dear[1], need=1, priority=40)
    other = a_gang("o", a_pod("o0", 0, "b", cpu=500), priority=90, preemptible=False)
    waiting = a_gang("w", *(a_pod(f"w{i}", order=i, cpu=500) for i in range(2)), priority=60)
    return a_cluster([a_node("a", 3), a_node("b", 1, cpu=1000)], [elastic, other, waiting])


def test_bounds_do_not_overlook_what_runs_on_an_overloaded_node(engine: Engine, shrunk: Snapshot) -> None:
    cheap = preempting(("w0", "a", 2), ("w1", "b", 0), evicted="r1", node="b")
    assert check_plan(shrunk, cheap) == (), "300 GPU-seconds would do"
    plan = engine.cycle(shrunk)
    work = next(stage for stage in plan.stages if stage.name == "evicted-work/40")
    assert actions(plan) == {"ns/w": Action.PREEMPT}
    assert work.bound <= 300


def test_bounds_of_a_node_that_did_not_shrink_hold(engine: Engine, shrunk: Snapshot) -> None:
    sound = replace(shrunk, nodes=(shrunk.nodes[0], a_node("b", 1, cpu=1500)))
    work = next(stage for stage in engine.cycle(sound).stages if stage.name == "evicted-work/40")
    assert (work.value, work.bound) == (300, 300)


def elastic_on(*nodes: str) -> Gang:
    """A gang that needs one of its pods, one on each of ``nodes``."""
    pods = [
        a_pod(f"r{i}", 1, name, devices=(nodes[:i].count(name),), order=i, cpu=1000) for i, name in enumerate(nodes)
    ]
    return a_gang("r", *pods, need=1, priority=40)


@LADDERS
@pytest.mark.parametrize("cpu", [500, 4000])
def test_surplus_on_an_overloaded_node_stays_when_its_core_is_evicted(engine: Engine, model: str, cpu: int) -> None:
    """One pod is in the way, the core; surplus that left with it goes home to a node of half a core."""
    waiting = a_gang("w", a_pod("w0", cpu=800, constraints=only_on("n", "a")), priority=60)
    nodes = [a_node("a", 1, labels={"n": "a"}), a_node("b", 2, cpu=cpu, labels={"n": "b"})]
    snapshot = a_cluster(nodes, [elastic_on("a", "b", "b"), waiting])
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert check_plan(snapshot, plan) == ()
    assert len(plan.evictions) == 1


@LADDERS
def test_nothing_stays_on_an_overloaded_node_beside_a_newcomer(engine: Engine, model: str) -> None:
    """Two pods of a core on a node of one: who takes the place of one cannot have the other beside it."""
    waiting = a_gang("w", a_pod("w0", cpu=800), priority=60)
    snapshot = a_cluster([a_node("b", 2, cpu=1000)], [elastic_on("b", "b"), waiting])
    plan = cycle(snapshot, load_model(model), child=engine.child)
    assert check_plan(snapshot, plan) == ()
    assert {eviction.pod for eviction in plan.evictions} == {"ns/r0", "ns/r1"}
