"""Ranks follow the domain tree: as near as the places allow, and nothing but who is who changes."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import (
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodSet,
    PodStatus,
    Queue,
    Snapshot,
    SubGroup,
    Topology,
    TopologyConstraint,
    TopologyLevel,
)
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.topology import fewest_apart, neighbours_apart
from kai_solver.units import MILLI, ResourceSchema

INDEX = "batch.kubernetes.io/job-completion-index"
LEVELS = ("block", "clique")
GIB = 2**30
FREE = (-1, -1, -1)


def a_node(name: str, block: int, clique: int, gpus: int = 4) -> Node:
    labels = {"block": f"b{block}", "clique": f"c{clique}"}
    return Node(name, (64_000, 64 * GIB, gpus * MILLI, 20), gpus=gpus, gpu_memory_mib=100, labels=labels)


def a_gang(leaves: tuple[PodSet, ...], of: list[str], *, gpus: int = 4, labelled: bool = True) -> Gang:
    """Pods of the podsets ``of``, in order of rank; their names tell nothing."""
    names = [f"g-{(7 * i + 3) % 97:02}" for i in range(len(of))]
    pods = [
        Pod(
            "ns",
            name,
            (1000, GIB, 0, 1),
            GpuRequest(gpus),
            podset=podset,
            order=(0, 0.0, name),
            labels={INDEX: str(rank)} if labelled else {},
        )
        for rank, (name, podset) in enumerate(zip(names, of, strict=True))
    ]
    return Gang("ns", "g", "q", SubGroup(children=leaves), tuple(pods))


def snapshot_of(nodes: list[Node], gang: Gang) -> Snapshot:
    topology = Topology("dc", tuple(TopologyLevel(level) for level in LEVELS))
    return Snapshot(1000.0, ResourceSchema(), tuple(nodes), (Queue("q", quota=FREE),), (gang,), (topology,))


def planned(snapshot: Snapshot) -> Plan:
    plan = cycle(snapshot, load_model("greedy-only"))
    assert len(plan.binds) == sum(pod.status is PodStatus.PENDING for gang in snapshot.gangs for pod in gang.pods)
    return plan


def domains_by_rank(snapshot: Snapshot, plan: Plan, level: str, podset: str = "") -> list[str]:
    node_of = {bind.pod: bind.node for bind in plan.binds}
    labels = {node.name: node.labels for node in snapshot.nodes}
    pods = [pod for pod in snapshot.gangs[0].pods if podset in ("", pod.podset)]
    return [labels[node_of[pod.key]][level] for pod in sorted(pods, key=lambda pod: int(pod.labels[INDEX]))]


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Up to 12 nodes of 1 to 4 GPUs under names that do not follow the tree; a gang of pods of 1 or 2 GPUs."""
    count = draw(st.integers(2, 12))
    names = draw(st.permutations([f"n{i:02}" for i in range(count)]))
    nodes = [
        a_node(name, clique // 2, clique, draw(st.integers(1, 4)))
        for name, clique in zip(names, (draw(st.integers(0, 4)) for _ in names), strict=True)
    ]
    room = sum(node.gpus for node in nodes)
    pods = draw(st.integers(1, room))
    roles = [draw(st.sampled_from(["a", "a", "b"])) for _ in range(pods)]
    leaves = tuple(PodSet(role, roles.count(role)) for role in sorted(set(roles)))
    return snapshot_of(nodes, a_gang(leaves, roles, gpus=1))


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(clusters())
def test_as_few_neighbours_as_possible_are_apart_at_every_level(snapshot: Snapshot) -> None:
    plan = planned(snapshot)
    for podset in snapshot.gangs[0].root.podsets():
        for level in LEVELS:
            found = domains_by_rank(snapshot, plan, level, podset.name)
            assert neighbours_apart(found) == fewest_apart(found)
    assert check_plan(snapshot, plan) == ()


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(clusters())
def test_what_is_where_changes_and_how_many_are_where_does_not(snapshot: Snapshot) -> None:
    gang = snapshot.gangs[0]
    unranked = replace(snapshot, gangs=(replace(gang, pods=tuple(replace(pod, labels={}) for pod in gang.pods)),))
    ours, plain = (Counter((b.node, b.devices) for b in planned(s).binds) for s in (snapshot, unranked))
    assert ours == plain
    assert planned(snapshot).binds == planned(snapshot).binds


def test_the_checker_tells_of_ranks_that_could_be_nearer() -> None:
    nodes = [a_node(f"n{i}", 0, i % 2) for i in range(4)]
    snapshot = snapshot_of(nodes, a_gang((PodSet("w", 4),), ["w"] * 4))
    plan = planned(snapshot)
    assert domains_by_rank(snapshot, plan, "clique") == ["c0", "c0", "c1", "c1"]
    first, second, *rest = sorted(plan.binds, key=lambda bind: bind.node)
    crossed = (replace(first, node=second.node), replace(second, node=first.node), *rest)
    found = check_plan(snapshot, replace(plan, binds=crossed))
    assert [violation.rule for violation in found] == ["ranks"]
    assert "2 neighbours in rank are in different domains of clique, where 1 would do" in found[0].text


def test_segments_of_which_a_pod_was_promised_a_place_keep_theirs() -> None:
    """The first segment fits the second clique best. Were the others of the segments exchanged, both would be torn."""
    in_clique = TopologyConstraint("dc", "clique")
    nodes = [a_node(f"n{clique}", 0, clique, gpus) for clique, gpus in enumerate((16, 12))]
    gang = a_gang(tuple(PodSet(f"s{i}", 3, in_clique) for i in range(2)), [f"s{i // 3}" for i in range(6)])
    promised = {gang.pods[2].name: "n1", gang.pods[4].name: "n0"}
    pods = tuple(replace(pod, nominated_node=promised.get(pod.name, "")) for pod in gang.pods)
    unpromised = snapshot_of(nodes, gang)
    assert domains_by_rank(unpromised, planned(unpromised), "clique") == ["c0"] * 3 + ["c1"] * 3
    snapshot = snapshot_of(nodes, replace(gang, pods=pods))
    plan = planned(snapshot)
    assert check_plan(snapshot, plan) == ()
    assert domains_by_rank(snapshot, plan, "clique") == ["c1"] * 3 + ["c0"] * 3


def test_segments_follow_each_other_through_the_blocks() -> None:
    """Six cliques in three blocks whose names mix; four segments of two lie in a row of cliques, block by block."""
    in_clique = TopologyConstraint("dc", "clique")
    nodes = [a_node(f"n{i:02}", i % 3, 10 * (i % 3) + i // 6) for i in range(12)]
    leaves = tuple(PodSet(f"s{i}", 2, in_clique) for i in range(4))
    snapshot = snapshot_of(nodes, a_gang(leaves, [f"s{i // 2}" for i in range(8)]))
    plan = planned(snapshot)
    for level in LEVELS:
        found = domains_by_rank(snapshot, plan, level)
        assert neighbours_apart(found) == fewest_apart(found)
    assert [len(set(pair)) for pair in np.array(domains_by_rank(snapshot, plan, "clique")).reshape(4, 2)] == [1] * 4


def test_segments_without_a_level_are_one_row() -> None:
    nodes = [a_node(f"n{i:02}", 0, i % 3) for i in range(6)]
    leaves = tuple(PodSet(f"s{i}", 2) for i in range(3))
    snapshot = snapshot_of(nodes, a_gang(leaves, [f"s{i // 2}" for i in range(6)]))
    assert domains_by_rank(snapshot, planned(snapshot), "clique") == ["c0", "c0", "c1", "c1", "c2", "c2"]


def test_pods_of_two_sizes_are_not_exchanged() -> None:
    nodes = [a_node("large", 0, 1, 4), a_node("small", 0, 0, 1)]
    gang = a_gang((PodSet("w", 2),), ["w", "w"], gpus=1)
    first, second = gang.pods
    gang = replace(gang, pods=(replace(first, gpu=GpuRequest(4)), second))
    plan = planned(snapshot_of(nodes, gang))
    assert {bind.pod: bind.node for bind in plan.binds} == {first.key: "large", second.key: "small"}


def test_what_was_promised_a_place_keeps_it() -> None:
    nodes = [a_node("n0", 0, 0), a_node("n1", 0, 1)]
    gang = a_gang((PodSet("w", 2),), ["w", "w"])
    first, second = gang.pods
    promised = replace(gang, pods=(replace(first, nominated_node="n1"), replace(second, nominated_node="n0")))
    plan = planned(snapshot_of(nodes, promised))
    assert {bind.pod: bind.node for bind in plan.binds} == {first.key: "n1", second.key: "n0"}
    assert check_plan(snapshot_of(nodes, promised), plan) == ()


@pytest.mark.parametrize("labelled", [True, False])
def test_a_lost_worker_comes_back_beside_those_that_run(labelled: bool) -> None:
    nodes = [a_node(f"n{i}", 0, 0) for i in range(3)]
    gang = a_gang((PodSet("w", 3),), ["w"] * 3, labelled=labelled)
    running = tuple(
        replace(pod, status=PodStatus.RUNNING, node=f"n{i}", devices=(0, 1, 2, 3)) if i < 2 else pod
        for i, pod in enumerate(gang.pods)
    )
    snapshot = snapshot_of(nodes, replace(gang, pods=running, last_start_s=0.0))
    plan = planned(snapshot)
    assert [bind.node for bind in plan.binds] == ["n2"]
    assert check_plan(snapshot, plan) == ()
