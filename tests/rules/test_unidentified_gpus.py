"""Rows of GPUs beside pods whose GPUs nobody knows, and pods that leave rows to others."""

from typing import Any

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import GpuRequest, Plan, Pod, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.problem.devices import believed_devices, known_devices

MODELS = pytest.mark.parametrize("model", ["default", "greedy-only"])
ALIGNED, CONTIGUOUS = "aligned-required", "contiguous-required"


def runs(name: str, gpus: float, **more: Any) -> dict[str, Any]:
    """A gang of one pod that runs; ``devices`` and ``wishedDevices`` are the pod's."""
    of_pod = {key: more.pop(key) for key in ("devices", "wishedDevices", "status", "node") if key in more}
    pod = {"gpus": gpus, "status": "Running", "node": "n0"} | of_pod
    return {"name": name, "queue": "q", "pods": [pod], "priority": 40} | more


def wants(name: str, gpus: int, row: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "queue": "q", "priority": 80, "pods": [{"gpus": gpus, "gpuRow": row}]} | more


def cluster(*gangs: dict[str, Any], gpus: tuple[int, ...] = (8,), **more: Any) -> Snapshot:
    nodes = [{"name": f"n{n}", "gpus": count, **more} for n, count in enumerate(gpus)]
    queues = [{"name": "q", "quota": sum(gpus)}]
    return snapshot_from_native({"format": "kai-solver/v1", "nodes": nodes, "queues": queues, "gangs": list(gangs)})


def planned(snapshot: Snapshot, model: str) -> Plan:
    plan = cycle(snapshot, load_model(model), budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    return plan


def given_to(plan: Plan, name: str) -> list[int]:
    (bind,) = [bind for bind in plan.binds if bind.gang == f"default/{name}"]
    return [device.index for device in bind.devices]


def victims(plan: Plan) -> set[str]:
    return {eviction.pod.removeprefix("default/") for eviction in plan.evictions}


FIXED: dict[str, Any] = {"preemptible": False, "priority": 60}


@MODELS
def test_a_stranger_that_may_leave_does_for_a_row(model: str) -> None:
    known = runs("known", 2, devices=[0, 1], **FIXED)
    plan = planned(cluster(known, runs("stranger", 3), wants("a", 4, ALIGNED)), model)
    assert (given_to(plan, "a"), victims(plan)) == ([4, 5, 6, 7], {"stranger-0"})
    (pending,) = planned(cluster(known, runs("stranger", 3, **FIXED), wants("a", 4, ALIGNED)), model).pending
    assert pending.gang == "default/a"


def test_that_a_stranger_stays_is_proven() -> None:
    known = runs("known", 2, devices=[0, 1], **FIXED)
    plan = planned(cluster(known, runs("stranger", 1, **FIXED), wants("a", 4, ALIGNED)), "default")
    assert [pending.proof.state for pending in plan.pending] == ["proven"]


@MODELS
def test_all_strangers_of_the_node_leave(model: str) -> None:
    """Four GPUs are free as it is, and five with one of the two gone; but which ones?"""
    known = runs("known", 2, devices=[0, 1], **FIXED)
    plan = planned(cluster(known, runs("s", 1), runs("t", 1), wants("a", 4, ALIGNED)), model)
    assert (given_to(plan, "a"), victims(plan)) == ([4, 5, 6, 7], {"s-0", "t-0"})


@MODELS
def test_one_stranger_that_stays_keeps_the_others(model: str) -> None:
    stays = runs("t", 1, **FIXED)
    plan = planned(cluster(runs("k", 2, devices=[0, 1], **FIXED), runs("s", 1), stays, wants("a", 4, ALIGNED)), model)
    assert not plan.binds
    assert not plan.evictions


@MODELS
def test_a_stranger_that_is_leaving_is_waited_for(model: str) -> None:
    gangs = runs("known", 2, devices=[0, 1], **FIXED), runs("going", 3, status="Releasing")
    plan = planned(cluster(*gangs, wants("a", 4, ALIGNED)), model)
    assert given_to(plan, "a") == [4, 5, 6, 7]
    assert [bind.nominated for bind in plan.binds] == [True]


@MODELS
def test_beside_a_share_that_is_known(model: str) -> None:
    gangs = runs("share", 0.5, devices=[7], **FIXED), runs("stranger", 4)
    plan = planned(cluster(*gangs, wants("a", 4, ALIGNED)), model)
    assert (given_to(plan, "a"), victims(plan)) == ([0, 1, 2, 3], {"stranger-0"})


@MODELS
def test_once_strangers_left_wishes_count(model: str) -> None:
    gangs = runs("wisher", 1, wishedDevices=[5], **FIXED), runs("stranger", 1)
    plan = planned(cluster(*gangs, wants("a", 4, CONTIGUOUS)), model)
    assert victims(plan) == {"stranger-0"}
    assert 5 not in given_to(plan, "a")


@MODELS
def test_a_move_out_of_a_row_is_not_needless(model: str) -> None:
    """The checker of ``planned`` says so: who only wished for a GPU of the row cannot stay."""
    gangs = runs("wisher", 1, wishedDevices=[5]), runs("known", 2, devices=[1, 7], **FIXED)
    plan = planned(cluster(*gangs, wants("a", 5, CONTIGUOUS)), model)
    assert (given_to(plan, "a"), victims(plan)) == ([2, 3, 4, 5, 6], {"wisher-0"})
    assert not any("needless" in note for note in plan.notes)


@MODELS
def test_pods_without_a_row_leave_it_to_others(model: str) -> None:
    held = runs("r", 2, devices=[4, 7], **FIXED)
    singles = {"name": "s", "queue": "q", "priority": 90, "pods": [{"replicas": 2, "gpus": 1}]}
    plan = planned(cluster(held, singles, wants("a", 4, ALIGNED)), model)
    assert given_to(plan, "a") == [0, 1, 2, 3]
    held = runs("r", 2, devices=[4, 6], **FIXED)
    plan = planned(cluster(held, wants("plain", 2, priority=90), wants("a", 4, ALIGNED)), model)
    assert (given_to(plan, "plain"), given_to(plan, "a")) == ([5, 7], [0, 1, 2, 3])


@MODELS
def test_a_preferred_row_is_named_before_those_that_want_none(model: str) -> None:
    held = runs("r", 4, devices=[0, 1, 5, 6])
    snapshot = cluster(held, wants("plain", 2), wants("a", 2, "contiguous-preferred"), gpuTopology="dgx1-v100-8")
    assert given_to(planned(snapshot, model), "a") == [2, 3]


def test_devices_are_believed_but_those_that_clash() -> None:
    def pod(devices: tuple[int, ...] = (), wished: tuple[int, ...] = ()) -> Pod:
        return Pod("d", "p", (), GpuRequest(1), devices=devices, wished=wished)

    fact, wish, clash, unknown = pod((0,)), pod((), (1,)), pod((), (0,)), pod()
    assert believed_devices(4, [fact, wish]) == known_devices(4, [fact, wish]) == [(0,), (1,)]
    assert known_devices(4, [unknown, fact, wish]) is None
    assert believed_devices(4, [unknown, fact, wish]) == [(), (0,), (1,)]
    assert believed_devices(4, [clash, fact, wish]) == [(), (0,), (1,)]
    assert believed_devices(1, [fact, wish]) == [(0,), ()]


@MODELS
def test_what_comes_to_a_node_where_a_row_is_promised_waits_for_strangers_too(model: str) -> None:
    """The single pod comes after the row, and one GPU is free at once: but which one is it?"""
    known = runs("known", 2, devices=[0, 1], **FIXED)
    gangs = runs("going", 3, status="Releasing"), wants("row", 4, ALIGNED, priority=90), wants("one", 1)
    plan = planned(cluster(known, *gangs), model)
    assert given_to(plan, "row") == [4, 5, 6, 7]
    assert [bind.nominated for bind in plan.binds] == [True, True]
