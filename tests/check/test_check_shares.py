"""The checker's own count of what is divided, and for whom, comes to the same fair shares as the planner's."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check.accounts import grow_tree, ledger_before, paid
from kai_solver.check.scene import set_scene
from kai_solver.check.shares import fair_shares
from kai_solver.domain import Action, Gang, GpuRequest, Plan, Pod, PodStatus, Snapshot, flat_gang
from kai_solver.instances_io import snapshot_from_native
from kai_solver.problem import build_problem

RUNS, ENDED = PodStatus.RUNNING, PodStatus.SUCCEEDED
RECLAIMS = Plan(admitted=(("default/any", Action.RECLAIM),))


def both(snapshot: Snapshot) -> tuple[dict[str, list[int]], dict[str, list[int]]]:
    """Fair shares by queue: the planner's, and the checker's."""
    problem = build_problem(snapshot)
    planned = {name: list(problem.share[i]) for name, i in problem.queues.index.items()}
    scene, tree = set_scene(snapshot, RECLAIMS), grow_tree(snapshot)
    judged = fair_shares(scene, ledger_before(scene, tree))
    return planned, {name: list(amount) for name, amount in judged.items()}


def cluster(gangs: list[dict[str, Any]], foreign: list[dict[str, Any]] | None = None) -> Snapshot:
    return snapshot_from_native(
        {
            "format": "kai-solver/v1",
            "nodes": [
                {"name": "n0", "gpus": 4, "gpuMemory": 40_000},
                {"name": "n1", "gpus": 4, "gpuMemory": 80_000},
                {"name": "off", "gpus": 4, "schedulable": False},
            ],
            "queues": [{"name": "a", "usage": 0.5}, {"name": "b", "quota": 1, "weight": 2}],
            "gangs": gangs,
            "foreign": foreign or [],
        }
    )


def gpus_of(snapshot: Snapshot) -> dict[str, float]:
    planned, judged = both(snapshot)
    assert judged == planned
    return {name: amounts[2] / 1000 for name, amounts in judged.items()}


@pytest.mark.parametrize("status", ["Running", "Releasing", "StuckInReleasing"])
def test_what_pods_of_other_schedulers_hold_is_not_divided(status: str) -> None:
    """Leaving pods hold it still (KAI: activeUsed)."""
    foreign = [{"name": "f", "gpus": 3, "node": "n0", "status": status}]
    assert gpus_of(cluster([{"name": "g", "queue": "a", "pods": [{"gpus": 4, "replicas": 3}]}], foreign)) == {
        "a": 5,
        "b": 0,
    }


def test_mig_slices_are_divided_as_gpus() -> None:
    """A checker that forgot them refused every reclaim of slices over quota."""
    slices = {"nvidia.com/mig-1g.5gb": 4, "nvidia.com/mig-2g.10gb": 1}
    file = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n", "resources": slices}],
        "queues": [{"name": "a"}, {"name": "b"}],
        "gangs": [{"name": f"{q}", "queue": q, "pods": [{"quotaGpus": 1, "replicas": 9}]} for q in "ab"],
    }
    assert gpus_of(snapshot_from_native(file)) == {"a": 3, "b": 3}


def test_requests_by_memory_count_where_no_node_tells_its_own() -> None:
    """KAI then takes 100 MiB a device."""
    file = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n", "gpus": 2}],
        "queues": [{"name": "a", "quota": 2}],
        "gangs": [{"name": "g", "queue": "a", "pods": [{"gpuMemory": 50}]}],
    }
    assert gpus_of(snapshot_from_native(file)) == {"a": 0.5}


def test_the_pending_pods_of_a_gang_set_aside_are_asked_for() -> None:
    gang = {"name": "g", "queue": "a", "pods": [{"gpus": 2}]}
    assert gpus_of(cluster([gang])) == gpus_of(cluster([gang | {"setAside": "for a reason"}])) == {"a": 2, "b": 0}


POD = st.fixed_dictionaries(
    {"replicas": st.integers(1, 5)},
    optional={"cpu": st.integers(0, 90), "status": st.sampled_from(["Pending", "Gated", "Succeeded"])},
) | st.fixed_dictionaries(
    {"node": st.sampled_from(["n0", "n1", "off"]), "status": st.sampled_from(["Running", "Releasing", "Bound"])}
)
GPU = st.sampled_from([{"gpus": 0.5}, {"gpus": 2}, {"gpuMemory": 30_000}, {}, {"gpus": 0.25, "gpuDevices": 2}])
GANG = st.fixed_dictionaries(
    {"queue": st.sampled_from(["a", "b", "none"]), "pods": st.lists(st.builds(dict.__or__, POD, GPU), max_size=3)},
    optional={"setAside": st.just("for a reason"), "priority": st.sampled_from([50, 100])},
)


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.lists(GANG, max_size=4), st.lists(st.builds(dict.__or__, POD, GPU), max_size=2))
def test_planner_and_checker_divide_alike(gangs: list[dict[str, Any]], foreign: list[dict[str, Any]]) -> None:
    named = [gang | {"name": f"g{place}"} for place, gang in enumerate(gangs)]
    planned, judged = both(cluster(named, foreign))
    assert judged == planned


@given(
    drawn=st.lists(
        st.tuples(st.sampled_from(range(3)), st.sampled_from(("n0", "n1")), st.sampled_from((0, 1000)), st.booleans()),
        max_size=8,
    )
)
def test_what_a_queue_holds_is_the_sum_over_its_pods(drawn: list[tuple[int, str, int, bool]]) -> None:
    """Pods that share what they ask for are counted together; not those that pay by their node or beside their GPUs."""
    asked = (
        (GpuRequest(1), (1000, 1, 0, 1)),
        (GpuRequest(1, 0, 20_000), (1000, 1, 0, 1)),
        (GpuRequest(), (2000, 5, 0, 1)),
    )
    pods = tuple(
        Pod("ns", f"p{i}", asked[kind][1], asked[kind][0], RUNS if runs else ENDED, node=node, quota_gpu_milli=quota)
        for i, (kind, node, quota, runs) in enumerate(drawn)
    )
    snapshot = replace(cluster([]), gangs=(Gang("ns", "g", "a", flat_gang(1), pods),))
    scene, tree = set_scene(snapshot, Plan()), grow_tree(snapshot)
    each = [paid(pod, scene.nodes[pod.node]) for pod in pods if pod.status is RUNS]
    assert ledger_before(scene, tree).allocated["a"] == tuple(sum(amount[r] for amount in each) for r in range(3))
