"""Nodes that are to be drained: what starts there, what stays, what is said, and the checker."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Snapshot
from kai_solver.engine import Engine
from kai_solver.explaining.cures import cures
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem
from kai_solver.problem.memo import Memo
from tests.rules.draining import HOUR_S, LEAD_S, MODELS, a_cluster, a_gang, plan_of
from tests.support.clusters import some


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("run_time", "preemptible", "drain_s", "starts"),
    [
        ("1h", True, HOUR_S, True),
        ("1h", False, HOUR_S, True),
        ("3601s", True, HOUR_S, False),
        ("3601s", False, HOUR_S, False),
        ("", True, HOUR_S, True),
        ("", False, HOUR_S, False),
        ("", True, -HOUR_S, False),
        ("", True, 0.0, False),
        ("", True, LEAD_S, True),
        ("", True, LEAD_S - 1.0, False),
        ("1s", True, -HOUR_S, False),
    ],
)
def test_what_may_start_before_a_drain(
    model: str, run_time: str, preemptible: bool, drain_s: float, starts: bool
) -> None:
    plan = plan_of(a_cluster(a_gang("g", run_time, preemptible=preemptible), drains=(drain_s,)), model)
    assert bool(plan.admitted) == starts
    if not starts:
        (pending,) = plan.pending
        assert pending.proof.state == "proven"
        assert [(found.kind, found.name) for found in pending.proof.blocking] == [("maintenance", "nodes")]
        assert "1 node to be drained at 2023-11-" in pending.proof.blocking[0].have
        assert "1 node(s) were to be drained at 2023-11-" in pending.message


def test_a_drain_of_long_ago_is_told_by_its_own_year() -> None:
    """And not as 1970."""
    found = a_cluster(a_gang("g", "1h"), drains=(HOUR_S,))
    long_ago = tuple(replace(node, drain_at_s=-62_104_060_800.0) for node in found.nodes)
    (pending,) = plan_of(replace(found, nodes=long_ago), "greedy-only").pending
    assert "1 node(s) were to be drained at 0002-01-01T00:00:00Z" in pending.message


@pytest.mark.parametrize("model", MODELS)
def test_pods_of_one_gang_go_where_each_of_them_ends_in_time(model: str) -> None:
    pods = [{"gpus": 2, "runTime": "30m"}, {"gpus": 2, "runTime": "90m"}, {"gpus": 2, "runTime": "5h"}]
    gang = {"name": "g", "queue": "q", "preemptible": False, "pods": pods}
    plan = plan_of(a_cluster(gang, drains=(HOUR_S, 2 * HOUR_S, None)), model)
    assert sorted((bind.pod, bind.node) for bind in plan.binds) == [
        ("default/g-0-0", "n0"),
        ("default/g-1-0", "n1"),
        ("default/g-2-0", "n2"),
    ]


@pytest.mark.parametrize("model", MODELS)
def test_what_runs_stays(model: str) -> None:
    plan = plan_of(a_cluster(a_gang("runs", "9h", at="n0"), a_gang("fixed", at="n0", preemptible=False)), model)
    assert (plan.binds, plan.evictions, plan.moves) == ((), (), ())


@pytest.mark.parametrize("model", MODELS)
def test_nothing_is_evicted_for_room_that_may_not_be_used(model: str) -> None:
    low, high = a_gang("low", at="n0", gpus=2, priority=10), a_gang("high", "9h", gpus=2, priority=90)
    plan = plan_of(a_cluster(low, high), model)
    assert (plan.evictions, [pending.gang for pending in plan.pending]) == ((), ["default/high"])
    assert plan.pending[0].proof.state == "proven"
    assert [entry.gang for entry in plan_of(a_cluster(low, high, drains=(None,)), model).evictions] == ["default/low"]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(("run_time", "moved"), [("30m", True), ("9h", False), ("", True)])
def test_moves_go_where_the_pod_ends_in_time(model: str, run_time: str, moved: bool) -> None:
    gangs = a_gang("one", run_time, at="n1"), a_gang("big", "9h", gpus=2)
    plan = plan_of(a_cluster(*gangs, drains=(HOUR_S, None)), model)
    assert [(move.gang, move.target) for move in plan.moves] == ([("default/one", "n0")] if moved else [])
    assert [gang for gang, _ in plan.admitted] == (["default/big"] if moved else [])


def test_the_checker_refuses_what_would_not_end_in_time() -> None:
    for gang, text in (
        (a_gang("g", "2h"), "is drained in 3600 s; it runs up to 7200 s"),
        (a_gang("g", preemptible=False), "its run time is not known, and it is not preemptible"),
    ):
        plan = plan_of(a_cluster(gang, drains=(None,)))
        (found,) = check_plan(a_cluster(gang), plan)
        assert (found.rule, found.object) == ("maintenance", "default/g-0")
        assert text in found.text
    plan = plan_of(a_cluster(a_gang("g"), drains=(None,)))
    assert "was drained 5 s ago" in check_plan(a_cluster(a_gang("g"), drains=(-5.0,)), plan)[0].text


def test_without_the_drain_the_gang_would_run() -> None:
    snapshot = a_cluster(a_gang("g", "2h"))
    (pending,) = plan_of(snapshot).pending
    found = cures(snapshot, "default/g", pending.proof.blocking, plan_of)
    assert [(cure.text, cure.runs) for cure in found] == [("no nodes to be drained", True)]


def test_many_times_are_counted_together() -> None:
    plan = plan_of(a_cluster(a_gang("g", preemptible=False), drains=tuple(HOUR_S + i for i in range(12))))
    assert "12 node(s) were to be drained before the pod is sure to end" in plan.pending[0].message
    assert plan.pending[0].proof.blocking[0].have.startswith("12 nodes to be drained from 2023-11-")


def test_time_passes_from_cycle_to_cycle() -> None:
    snapshot = a_cluster(a_gang("g", "30m"))
    with Engine(load_model("greedy-only")) as engine:
        assert len(engine.cycle(snapshot).admitted) == 1
        later = replace(snapshot, now_s=snapshot.now_s + 1801.0)
        assert engine.cycle(later).admitted == ()
        undrained = replace(later, nodes=tuple(replace(node, drain_at_s=None) for node in later.nodes))
        assert len(engine.cycle(undrained).admitted) == 1
        assert len(engine.cycle(snapshot).admitted) == 1


def test_without_a_drain_pods_stay_as_they_are() -> None:
    snapshot, memo = a_cluster(a_gang("g", "30m"), a_gang("h", preemptible=False), drains=(None,)), Memo()
    assert memo.ruled(snapshot) is snapshot
    assert "maintenance" not in {rule.name for rule in build_problem(snapshot).rules}
    drained = a_cluster(a_gang("g", "30m"), a_gang("h", preemptible=False))
    first, second = memo.ruled(drained), memo.ruled(drained)
    assert first.gangs[0] is drained.gangs[0]  # it ends in time
    assert first.gangs[1] is second.gangs[1] is not drained.gangs[1]


def may_start(snapshot: Snapshot, gang: int, node: int) -> bool:
    """The rule, as the documentation says it."""
    pod, at_s = snapshot.gangs[gang].pods[0], snapshot.nodes[node].drain_at_s
    if at_s is None:
        return True
    if pod.run_time_s is None:
        return snapshot.gangs[gang].preemptible and at_s >= snapshot.now_s + LEAD_S
    return snapshot.now_s + pod.run_time_s <= at_s


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@some(25)
def test_random_clusters_start_what_they_may_and_check(model: str, data: st.DataObject) -> None:
    drains = tuple(
        data.draw(st.lists(st.sampled_from([None, -10.0, 600.0, HOUR_S, 2 * HOUR_S]), min_size=2, max_size=4))
    )
    gangs = []
    for index in range(data.draw(st.integers(1, 7))):
        at = f"n{index}" if index < len(drains) and data.draw(st.booleans()) else ""
        run_time = data.draw(st.sampled_from(["", "300s", "1h", "5h"]))
        priority, preemptible = data.draw(st.sampled_from([40, 50, 90])), data.draw(st.booleans())
        gangs.append(a_gang(f"g{index}", run_time, at=at, priority=priority, preemptible=preemptible))
    snapshot = a_cluster(*gangs, drains=drains, gpus=1)
    plan = plan_of(snapshot, model)
    taken = {pod.node for gang in snapshot.gangs for pod in gang.pods if pod.node}
    taken -= {move.source for move in plan.moves} | {snapshot_node(snapshot, entry.pod) for entry in plan.evictions}
    taken |= {bind.node for bind in plan.binds} | {move.target for move in plan.moves}
    names = [gang.key for gang in snapshot.gangs]
    for pending in plan.pending:
        gang = names.index(pending.gang)
        free = [i for i, node in enumerate(snapshot.nodes) if node.name not in taken and may_start(snapshot, gang, i)]
        assert not free, (pending.gang, free)
        if not any(may_start(snapshot, gang, node) for node in range(len(drains))):
            assert pending.proof.state == "proven"


def snapshot_node(snapshot: Snapshot, key: str) -> str:
    return next(pod.node for gang in snapshot.gangs for pod in gang.pods if pod.key == key)
