"""Plans that are carried out, cycle after cycle: nothing is undone, moved twice, promised or bound for nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Bind, Eviction, Move, Plan, PodStatus, Snapshot, with_moves
from kai_solver.engine import Engine
from kai_solver.instances_io import snapshot_from_native
from kai_solver.planstate.state import State
from kai_solver.problem import build_problem
from tests.support.chains import Course, judge_chain
from tests.support.engines import patient_engine

FOUND = sorted((Path(__file__).parent / "over_time").glob("*.json"))
"""Clusters that did not settle, or started work in vain, found by chains of random ones."""

COURSES = [
    Course(leaving, keeps_nominations=keeps) for leaving, keeps in ((0, False), (1, False), (2, True), (0, True))
]


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Engine]]:
    with patient_engine("greedy-only") as greedy, patient_engine("deterministic") as solver:
        yield {"greedy-only": greedy, "deterministic": solver}


def snapshot_of(path: Path) -> Snapshot:
    return snapshot_from_native(json.loads(path.read_text()))


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
@pytest.mark.parametrize("path", FOUND, ids=lambda path: path.stem)
def test_what_did_not_settle_settles(engines: dict[str, Engine], model: str, path: Path) -> None:
    for course in COURSES:
        faults = judge_chain(snapshot_of(path), engines[model].cycle, course)
        assert [str(fault) for fault in faults] == [], course


# -- the judge -----------------------------------------------------------------------------------------------------


def test_the_judge_sees_pods_that_move_to_and_fro() -> None:
    """The pod is moved for g, and bound again where it came from."""
    cluster = a_cluster([a_gang("m", {"gpus": 1, "node": "n0", "status": "Running"}), a_gang("g", {"gpus": 4})])

    def decide(snapshot: Snapshot) -> Plan:
        (pod,) = next(gang.pods for gang in snapshot.gangs if gang.name == "m")
        if pod.status is PodStatus.RUNNING:
            return Plan(moves=(Move(pod.key, "default/m", "n0", "n1", helps=("default/g",)),))
        return Plan(binds=(Bind(pod.key, "default/m", "n0"),))

    kinds = {fault.kind for fault in judge_chain(cluster, decide, Course(0))}
    assert kinds == {"loop", "moved-again", "bound-for-nothing", "restless"}


def test_the_judge_sees_promises_of_what_no_pod_leaves() -> None:
    cluster = a_cluster([a_gang("g", {"gpus": 1})])
    promise = Plan(binds=(Bind("default/g-0", "default/g", "n0", nominated=True),))
    assert {fault.kind for fault in judge_chain(cluster, lambda _: promise, Course(0))} == {"promised-for-nothing"}


def test_the_judge_sees_plans_without_end() -> None:
    cluster = a_cluster([a_gang("g", {"gpus": 1})])
    pod = cluster.gangs[0].pods[0].key

    def decide(snapshot: Snapshot) -> Plan:
        if snapshot.gangs[0].pods[0].status is PodStatus.RUNNING:
            return Plan(evictions=(Eviction(pod, "default/g", "n0", "reclaim"),))
        return Plan(binds=(Bind(pod, "default/g", "n0"),))

    kinds = {fault.kind for fault in judge_chain(cluster, decide, Course(0))}
    assert kinds == {"loop", "bound-for-nothing", "restless"}


# -- pods that are being moved -------------------------------------------------------------------------------------


def a_gang(name: str, *pods: dict[str, Any], **more: Any) -> dict[str, Any]:
    made = [{"name": f"{name}-{number}", "cpu": "100m"} | pod for number, pod in enumerate(pods)]
    return {"name": name, "queue": "q", "priority": 50, "pods": made} | more


def a_cluster(gangs: list[dict[str, Any]], nodes: int = 2, gpus: int = 4) -> Snapshot:
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "now": 1000.0,
            "nodes": [{"name": f"n{i}", "gpus": gpus, "labels": {"host": f"n{i}"}} for i in range(nodes)],
            "queues": [{"name": "q", "quota": nodes * gpus}],
            "gangs": gangs,
        }
    )


LEAVING = {"gpus": 2, "node": "n0", "status": "Releasing", "nominatedNode": "n1"}


def test_the_place_of_a_pod_that_is_being_moved_is_of_no_other_pod(engines: dict[str, Engine]) -> None:
    """It leaves n0 for n1: what is left there is 2 GPUs, and 4 of n0 once it has left."""
    cluster = a_cluster([a_gang("moving", LEAVING), a_gang("late", {"gpus": 4})])
    for engine in engines.values():
        (bind,) = engine.cycle(cluster).binds
        assert (bind.pod, bind.node, bind.nominated) == ("default/late-0", "n0", True)


def test_a_pod_that_is_being_moved_pays_and_is_not_disturbed_again(engines: dict[str, Engine]) -> None:
    moving, high = a_gang("moving", LEAVING), a_gang("high", {"gpus": 4}, {"gpus": 4}, priority=90)
    plan = engines["greedy-only"].cycle(a_cluster([moving, high]))
    assert (plan.binds, plan.evictions) == ((), ())
    coming = with_moves(a_cluster([moving])).gangs[0].pods[1]
    assert (coming.status, coming.node) == (PodStatus.RUNNING, "n1")
    assert with_moves(with_moves(a_cluster([moving]))) == with_moves(a_cluster([moving]))


# -- moved pods ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("model", ["greedy-only", "deterministic"])
@pytest.mark.parametrize("replaced", [True, False])
def test_only_pods_that_are_made_again_are_moved(engines: dict[str, Engine], model: str, replaced: bool) -> None:
    small = [a_gang(f"s{i}", {"gpus": 1, "node": f"n{i}", "status": "Running", "replaced": replaced}) for i in (0, 1)]
    cluster = a_cluster([*small, a_gang("wide", {"gpus": 4})])
    plan = engines[model].cycle(cluster)
    assert len(plan.moves) == replaced
    assert bool(plan.pending) is not replaced
    moved = engines[model].cycle(a_cluster([*[g | {"pods": [g["pods"][0] | {"replaced": True}]} for g in small],
                                            a_gang("wide", {"gpus": 4})]))  # fmt: skip
    rules = {violation.rule for violation in check_plan(cluster, moved)}
    assert rules == (set() if replaced else {"moves"})


def test_reclaim_evicts_what_it_cannot_move(engines: dict[str, Engine]) -> None:
    low = a_gang("low", {"gpus": 2, "node": "n0", "status": "Running", "replaced": False}, priority=40)
    beside = a_gang("beside", {"gpus": 2, "node": "n1", "status": "Running"}, priority=90, preemptible=False)
    plan = engines["greedy-only"].cycle(a_cluster([low, beside, a_gang("high", {"gpus": 4}, priority=80)]))
    assert plan.moves == ()
    assert [eviction.pod for eviction in plan.evictions] == ["default/low-0"]


def test_a_pod_waits_for_a_moved_one_that_it_requires_beside_it(engines: dict[str, Engine]) -> None:
    """The database moves to n1, where there is room for the pod beside it at once."""
    near = [{"selector": [{"key": "app", "values": ["db"]}], "topologyKey": "host"}]
    moving = a_gang("db", LEAVING | {"labels": {"app": "db"}})
    cluster = a_cluster([moving, a_gang("web", {"gpus": 1, "affinity": near})])
    faults = judge_chain(cluster, engines["greedy-only"].cycle, Course(1), watch=both_there)
    assert faults == []


def test_what_requires_a_pod_that_comes_later_waits_as_well() -> None:
    near = [{"selector": [{"key": "app", "values": ["db"]}], "topologyKey": "host"}]
    moving = a_gang("db", {"gpus": 2, "node": "n0", "status": "Running", "labels": {"app": "db"}})
    problem = build_problem(a_cluster([moving, a_gang("web", {"gpus": 1, "affinity": near})]))
    state = State(problem)
    db, web = (next(i for i, pod in enumerate(problem.pods) if pod.name == name) for name in ("db-0", "web-0"))
    assert state.put(web, 0, now=True).now
    state.lift(web)
    mark = state.mark()
    state.evict(db)
    state.put(db, 1, now=False)
    assert not state.put(web, 1, now=True).now
    state.rollback(mark)
    assert state.put(web, 0, now=True).now


def both_there(cycle: int, cluster: Any, plan: Plan) -> None:
    running = {pod.key for gang in cluster.snapshot.gangs for pod in gang.pods if pod.status is PodStatus.RUNNING}
    starts = {bind.pod for bind in plan.binds if not bind.nominated}
    assert "default/web-0" not in starts or "default/db-0" in running | starts, cycle


def test_surplus_that_no_controller_makes_again_stays_where_its_core_is_moved(engines: dict[str, Engine]) -> None:
    """It leaves before its core while room is looked for, and may only come home."""
    pods = [{"gpus": 2, "node": f"n{i}", "status": "Running", "replaced": not i} for i in (0, 1)]
    elastic = {"name": "e", "queue": "q", "minMember": 1, "pods": [p | {"name": f"e-{i}"} for i, p in enumerate(pods)]}
    cluster = a_cluster([elastic, a_gang("wide", {"gpus": 4})])
    for engine in engines.values():
        plan = engine.cycle(cluster)
        assert [(move.pod, move.target) for move in plan.moves] == [("default/e-0", "n1")]
        assert plan.notes == ()
