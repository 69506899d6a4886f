"""GPUs whose indices follow each other: required and preferred, contiguous and aligned, on nodes of up to 32 GPUs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Bind, Plan, Snapshot, SolverModel
from kai_solver.engine import cycle
from kai_solver.errors import InputError
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.modelfiles import load_model

MODEL = load_model("greedy-only")
CONTIGUOUS, ALIGNED = "contiguous-required", "aligned-required"

ISSUE = [gpu for gpu in range(32) if gpu % 8 in (3, 6, 7)]
"""Held on a node of 32 GPUs: 20 are free and at most five of them in a row, no eight."""


def runs(name: str, node: str, *gpus: int, **more: Any) -> dict[str, Any]:
    pod = {"gpus": len(gpus), "status": "Running", "node": node, "devices": list(gpus)}
    return {"name": name, "queue": "q", "pods": [pod]} | more


def wants(name: str, gpus: int, row: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "queue": "q", "pods": [{"gpus": gpus, "gpuRow": row}]} | more


def cluster(*gangs: dict[str, Any], gpus: Sequence[int] = (32,), **more: Any) -> Snapshot:
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": f"n{n}", "gpus": count, **more} for n, count in enumerate(gpus)],
        "queues": [{"name": "q", "quota": sum(gpus)}],
        "gangs": list(gangs),
    }
    return snapshot_from_native(document)


def planned(snapshot: Snapshot, model: SolverModel = MODEL) -> Plan:
    plan = cycle(snapshot, model, budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    return plan


def given_to(bind: Bind) -> list[int]:
    return [device.index for device in bind.devices]


def test_of_32_gpus_20_are_free_and_no_8_in_a_row() -> None:
    assert len(ISSUE) == 12
    stuck = runs("r", "n0", *ISSUE, preemptible=False)
    (pending,) = planned(cluster(stuck, wants("a", 8, CONTIGUOUS))).pending
    said = "; ".join(text for error in pending.fit_errors for text in (*error.messages, *error.detailed))
    assert "no 8 GPUs in a row, 20 of 32 free" in said
    (bind,) = planned(cluster(runs("r", "n0", *ISSUE), wants("a", 8, "contiguous-preferred"))).binds
    assert len(given_to(bind)) == 8
    (bind,) = planned(cluster(runs("r", "n0", *ISSUE), wants("a", 3, CONTIGUOUS))).binds
    first = given_to(bind)[0]
    assert given_to(bind) == [first, first + 1, first + 2]


def test_a_bound_proves_that_there_is_no_row() -> None:
    stuck = runs("r", "n0", *ISSUE, preemptible=False)
    plan = planned(cluster(stuck, wants("a", 8, CONTIGUOUS)), load_model("default"))
    assert [pending.proof.state for pending in plan.pending] == ["proven"]


def test_aligned_rows_begin_at_a_multiple_of_their_length() -> None:
    held = [0, 1, 2, 7]
    (bind,) = planned(cluster(runs("r", "n0", *held), wants("a", 4, CONTIGUOUS), gpus=[8])).binds
    assert given_to(bind) == [3, 4, 5, 6]
    assert not planned(cluster(runs("r", "n0", *held), wants("a", 4, ALIGNED), gpus=[8])).binds
    (bind,) = planned(cluster(runs("r", "n0", 3), wants("a", 4, ALIGNED), gpus=[8])).binds
    assert given_to(bind) == [4, 5, 6, 7]


def test_a_preferred_row_chooses_the_node_too() -> None:
    """The fuller node has four free GPUs apart, the other one has five in a row."""
    full, row = runs("r", "n0", 1, 3, 5, 7), runs("s", "n1", 0, 1, 2)
    (bind,) = planned(cluster(full, row, wants("a", 4, "contiguous-preferred"), gpus=[8, 8])).binds
    assert bind.node == "n1"
    (bind,) = planned(cluster(full, row, wants("a", 4), gpus=[8, 8])).binds
    assert bind.node == "n0"


def test_a_row_is_taken_where_it_fits_tightest() -> None:
    plan = planned(cluster(runs("r", "n0", 2), wants("a", 2, CONTIGUOUS), wants("b", 5, CONTIGUOUS), gpus=[8]))
    assert [given_to(bind) for bind in plan.binds] == [[0, 1], [3, 4, 5, 6, 7]]


def test_where_it_is_not_known_which_gpus_are_free_no_row_can_be_promised() -> None:
    unnamed = {"name": "r", "queue": "q", "pods": [{"gpus": 1, "status": "Running", "node": "n0"}]}
    (pending,) = planned(cluster(unnamed, wants("a", 2, CONTIGUOUS), gpus=[8])).pending
    said = "; ".join(text for error in pending.fit_errors for text in (*error.messages, *error.detailed))
    assert "no 2 GPUs in a row, 7 of 8 free, it is unknown which" in said
    assert planned(cluster(unnamed, wants("a", 2, "contiguous-preferred"), gpus=[8])).binds
    assert not planned(cluster(wants("a", 2, CONTIGUOUS), gpus=[8], allocatableGpus=7)).binds


def test_victims_are_those_in_a_row() -> None:
    """Who is scattered has four GPUs as well, but none of them follow each other."""
    gangs = [
        runs("scattered", "n0", 0, 2, 4, 6, priority=50),
        runs("between", "n0", 1, 3, 5, priority=50),
        runs("low", "n1", 4, 5, priority=50),
        runs("deep", "n1", 6, 7, priority=50),
        runs("high", "n1", 0, 1, 2, 3, priority=100, preemptible=False),
        wants("a", 4, CONTIGUOUS, priority=100),
    ]
    plan = planned(cluster(*gangs, gpus=[7, 8]))
    assert {eviction.pod for eviction in plan.evictions} == {"default/low-0", "default/deep-0"}
    assert [given_to(bind) for bind in plan.binds] == [[4, 5, 6, 7]]


def test_what_moves_makes_a_row_and_does_not_stay_with_other_gpus() -> None:
    """On one node everybody would have to change GPUs in place, which nobody can; with another one there is a place."""
    held = runs("r", "n0", *ISSUE)
    assert planned(cluster(held, wants("a", 20, CONTIGUOUS))).moves == ()
    plan = planned(cluster(held, wants("a", 20, CONTIGUOUS), gpus=[32, 16]))
    assert [move.target for move in plan.moves] == ["n1"]
    assert [given_to(bind) for bind in plan.binds] == [list(range(20))]


def test_scattered_gpus_are_refused_by_the_checker() -> None:
    snapshot = cluster(wants("a", 4, CONTIGUOUS), gpus=[8])
    (bind,) = (plan := planned(snapshot)).binds
    for first, rule in ((bind.devices[0].index + 5, {"devices"}), (bind.devices[0].index, set[str]())):
        devices = (replace(bind.devices[0], index=first), *bind.devices[1:])
        wrong = replace(plan, binds=(replace(bind, devices=devices),))
        assert {violation.rule for violation in check_plan(snapshot, wrong)} == rule
    aligned = cluster(wants("a", 4, ALIGNED), gpus=[8])
    (bind,) = (plan := planned(aligned)).binds
    moved = tuple(replace(device, index=device.index + 1) for device in bind.devices)
    wrong = replace(plan, binds=(replace(bind, devices=moved),))
    assert [violation.rule for violation in check_plan(aligned, wrong)] == ["devices"]


def test_the_own_format_keeps_the_wish_and_refuses_nonsense() -> None:
    snapshot = cluster(wants("a", 4, ALIGNED))
    again = snapshot_from_native(native_from_snapshot(snapshot))
    assert again.gangs[0].pods[0].gpu.row == ALIGNED
    with pytest.raises(InputError, match="gpuRow"):
        cluster(wants("a", 4, "in-a-row"))
    with pytest.raises(InputError, match="no whole GPUs"):
        cluster({"name": "a", "queue": "q", "pods": [{"gpus": 0.5, "gpuRow": ALIGNED}]})


HELD = st.lists(st.sets(st.integers(0, 7), max_size=6), min_size=1, max_size=3)
TOPOLOGIES = st.sampled_from(["", "dgx1-v100-8"])


def on_nodes(held: list[set[int]], topology: str, *waiting: dict[str, Any]) -> Snapshot:
    running = [runs(f"r{n}", f"n{n}", *sorted(own), preemptible=False) for n, own in enumerate(held) if own]
    return cluster(*running, *waiting, gpus=[8] * len(held), gpuTopology=topology)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(HELD, st.integers(2, 6), st.sampled_from([CONTIGUOUS, ALIGNED]), TOPOLOGIES)
def test_a_pod_waits_where_no_row_is_free_and_nowhere_else(
    held: list[set[int]], count: int, row: str, topology: str
) -> None:
    starts = range(0, 9 - count, count if row == ALIGNED else 1)
    is_free = any(not own.intersection(range(at, at + count)) for own in held for at in starts)
    assert bool(planned(on_nodes(held, topology, wants("a", count, row))).binds) is is_free


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(HELD, st.lists(st.tuples(st.integers(1, 5), st.sampled_from(["", CONTIGUOUS, ALIGNED])), max_size=4), TOPOLOGIES)
def test_whatever_comes_beside_them_rows_stay_rows(
    held: list[set[int]], asked: list[tuple[int, str]], topology: str
) -> None:
    waiting = [wants(f"w{i}", count, row) for i, (count, row) in enumerate(asked)]
    plan = planned(on_nodes(held, topology, *waiting))
    for bind in plan.binds:
        count, row = asked[int(bind.gang.removeprefix("default/w"))]
        first = min(given_to(bind))
        if row:
            assert sorted(given_to(bind)) == list(range(first, first + count))
            assert row == CONTIGUOUS or first % count == 0
