"""Pods of a plan get the GPUs with the best links, where it is known how they are linked and which are free."""

from collections.abc import Iterable
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Bind, GpuLink, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.links import mask_of
from kai_solver.modelfiles import load_model
from tests.links.brute import Brute
from tests.links.graphs import product

DGX1 = "dgx1-v100-8"
DOUBLE, SINGLE, NONE = GpuLink("NV2", 50), GpuLink("NV1", 25), GpuLink()


def pod(gpus: float, **more: Any) -> dict[str, Any]:
    return {"gpus": gpus} | more


def held(gpus: float, *devices: int, **more: Any) -> dict[str, Any]:
    return pod(gpus, status="Running", node="n0", devices=list(devices), **more)


def cluster(pods: Iterable[dict[str, Any]], topology: str = DGX1, **more: Any) -> Snapshot:
    """One node of 8 GPUs; every pod is a gang."""
    gangs = [{"name": f"g{index}", "queue": "q", "pods": [each]} for index, each in enumerate(pods)]
    node = {"name": "n0", "gpus": 8, "gpuTopology": topology}
    document = {"format": "kai-solver/v1", "nodes": [node], "queues": [{"name": "q", "quota": 8}], "gangs": gangs}
    return snapshot_from_native(document | more)


def planned(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, load_model("greedy-only"), budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    return plan


def gpus(bind: Bind) -> tuple[int, ...]:
    return tuple(device.index for device in bind.devices)


def by_gang(plan: Plan) -> dict[str, Bind]:
    return {bind.gang.removeprefix("default/"): bind for bind in plan.binds}


def test_a_pair_gets_the_double_link() -> None:
    (bind,) = planned(cluster([pod(2)])).binds
    assert bind.link == DOUBLE


def test_every_pod_of_a_node_gets_a_good_set() -> None:
    plan = planned(cluster([pod(4), pod(2), pod(2)]))
    assert {bind.link for bind in plan.binds} == {SINGLE, DOUBLE}
    assert [bind.link for bind in plan.binds if len(bind.devices) == 2] == [DOUBLE, DOUBLE]
    both = planned(cluster([pod(4), pod(4)]))
    assert [bind.link for bind in both.binds] == [SINGLE, SINGLE]


def test_the_gpus_of_those_that_run_are_taken() -> None:
    plan = planned(cluster([held(2, 1, 5), held(1, 0), pod(2)]))
    (bind,) = plan.binds
    assert not {0, 1, 5} & set(gpus(bind))
    assert bind.link == DOUBLE


@pytest.mark.parametrize("known", [{"devices": [1, 5]}, {"wishedDevices": [1, 5]}])
def test_a_wish_counts_where_nothing_lacks_one(known: dict[str, Any]) -> None:
    (bind,) = planned(cluster([pod(2, status="Running", node="n0", **known), pod(6)])).binds
    assert gpus(bind) == (0, 2, 3, 4, 6, 7)
    assert bind.link is not None


@pytest.mark.parametrize(
    "others",
    [
        [pod(1, status="Running", node="n0")],
        [pod(1, status="Running", node="n0", wishedDevices=[2]), pod(1, status="Running", node="n0")],
        [pod(2, status="Running", node="n0", wishedDevices=[2, 3]), held(1, 3)],
        [pod(1, status="Running", node="n0", wishedDevices=[8])],
        [pod(0.5, status="Running", node="n0", gpuGroups=["g"])],
    ],
    ids=["nothing known", "one unknown", "one GPU twice", "a GPU that is not there", "a shared one unknown"],
)
def test_nothing_is_chosen_where_it_is_not_known_what_is_free(others: list[dict[str, Any]]) -> None:
    (bind,) = planned(cluster([*others, pod(2)])).binds
    assert len(bind.devices) == 2
    assert bind.link is None


def test_without_links_plans_are_as_they_were() -> None:
    snapshot = cluster([held(2, 1, 5), pod(2), pod(4)], topology="")
    plan = planned(snapshot)
    assert [bind.link for bind in plan.binds] == [None, None]
    assert sorted(sum(map(gpus, plan.binds), ())) == [0, 2, 3, 4, 6, 7]


def test_a_shared_gpu_that_the_plan_opens_is_of_no_other_pod() -> None:
    found = by_gang(planned(cluster([pod(0.5), pod(2), pod(4)])))
    assert found["g0"].link is None
    assert found["g1"].link == DOUBLE
    assert len({gpu for bind in found.values() for gpu in gpus(bind)}) == 7


def test_what_waits_for_gpus_that_others_leave_may_have_theirs() -> None:
    victim = held(8, 0, 1, 2, 3, 4, 5, 6, 7, deleted="-10s")
    (bind,) = planned(cluster([victim, pod(2)])).binds
    assert bind.nominated
    assert bind.link == DOUBLE


def test_what_starts_now_takes_nothing_that_is_still_held() -> None:
    leaving = held(2, 0, 3, deleted="-10s")
    plan = planned(cluster([leaving, pod(6), pod(2)]))
    now, later = sorted(plan.binds, key=lambda bind: bind.nominated)
    assert (now.nominated, later.nominated) == (False, True)
    assert gpus(now) == (1, 2, 4, 5, 6, 7)
    assert gpus(later) == (0, 3)


def test_a_node_that_may_not_give_all_its_gpus_is_left_alone() -> None:
    document = {"name": "n0", "gpus": 8, "allocatableGpus": 7, "gpuTopology": DGX1}
    (bind,) = planned(cluster([pod(2)], nodes=[document])).binds
    assert bind.link is None


def test_a_gpu_given_twice_or_not_there_is_refused() -> None:
    snapshot = cluster([held(2, 1, 5), pod(2), pod(2)])
    plan = planned(snapshot)
    one, other = plan.binds
    for devices in (one.devices, (replace(one.devices[0], index=1), one.devices[1]), ()):
        wrong = replace(plan, binds=(one, replace(other, devices=devices)))
        assert {violation.rule for violation in check_plan(snapshot, wrong)} == {"devices"}
    far = replace(plan, binds=(one, replace(other, devices=(other.devices[0], replace(other.devices[1], index=8)))))
    assert {violation.rule for violation in check_plan(snapshot, far)} == {"devices"}


BRUTE = Brute(product(DGX1).grade)


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(st.permutations(range(8)), st.lists(st.integers(1, 4), max_size=3), st.lists(st.integers(1, 8), max_size=4))
def test_the_largest_pod_gets_the_best_there_is(order: list[int], running: list[int], asked: list[int]) -> None:
    edges = [sum(running[:index]) for index in range(len(running) + 1)]
    here = [order[first:last] for first, last in pairwise(edges) if last <= 8]
    plan = planned(cluster([*(held(len(each), *each) for each in here), *map(pod, asked)]))
    taken = [*here, *map(gpus, plan.binds)]
    assert sum(map(len, taken)) == mask_of(gpu for each in taken for gpu in each).bit_count()
    assert all(bind.link is not None for bind in plan.binds)
    if plan.binds:
        largest = max(plan.binds, key=lambda bind: len(bind.devices))
        free = frozenset(range(8)) - {gpu for each in here for gpu in each}
        best = BRUTE._best(free, len(largest.devices))
        got = {BRUTE.weakest[frozenset(gpus(b))] for b in plan.binds if len(b.devices) == len(largest.devices)}
        assert max(got) == best
