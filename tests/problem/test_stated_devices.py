"""Pods that are said to have devices which others have, or fewer than they ask for: what is left on their node."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Gang, GpuRequest, Plan, PodStatus
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem
from kai_solver.problem.devices import presumed_devices
from tests.support.builders import a_cluster, a_gang, a_node

GREEDY = load_model("greedy-only")
HALF = GpuRequest(1, 500)
GPUS = 4


def on(
    name: str,
    gpus: int | GpuRequest,
    *devices: int,
    node: str = "n",
    wished: tuple[int, ...] = (),
    status: PodStatus = PodStatus.RUNNING,
) -> Gang:
    """A running gang of one pod that is said to have ``devices``."""
    gang = a_gang(name, gpus=gpus, on=node)
    return replace(gang, pods=(replace(gang.pods[0], devices=devices, wished=wished, status=status),))


def planned(gangs: Sequence[Gang], *nodes: str) -> Plan:
    plan = cycle(a_cluster([a_node(name, GPUS) for name in nodes or ("n",)], gangs), GREEDY, budget_s=60.0)
    assert not [note for note in plan.notes if "checker" in note]
    return plan


@pytest.mark.parametrize(
    ("gangs", "expected"),
    [
        ([on("a", 2, 0, 1), on("b", 2, 0, 1)], [(0, 1), ()]),
        ([on("a", 2, 0, 1), on("b", 2, 1, 2)], [(0, 1), (2, 3)]),
        ([on("a", 2, 3)], [(0, 3)]),
        ([on("a", 2, 3), on("b", 2, 0)], [(1, 3), (0, 2)]),
        ([on("a", 3, 0), on("b", 1, wished=(0,))], [(0, 1, 2), ()]),
        ([on("a", 1, 0, status=PodStatus.RELEASING), on("b", 1, 0)], [(), (0,)]),
    ],
    ids=["the same", "one of two", "one is known", "one of each is known", "known before chosen", "leaving after"],
)
def test_no_pod_has_the_devices_of_another(gangs: Sequence[Gang], expected: list[tuple[int, ...]]) -> None:
    assert presumed_devices(GPUS, [gang.pods[0] for gang in gangs]) == expected


def test_two_pods_with_the_same_devices_hold_as_many_as_they_ask_for() -> None:
    running = [on("a", 2, 0, 1), on("b", 2, 0, 1)]
    assert not planned([*running, a_gang("new", gpus=1)]).binds
    assert [bind.node for bind in planned([*running, a_gang("new", gpus=1)], "n", "other").binds] == ["other"]


def test_nothing_can_be_had_where_a_shared_device_is_said_to_be_another_pods() -> None:
    running = [on("whole", 2, 0, 1), on("half", HALF, 0)]
    assert not planned([*running, a_gang("new", gpus=HALF)]).binds
    assert [bind.node for bind in planned([*running, a_gang("new", gpus=HALF)], "n", "other").binds] == ["other"]


def test_shares_of_one_device_contradict_nothing() -> None:
    problem = build_problem(a_cluster([a_node("n", GPUS)], [on("x", HALF, 2), on("y", HALF, 2), on("z", 1)]))
    assert (problem.device_free[0] > 0).sum() == 2


def test_the_place_of_a_pod_that_leaves_is_given_once() -> None:
    """Node n is full once the pod that is being moved there has the GPU of the one that leaves."""
    moved = on("moved", 1, node="other", status=PodStatus.RELEASING)
    moved = replace(moved, pods=(replace(moved.pods[0], nominated_node="n"),))
    running = [on("a", 1), on("leaves", 1, status=PodStatus.RELEASING), on("z", 2), moved]
    assert not planned([*running, on("full", 3, node="other"), a_gang("new", gpus=1)], "n", "other").binds[1:]
    problem = build_problem(a_cluster([a_node("n", GPUS), a_node("other", GPUS)], running))
    assert (problem.device_free[0] + problem.device_releasing[0] <= 0).all()


@pytest.mark.parametrize(
    ("second", "held"),
    [
        (on("b", 1), [(0, 1), (2,)]),
        (on("b", 1, 0), [(1, 2), (0,)]),
        (on("b", 1, wished=(0,)), [(1, 2), (0,)]),
        (on("b", HALF), [(0, 1), (2,)]),
        (on("b", 1, status=PodStatus.RELEASING), [(0, 1), (2,)]),
        (on("b", 4), [(0, 1), (0, 1, 2, 3)]),
    ],
    ids=["nothing is said", "one is known", "one was chosen", "one is shared", "one leaves", "there are too few"],
)
def test_devices_that_nothing_is_said_of_are_the_first_that_are_left(second: Gang, held: list[tuple[int, ...]]) -> None:
    problem = build_problem(a_cluster([a_node("n", GPUS)], [on("a", 2), second]))
    assert not problem.devices_known[0]
    assert [problem.held_devices[pod] for pod in range(2)] == held


@st.composite
def crowds(draw: st.DrawFn) -> list[Gang]:
    """Pods of whole devices that fit a node by number, whatever is said of their devices."""
    gangs, left = list[Gang](), GPUS
    for number in range(draw(st.integers(1, 3))):
        gpus = draw(st.integers(1, GPUS))
        if gpus <= left:
            left -= gpus
            devices = draw(st.lists(st.integers(0, GPUS - 1), max_size=gpus, unique=True).map(sorted))
            is_known = draw(st.booleans())
            wished = () if is_known else tuple(devices) * (len(devices) == gpus)
            gangs.append(on(f"g{number}", gpus, *(devices if is_known else ()), wished=wished))
    return gangs


@given(crowds(), st.integers(1, GPUS))
def test_what_is_left_can_be_had_whatever_is_said_of_devices(running: list[Gang], asked: int) -> None:
    used = sum(gang.pods[0].gpu.devices for gang in running)
    plan = planned([*running, a_gang("new", gpus=asked)])
    assert len(plan.binds) == (used + asked <= GPUS)
