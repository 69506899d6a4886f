"""Gangs with subgroups that get pods in a cycle: what these need stays, and what leaves or waits is what may."""

from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import PodSet, PodStatus, SubGroup
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from tests.support.builders import a_cluster, a_gang, a_node, a_pod, a_queue


@pytest.mark.parametrize("model", ["greedy-only", "default"])
@pytest.mark.parametrize("waits", [True, False])
def test_a_subgroup_that_got_its_minimum_is_not_broken_by_another_gang(model: str, *, waits: bool) -> None:
    """One of two subgroups is enough. The first lacks a pod; once that has come, the other pod of it is no surplus."""
    first = SubGroup("first", (PodSet("comes", 1), PodSet("runs", 1)))
    root = SubGroup(children=(first, PodSet("second", 1)), min_subgroups=1)
    pods = [
        a_pod("runs", 2, "n0", podset="runs"),
        a_pod("second", 1, "n1", podset="second"),
        *([a_pod("comes", 1, podset="comes")] if waits else []),
    ]
    gang = a_gang("elastic", *pods, root=root, queue="a")
    taker = a_gang("taker", 2, queue="b", created_s=1.0)
    nodes = [a_node("n0", 2), a_node("n1", 1), a_node("n2", 1)]
    cluster = a_cluster(nodes, [gang, taker], [a_queue("a", 0), a_queue("b", 4)])
    plan = cycle(cluster, load_model(model), budget_s=10.0)
    assert check_plan(cluster, plan) == ()
    assert not plan.notes
    assert {bind.gang for bind in plan.binds} >= {"ns/taker"}


@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_surplus_of_a_required_subgroup_leaves_though_more_of_it_comes(model: str) -> None:
    """A master and eight workers, of which one is needed: one more starts on another node, and two leave for a gang."""
    root = SubGroup(children=(PodSet("master", 1), PodSet("worker", 1)))
    runs = [a_pod("master", 1, "n0", podset="master"), *(a_pod(f"w{i}", 1, "n0", podset="worker") for i in range(7))]
    train = a_gang("train", *runs, a_pod("new", 1, podset="worker"), root=root, queue="a")
    taker = a_gang("taker", 2, queue="b", created_s=1.0)
    cluster = a_cluster([a_node("n0", 8), a_node("n1", 1)], [train, taker], [a_queue("a", 6), a_queue("b", 2)])
    plan = cycle(cluster, load_model(model), budget_s=10.0)
    assert check_plan(cluster, plan) == ()
    assert {bind.pod for bind in plan.binds} == {"ns/new", "ns/taker-0"}
    assert len(plan.evictions) == 2


@pytest.mark.parametrize("model", ["greedy-only", "default"])
def test_more_of_a_subgroup_does_not_start_before_its_minimum(model: str) -> None:
    """The gang has its minimum with no pod at all. Two large pods of one subgroup wait; a small one has room."""
    root = SubGroup(children=(PodSet("work", 2), PodSet("none", 0)), min_subgroups=1)
    pods = [a_pod(f"work{number}", gpus, podset="work", order=number) for number, gpus in enumerate((2, 2, 1))]
    leaving = a_gang("leaving", a_pod("leaving", 4, "n0", status=PodStatus.RELEASING))
    nodes = [a_node("n0", 4), a_node("n1", 1)]
    cluster = a_cluster(nodes, [leaving, a_gang("grows", *pods, root=root, created_s=1.0)], [a_queue("q", 8)])
    plan = cycle(cluster, load_model(model), budget_s=10.0)
    assert check_plan(cluster, plan) == ()
    assert not plan.notes
    assert {bind.pod: bind.nominated for bind in plan.binds} == {pod.key: True for pod in pods}


@pytest.mark.parametrize("model", ["greedy-only", "default"])
@pytest.mark.parametrize("minimum", [1, 0])
def test_a_gang_that_lacks_an_optional_subgroup_comes_before_surplus_of_another(model: str, *, minimum: int) -> None:
    """Each lacks a pod, and there is room for one. Without a minimum of its own, the subgroup lacks none."""
    root = SubGroup(children=(PodSet("runs", 1), PodSet("lacks", minimum)), min_subgroups=1)
    runs = [a_pod(f"runs{number}", on="n0", podset="runs", order=number) for number in range(3)]
    parts = a_gang("parts", *runs, a_pod("lacks", podset="lacks"), root=root)
    grows = a_gang("grows", pods=2, need=1, on=["n0"])
    cluster = a_cluster([a_node("n0", 5)], [replace(parts, created_s=5.0), grows], [a_queue("q", 8)])
    plan = cycle(cluster, load_model(model), budget_s=10.0)
    assert [bind.pod for bind in plan.binds] == ["ns/lacks" if minimum else "ns/grows-1"]
