"""How many pods must leave for newcomers that need most of a node: never more than the best choice."""

from dataclasses import replace
from itertools import combinations, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.bounds.whole_nodes import fewest_leaving
from kai_solver.domain import GpuRequest, PodStatus, Snapshot
from kai_solver.problem import build_problem
from kai_solver.units import UNLIMITED
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

QUEUES = [a_queue("q", UNLIMITED)]


def bound(snapshot: Snapshot) -> int:
    """Of the pods that wait."""
    problem = build_problem(snapshot)
    return fewest_leaving(problem, [pod for pod, node in enumerate(problem.pod_node) if node < 0])


def half_full(nodes: int, newcomers: int, gpus: int = 4) -> Snapshot:
    """Nodes of four GPUs with two one-GPU pods each."""
    gangs = [a_gang(f"old-{index}", on=f"n{index // 2}") for index in range(2 * nodes)]
    gangs += [a_gang(f"new-{index}", gpus=gpus) for index in range(newcomers)]
    return a_cluster([a_node(f"n{index}", 4) for index in range(nodes)], gangs, QUEUES)


@pytest.mark.parametrize(
    ("snapshot", "expected"),
    [
        (half_full(3, 1), 2),
        (half_full(3, 3), 6),
        (half_full(3, 2, gpus=3), 2),
        (half_full(3, 3, gpus=2), 0),  # Two of these may share a node.
        (half_full(2, 1, gpus=5), 0),  # No node has as many: nothing is said of what cannot be.
    ],
)
def test_each_of_the_pods_that_need_most_of_a_node_empties_one(snapshot: Snapshot, expected: int) -> None:
    assert bound(snapshot) == expected


def test_the_largest_pods_of_a_node_leave_first() -> None:
    nodes = [a_node("n0", 8)]
    gangs = [a_gang("one", on="n0"), a_gang("three", gpus=3, on="n0"), a_gang("new", gpus=7)]
    assert bound(a_cluster(nodes, gangs, QUEUES)) == 1
    assert bound(a_cluster(nodes, [*gangs[:2], a_gang("new", gpus=8)], QUEUES)) == 2


def test_pods_that_leave_already_and_free_nodes_cost_nothing() -> None:
    snapshot = half_full(2, 1)
    leaving = tuple(
        replace(gang, pods=tuple(replace(pod, status=PodStatus.RELEASING) for pod in gang.pods))
        if gang.pods[0].node == "n0"
        else gang
        for gang in snapshot.gangs
    )
    assert bound(replace(snapshot, gangs=leaving)) == 0
    assert bound(replace(snapshot, nodes=(*snapshot.nodes, a_node("n2", 4)))) == 0


def test_a_device_is_whole_when_the_last_that_shares_it_has_left() -> None:
    """Each of four halves is said to free a device: the bound may be too low, and never too high."""
    half = GpuRequest(1, 500)
    halves = [a_gang(f"half-{index}", on="n0") for index in range(4)]
    halves = [replace(gang, pods=tuple(replace(pod, gpu=half) for pod in gang.pods)) for gang in halves]
    found = bound(a_cluster([a_node("n0", 4)], [*halves, a_gang("new", gpus=4)], QUEUES))
    assert 2 <= found <= 4


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    gpus_of = {f"n{index}": draw(st.sampled_from([2, 4])) for index in range(draw(st.integers(1, 3)))}
    gangs = []
    for node, left in gpus_of.items():
        for number in range(draw(st.integers(0, 3))):
            gpus = draw(st.integers(1, 2))
            if gpus <= left:
                gangs.append(a_gang(f"old-{node}-{number}", gpus=gpus, on=node))
                left -= gpus
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    gangs += [a_gang(f"new-{number}", gpus=gpus) for number, gpus in enumerate(sizes)]
    return a_cluster([a_node(name, gpus) for name, gpus in gpus_of.items()], gangs, QUEUES)


def fewest(snapshot: Snapshot) -> int | None:
    """Trying all; None where the newcomers do not fit even on empty nodes."""
    running = [pod for gang in snapshot.gangs for pod in gang.pods if pod.node]
    asked = [pod.gpu.devices for gang in snapshot.gangs for pod in gang.pods if not pod.node]
    names = [node.name for node in snapshot.nodes]
    for count in range(len(running) + 1):
        for leaving in combinations(running, count):
            free = {node.name: node.gpus for node in snapshot.nodes}
            for pod in running:
                free[pod.node] -= pod.gpu.devices if pod not in leaving else 0
            for seats in product(names, repeat=len(asked)):
                taken = {name: sum(a for a, s in zip(asked, seats, strict=True) if s == name) for name in names}
                if all(taken[name] <= free[name] for name in names):
                    return count
    return None


@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_no_choice_of_leaving_pods_is_below_the_bound(snapshot: Snapshot) -> None:
    best = fewest(snapshot)
    if best is not None:
        assert bound(snapshot) <= best
