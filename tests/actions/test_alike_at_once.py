"""Pods and gangs placed at once lie where they would lie had they been placed one by one."""

from dataclasses import replace
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.actions import Actions
from kai_solver.actions.accelerators import runs
from kai_solver.actions.accelerators.predicted_order import foresee
from kai_solver.actions.gang_order import GangOrder
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
    Placement,
    Pod,
    PodSet,
    Policy,
    Queue,
    Snapshot,
    SubGroup,
    TopologyConstraint,
    flat_gang,
)
from kai_solver.domain.pods import PodStatus
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.units import MILLI, ResourceSchema
from tests.support.builders import GIB, RACKS, a_cluster, a_gang, a_node, a_pod, a_queue


@st.composite
def queues(draw: st.DrawFn) -> tuple[Queue, ...]:
    found = []
    for parent in "ab"[: draw(st.integers(1, 2))]:
        found.append(Queue(parent, "", quota=(-1, -1, draw(st.sampled_from([-1, 0, 4])) * MILLI)))
        for child in "xyz"[: draw(st.integers(1, 3))]:
            quota = (-1, -1, draw(st.sampled_from([0, 2])) * MILLI)
            limit = draw(st.sampled_from([-1, -1, 3 * MILLI]))
            found.append(Queue(parent + child, parent, quota=quota, limit=(-1, -1, limit)))
    return tuple(found)


def some_node(draw: st.DrawFn, index: int) -> Node:
    gpus = draw(st.sampled_from([0, 2, 4]))
    cpu = draw(st.sampled_from([2000, 8000]))
    labels = {"rack": f"r{draw(st.integers(0, 2))}"}
    return Node(f"n{index}", (cpu, 64 * GIB, gpus * MILLI, 12), gpus=gpus, gpu_memory_mib=100, labels=labels)


def segmented(size: int, segments: int) -> SubGroup:
    """``size`` pods in turn over ``segments`` that each keep to a rack."""
    counts = [len(range(number, size, segments)) for number in range(segments)]
    keep = TopologyConstraint("dc", "rack")
    return SubGroup("", tuple(PodSet(f"s{number}", count, keep) for number, count in enumerate(counts)))


def some_gang(draw: st.DrawFn, name: str, leaves: list[str]) -> Gang:
    size = draw(st.sampled_from([1, 1, 2, 5, 6]))
    gpu = GpuRequest(draw(st.integers(0, 2))) if draw(st.integers(0, 5)) else GpuRequest(1, 500)
    cpu = draw(st.sampled_from([0, 500]))
    pods = [Pod("ns", f"{name}-{i}", (cpu, GIB, 0, 1), gpu, order=(0, float(i), "")) for i in range(size)]
    if draw(st.integers(0, 5)) == 0:
        pods[-1] = replace(pods[-1], request=(1500, GIB, 0, 1))
    if draw(st.integers(0, 7)) == 0:
        pods[0] = replace(pods[0], nominated_node="n1")
    kind = draw(st.integers(0, 7))
    constraint = TopologyConstraint("dc", "rack" if kind == 0 else "", "rack") if kind < 2 else None
    root = flat_gang(draw(st.sampled_from([size, size, max(1, size - 1)])), constraint)
    if kind == 2:
        segments = draw(st.integers(1, min(size, 3)))
        root = segmented(size, segments)
        pods = [replace(pod, podset=f"s{number % segments}") for number, pod in enumerate(pods)]
    return Gang(
        "ns",
        name,
        draw(st.sampled_from(leaves)),
        root,
        tuple(pods),
        preemptible=draw(st.integers(0, 3)) > 0,
        created_s=float(draw(st.integers(0, 2))),
        placement=draw(
            st.sampled_from([Placement()] * 5 + [Placement(nodes="spread"), Placement(max_pods_per_node=2)])
        ),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Nodes of several sizes, some with pods that leave, and gangs of few shapes that wait."""
    nodes = [some_node(draw, index) for index in range(draw(st.integers(1, 6)))]
    made = draw(queues())
    leaves = [queue.name for queue in made if queue.parent]
    gangs = [some_gang(draw, f"g{number}", leaves) for number in range(draw(st.integers(1, 10)))]
    for number, node in enumerate(nodes):
        if node.gpus and draw(st.integers(0, 2)) == 0:
            leaving = Pod("ns", f"old-{number}", (100, GIB, 0, 1), GpuRequest(1), PodStatus.RELEASING, node=node.name)
            gangs.append(Gang("ns", f"old-{number}", leaves[0], flat_gang(1), (leaving,)))
    policy = Policy(
        gpu_placement=draw(st.sampled_from(["binpack", "spread"])),
        cpu_placement=draw(st.sampled_from(["binpack", "spread"])),
    )
    return Snapshot(10.0, ResourceSchema(), tuple(nodes), made, tuple(gangs), (RACKS,), policy=policy)


def allocated(problem: Problem, *, at_once: bool, look_ahead_from: int = runs.MANY) -> Outcome:
    actions = Actions(problem, (Action.ALLOCATE,), SolverActions(None))
    actions.context.placer.at_once = at_once
    with patch.object(runs, "MANY", look_ahead_from):
        return actions.run()


def books(state: State) -> list[object]:
    """All that a state says about who is where and what is free."""
    arrays = (state.idle, state.future, state.device_idle, state.device_future, state.whole_now, state.whole_later)
    ledgers = (state.allocated, state.allocated_fixed, state.gpu_free.tolist(), sorted(state.places.items()))
    return [*(array.tolist() for array in arrays), *ledgers, state.gangs]


@pytest.mark.slow
@given(snapshot=clusters())
@settings(max_examples=300, deadline=None)
def test_the_outcome_is_that_of_placing_one_by_one(snapshot: Snapshot) -> None:
    problem = build_problem(snapshot)
    slow = allocated(problem, at_once=False)
    for look_ahead_from in (1, 100):
        fast = allocated(problem, at_once=True, look_ahead_from=look_ahead_from)
        assert books(fast.state) == books(slow.state)
        assert fast.admissions == slow.admissions
        assert fast.refusals == slow.refusals


def started(leaves: str) -> list[tuple[str, bool]]:
    """Nodes of six pods that would like one rack, and whether they start now: of a rack of five GPUs, and one of four.

    A pod of one GPU is on its way out of the node ``leaves``.
    """
    nodes = [replace(a_node(f"n{i}", gpus), labels={"rack": f"r{i}"}) for i, gpus in enumerate((5, 4))]
    leaving = replace(a_pod("old-0", on=leaves), status=PodStatus.RELEASING)
    gangs = [
        replace(a_gang("w", pods=6, need=1), root=flat_gang(6, TopologyConstraint("dc", "", "rack"))),
        replace(a_gang("old"), pods=(leaving,)),
    ]
    snapshot = replace(a_cluster(nodes, gangs, [a_queue("q", 9)]), topologies=(RACKS,))
    state = allocated(build_problem(snapshot), at_once=True).state
    return [(state.problem.nodes[place.node].name, place.now) for _, place in sorted(state.places.items())]


def test_what_prefers_a_rack_waits_for_room_there() -> None:
    """A better rack counts for more than an early start, and all of the gang start together."""
    assert sorted(started("n0")) == [("n0", False)] * 5 + [("n1", False)]


def test_nothing_waits_for_room_of_a_rack_that_is_not_needed() -> None:
    assert sorted(started("n1")) == [("n0", True)] * 5 + [("n1", True)]


@pytest.mark.slow
@given(snapshot=clusters())
@settings(max_examples=50, deadline=None)
def test_what_was_placed_at_once_can_be_taken_back(snapshot: Snapshot) -> None:
    problem = build_problem(snapshot)
    before, state = State(problem), allocated(problem, at_once=True).state
    state.rollback(0)
    assert books(state) == books(before)


@pytest.mark.slow
@given(snapshot=clusters())
@settings(max_examples=150, deadline=None)
def test_the_turns_foreseen_are_those_that_come_if_all_are_served(snapshot: Snapshot) -> None:
    state = State(build_problem(snapshot))
    gang_units = [
        AllocationUnits(gang, kept, state.problem.pod_shape)
        for gang, kept in zip(state.problem.gangs, state.gangs, strict=True)
    ]
    gang_order = GangOrder(state, gang_units, range(len(gang_units)))
    expected = foresee(state, {leaf: list(line) for leaf, line in gang_order.lines()})
    came = []
    while (next_gang := gang_order.pop()) is not None:
        came.append(next_gang)
        state.join(next_gang.allocation_unit.pods, next_gang.charge)
    assert [next_gang.gang for next_gang in came] == [next_gang.gang for next_gang in expected]
