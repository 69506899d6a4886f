"""Nodes where some GPUs may not be had: so many fewer are free, whichever those are that pods sit on."""

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Plan, Reason, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem
from kai_solver.problem.withheld import withhold
from kai_solver.units import GPU, MILLI
from kai_solver.units.shares import PARTS_OF_MILLI, WHOLE


def runs(name: str, devices: list[int], gpus: float = 0, **more: Any) -> dict[str, Any]:
    pod = {"gpus": gpus or len(devices), "status": "Running", "node": "n0", "devices": devices}
    return {"name": name, "queue": "q", "pods": [pod], **more}


def waits(name: str, gpus: float, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"name": name, "queue": "q", "pods": [{"gpus": gpus, "replicas": count}], **more}


def a_cluster(*gangs: dict[str, Any], gpus: int = 4, usable: int = 3) -> Snapshot:
    node = {"name": "n0", "gpus": gpus, "allocatableGpus": usable}
    queues = [{"name": "q", "quota": 2 * gpus}]
    return snapshot_from_native({"format": "kai-solver/v1", "nodes": [node], "queues": queues, "gangs": list(gangs)})


def free(snapshot: Snapshot) -> list[int]:
    found: list[int] = build_problem(snapshot).device_free[0].tolist()
    return found


def planned(snapshot: Snapshot, model: str = "greedy-only") -> Plan:
    plan = cycle(snapshot, load_model(model), budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    assert not [note for note in plan.notes if "refused" in note]
    return plan


# -- what may be had -----------------------------------------------------------------------------------------------


def test_of_free_ones_the_highest_are_withheld() -> None:
    assert free(a_cluster()) == [WHOLE, WHOLE, WHOLE, 0]
    assert free(a_cluster(runs("r", [3]))) == [WHOLE, WHOLE, 0, 0]
    assert free(a_cluster(runs("r", [1, 3]), usable=2)) == [0, 0, 0, 0]
    assert free(a_cluster(usable=4)) == [WHOLE] * 4


def test_parts_are_withheld_where_none_is_wholly_free() -> None:
    halves = [runs(f"r{d}", [d], 0.5) for d in range(4)]
    assert free(a_cluster(*halves)) == [WHOLE // 2, WHOLE // 2, 0, 0]


def test_what_gets_free_is_withheld_before_any_pod_is_charged() -> None:
    leaving = runs("r", [0, 1, 2, 3])
    leaving["pods"][0]["deleted"] = "-10s"
    problem = build_problem(a_cluster(leaving))
    assert problem.device_free[0].tolist() == [0, 0, 0, 0]
    assert problem.device_releasing[0].tolist() == [WHOLE, WHOLE, WHOLE, 0]


def test_no_pod_starts_on_gpus_of_one_that_is_still_leaving() -> None:
    """Of 3 GPUs 3.5 are held; when one is given back half a one may be had, not before."""
    now, later = np.array([WHOLE // 2, 0, 0, 0]), np.array([0, 0, 0, WHOLE])
    withhold(now, later, 1, ())
    assert (now.tolist(), (now + later).tolist()) == ([0, 0, 0, 0], [WHOLE // 2, 0, 0, 0])


def test_whatever_leaves_an_overfilled_node_makes_good_what_is_missing() -> None:
    problem = build_problem(a_cluster(runs("r", [0, 1]), runs("s", [2, 3])))
    assert problem.device_free[0].tolist() == [0, -WHOLE, 0, -WHOLE]


# -- cycles --------------------------------------------------------------------------------------------------------

MODELS = pytest.mark.parametrize("model", ["default", "greedy-only"])


@MODELS
def test_a_pod_on_the_last_gpu_leaves_as_many_for_others(model: str) -> None:
    plan = planned(a_cluster(runs("r", [3], preemptible=False), waits("w", 1, 4, minMember=1)), model)
    assert len(plan.binds) == 2


@MODELS
def test_a_full_node_takes_no_pod(model: str) -> None:
    plan = planned(a_cluster(runs("r", [1, 2, 3]), waits("w", 1)), model)
    assert not plan.binds
    assert plan.pending[0].reason is not Reason.SET_ASIDE


@MODELS
@pytest.mark.parametrize("asked", [3, 4])
def test_what_takes_the_place_of_all_gets_what_still_works(model: str, asked: int) -> None:
    plan = planned(a_cluster(runs("r", [0, 1, 2, 3], priority=40), waits("w", asked, priority=80)), model)
    assert len(plan.binds) == (asked == 3)
    assert len(plan.evictions) == (asked == 3)


# -- random ones ---------------------------------------------------------------------------------------------------


@st.composite
def a_full_or_empty_node(draw: st.DrawFn) -> Snapshot:
    """Pods sit anywhere, by index or not, some leaving; never more than there are devices, perhaps more than work."""
    gpus = draw(st.integers(1, 8))
    left, gangs, more = list(draw(st.permutations(range(gpus)))), list[dict[str, Any]](), st.booleans()
    while draw(more) and left:
        count = draw(st.integers(1, len(left)))
        seat, left = sorted(left[:count]), left[count:]
        share = draw(st.sampled_from([0, 0.5])) if count == 1 else 0
        gang = runs(f"r{len(gangs)}", seat, share, priority=draw(st.sampled_from([40, 60])))
        if draw(st.booleans()):
            gang["pods"][0]["wishedDevices"] = gang["pods"][0].pop("devices")
        gang["preemptible"] = draw(st.booleans())
        if draw(st.integers(0, 3)) == 0:
            gang["pods"][0]["deleted"] = "-10s"
        gangs.append(gang)
    for name in range(draw(st.integers(0, 3))):
        size = draw(st.sampled_from([0.5, 1, 2, 4]))
        gangs.append(waits(f"w{name}", size, draw(st.integers(1, 2)), priority=draw(st.sampled_from([40, 80]))))
    return a_cluster(*gangs, gpus=gpus, usable=draw(st.integers(0, gpus)))


@pytest.mark.slow
@given(a_full_or_empty_node())
@settings(max_examples=100, deadline=None)
def test_as_much_is_free_as_may_be_had_beside_what_is_held(snapshot: Snapshot) -> None:
    problem, has = build_problem(snapshot), snapshot.nodes[0].allocatable[GPU] * PARTS_OF_MILLI
    bare = build_problem(replace(snapshot, nodes=(replace(snapshot.nodes[0], allocatable=all_of(snapshot)),)))
    gpus = snapshot.nodes[0].gpus * WHOLE
    held = gpus - int(bare.device_free.sum())
    stay = held - int(bare.device_releasing.sum())
    later = problem.device_free + problem.device_releasing
    assert np.maximum(later, 0).sum() == max(has - stay, 0)
    assert np.maximum(np.minimum(problem.device_free, later), 0).sum() == max(has - held, 0)
    assert (problem.device_free <= bare.device_free).all()


def all_of(snapshot: Snapshot) -> tuple[int, ...]:
    node = snapshot.nodes[0]
    return (*node.allocatable[:GPU], node.gpus * MILLI, *node.allocatable[GPU + 1 :])


@pytest.mark.slow
@given(a_full_or_empty_node())
@settings(max_examples=50, deadline=None)
def test_the_checker_refuses_no_plan(snapshot: Snapshot) -> None:
    planned(snapshot)


@given(
    st.lists(st.sampled_from([0, WHOLE // 3, WHOLE // 2, WHOLE]), min_size=1, max_size=8),
    st.integers(0, 4),
    st.integers(0, 99),
)
def test_those_that_leave_free_at_most_what_may_be_had_then(held: list[int], missing: int, seed: int) -> None:
    """One pod a device, any of which leave: nothing but what is left beside the others."""
    dice, missing = random.Random(seed), min(missing, len(held))
    now = WHOLE - np.array(held)
    withhold(now, np.zeros_like(now), missing, [((d,), parts) for d, parts in enumerate(held) if parts])
    gone = [d for d, parts in enumerate(held) if parts and dice.random() < 0.5]
    now[gone] += np.array(held)[gone]
    stay = sum(parts for d, parts in enumerate(held) if d not in gone)
    assert np.maximum(now, 0).sum() <= max((len(held) - missing) * WHOLE - stay, 0)
