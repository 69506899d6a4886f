"""Queues on hold and drained: what starts, what leaves, what is said, and the checker."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.explaining.cures import cures
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.kubeobjects.notices import Notices
from kai_solver.kubeobjects.rulesettings import read_rule_settings
from kai_solver.modelfiles import load_model
from tests.support.clusters import some

MODELS = ("greedy-only", "deterministic")


def a_cluster(*gangs: dict[str, Any], stop: str = "hold", above: str = "", nodes: int = 3) -> Snapshot:
    queues = [
        {"name": "dep", "quota": 99, "rules": {"stop": above} if above else {}},
        {"name": "team", "parent": "dep", "quota": 99, "rules": {"stop": stop} if stop else {}},
        {"name": "other", "quota": 99},
    ]
    head = {"format": "kai-solver/v1", "nodes": [{"name": f"n{i}", "gpus": 2} for i in range(nodes)]}
    return snapshot_from_native(head | {"queues": queues, "gangs": list(gangs)})


def a_gang(
    name: str, *, queue: str = "team", at: str = "", pods: int = 1, gpus: int = 1, **more: Any
) -> dict[str, Any]:
    entry: dict[str, Any] = {"gpus": gpus, "replicas": pods}
    return {"name": name, "queue": queue, "pods": [entry | ({"running": {at: pods}} if at else {})]} | more


def plan_of(snapshot: Snapshot, model: str = "greedy-only") -> Plan:
    plan = cycle(snapshot, load_model(model))
    assert check_plan(snapshot, plan) == ()
    assert not any("checker" in note for note in plan.notes)
    return plan


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize(
    ("stop", "above", "by"), [("hold", "", "team"), ("", "hold", "dep"), ("hold", "drain", "team")]
)
def test_nothing_starts_in_a_queue_on_hold_or_below_it(model: str, stop: str, above: str, by: str) -> None:
    plan = plan_of(a_cluster(a_gang("waits"), a_gang("runs", queue="other"), stop=stop, above=above), model)
    assert [gang for gang, _ in plan.admitted] == ["default/runs"]
    (pending,) = plan.pending
    assert (pending.reason.value, pending.proof.state) == ("QueueOnHold", "proven")
    assert pending.message.startswith(f"Queue {by} is ")
    assert [(found.kind, found.name) for found in pending.proof.blocking] == [("stop", by)]


@pytest.mark.parametrize("model", MODELS)
def test_what_runs_goes_on_and_gets_no_more_pods(model: str) -> None:
    elastic = a_gang("grows", minMember=1) | {"pods": [{"gpus": 1, "running": {"n0": 1}}, {"gpus": 1, "replicas": 3}]}
    plan = plan_of(a_cluster(elastic), model)
    assert (plan.binds, plan.evictions, plan.moves) == ((), (), ())
    assert len(plan_of(a_cluster(elastic, stop=""), model).binds) == 3


@pytest.mark.parametrize("model", MODELS)
def test_what_runs_in_a_queue_on_hold_may_be_reclaimed_and_moved(model: str) -> None:
    snapshot = a_cluster(a_gang("held", at="n0"), a_gang("big", queue="other", gpus=2, pods=3), nodes=3)
    plan = plan_of(snapshot, model)
    assert plan.pending[0].gang == "default/big"  # within the quota of its own queue, nothing can be reclaimed
    moved = plan_of(
        a_cluster(a_gang("held", at="n0"), a_gang("b", at="n1"), a_gang("w", queue="other", gpus=2), nodes=2)
    )
    assert [move.gang for move in moved.moves] != []


@pytest.mark.parametrize("model", MODELS)
def test_a_drained_queue_loses_whole_gangs_that_may_be_preempted(model: str) -> None:
    gangs = a_gang("leaves", at="n0", pods=2), a_gang("stays", at="n1", preemptible=False), a_gang("waits")
    plan = plan_of(a_cluster(*gangs, stop="drain"), model)
    assert {(entry.gang, entry.reason, entry.helps) for entry in plan.evictions} == {("default/leaves", "drain", ())}
    assert len(plan.evictions) == 2
    assert "its queue team is being drained" in plan.evictions[0].message
    assert "is being drained" in plan.pending[0].message


def test_the_checker_refuses_binds_in_a_queue_on_hold() -> None:
    plan = plan_of(a_cluster(a_gang("a"), stop=""))
    assert [(found.rule, found.object) for found in check_plan(a_cluster(a_gang("a")), plan)] == [("stop", "default/a")]


def test_the_checker_refuses_to_drain_what_is_not_drained_or_not_preemptible_or_in_part() -> None:
    gang = a_gang("a", at="n0", pods=2)
    plan = plan_of(a_cluster(gang, stop="drain"))

    def faults(snapshot: Snapshot, plan: Plan) -> list[str]:
        return [found.text for found in check_plan(snapshot, plan) if found.rule == "stop"]

    assert "not drained" in faults(a_cluster(gang), plan)[0]
    assert "cannot be preempted" in faults(a_cluster(gang | {"preemptible": False}, stop="drain"), plan)[0]
    part = replace(plan, evictions=plan.evictions[:1])
    assert "not whole" in faults(a_cluster(gang, stop="drain"), part)[0]


def test_with_the_queue_resumed_the_gang_would_run() -> None:
    snapshot = a_cluster(a_gang("a"))
    (pending,) = plan_of(snapshot).pending
    found = cures(snapshot, "default/a", pending.proof.blocking, plan_of)
    assert [(cure.text, cure.runs) for cure in found] == [("queue team resumed", True)]


@pytest.mark.parametrize("text", ["hold", "drain", "Hold", "", "stop"])
def test_a_setting_that_is_not_known_is_reported_and_not_used(text: str) -> None:
    notices = Notices()
    found = read_rule_settings({"kai-solver/rule-stop": text}, "Queue team", notices)
    assert found == ((("stop", text),) if text in ("hold", "drain") else ())
    assert all("Write hold or drain, or remove the annotation" in notice.text for notice in notices.all())
    assert bool(notices.all()) == (not found)


@pytest.mark.parametrize("model", MODELS)
@given(data=st.data())
@some(15)
def test_random_clusters_start_nothing_in_stopped_queues_and_check(model: str, data: st.DataObject) -> None:
    gangs = []
    for index in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.sampled_from(["", "", "n0", "n1", "n2"])) if index < 3 else ""
        queue = data.draw(st.sampled_from(["team", "other"]))
        preemptible = data.draw(st.booleans())
        pods = 1 if at else data.draw(st.integers(1, 3))
        at = f"n{index}" if at else ""
        gangs.append(a_gang(f"g{index}", queue=queue, at=at, pods=pods, preemptible=preemptible, priority=50 + index))
    stop = data.draw(st.sampled_from(["hold", "drain"]))
    plan = plan_of(a_cluster(*gangs, stop=stop), model)
    ours = {f"default/{gang['name']}" for gang in gangs if gang["queue"] == "team"}
    assert not ours & {bind.gang for bind in plan.binds}
    drained = {entry.gang for entry in plan.evictions if entry.reason == "drain"}
    running = {
        f"default/{gang['name']}"
        for gang in gangs
        if gang["queue"] == "team" and gang["preemptible"] and "running" in gang["pods"][0]
    }
    assert drained <= running
    if stop == "drain":
        assert running <= {entry.gang for entry in plan.evictions}
    else:
        assert not drained
