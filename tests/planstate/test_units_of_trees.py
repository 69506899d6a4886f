"""Units in which a gang is evicted: whichever of them have left, each part keeps its minimum, or loses all."""

from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check.units import broken_unit
from kai_solver.instances_io import snapshot_from_native
from kai_solver.planstate.eviction_units import units_of
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from tests.problem.test_memo import a_cluster

Group = dict[str, Any]


@st.composite
def a_tree(draw: st.DrawFn) -> tuple[list[Group], dict[str, int], int]:
    """Groups, pods that run by leaf, and how many groups are needed; less than the minimum may run."""
    running: dict[str, int] = {}

    def grow(name: str, depth: int) -> Group:
        if depth < 2 and draw(st.integers(0, 2)) == 0:
            groups = [grow(f"{name}{letter}", depth + 1) for letter in "xyz"[: draw(st.integers(1, 3))]]
            return {"name": name, "groups": groups, "minGroups": draw(st.integers(0, len(groups)))}
        running[name] = draw(st.integers(0, 3))
        return {"name": name, "minMember": draw(st.integers(0, 3))}

    groups = [grow(f"s{i}", 0) for i in range(draw(st.integers(1, 3)))]
    return groups, running, draw(st.integers(0, len(groups)))


@pytest.mark.slow
@given(a_tree())
@settings(max_examples=300, deadline=None)
def test_what_leaves_leaves_no_part_below_its_minimum(tree: tuple[list[Group], dict[str, int], int]) -> None:
    groups, running, needed = tree
    pods = [
        {"name": f"{leaf}-{i}", "group": leaf, "cpu": 1, "status": "Running", "node": "n"}
        for leaf, count in running.items()
        for i in range(count)
    ]
    file = {
        "format": "kai-solver/v1",
        "nodes": [{"name": "n"}],
        "queues": [{"name": "q"}],
        "gangs": [{"name": "g", "queue": "q", "groups": groups, "minGroups": needed, "pods": pods}],
    }
    snapshot = snapshot_from_native(file)
    problem = build_problem(snapshot)
    if not problem.gangs:  # A tree that cannot be is set aside.
        return
    units = units_of(State(problem), np.array([0])).units
    counts = Counter(pod.podset for pod in snapshot.gangs[0].pods)
    assert sorted(p for unit in units for p in unit.pods) == list(range(len(pods)))
    lost: Counter[str] = Counter()
    for unit in units:
        gone = Counter(problem.pods[pod].podset for pod in unit.pods)
        counts, lost = counts - gone, lost + gone
        assert broken_unit(snapshot.gangs[0].root, counts, lost) is None


def leaf(name: str, minimum: int) -> Group:
    return {"name": name, "minMember": minimum}


@pytest.mark.parametrize(
    ("groups", "needed", "running", "left"),
    [
        # The larger part of the minimum first, of equal ones the last name.
        ([leaf("a", 1), leaf("b", 1)], 2, {"a": 2, "b": 3}, ["b2", "b1", "a1", "a0 b0"]),
        ([leaf("a", 1), leaf("b", 1)], 2, {"a": 3, "b": 2}, ["a2", "b1", "a1", "a0 b0"]),
        ([leaf("a", 2), leaf("b", 1)], 2, {"a": 4, "b": 2}, ["b1", "a3", "a2", "a0 a1 b0"]),
        # Without a minimum before those with one, whichever holds more.
        ([leaf("a", 2), leaf("b", 0)], 2, {"a": 4, "b": 2}, ["b1", "b0", "a3", "a2", "a0 a1"]),
        ([leaf("a", 0), leaf("b", 0)], 2, {"a": 3, "b": 1}, ["a2", "a1", "b0", "a0"]),
        # Surplus anywhere before an optional subgroup, which then leaves whole.
        ([leaf("a", 1), leaf("b", 1), leaf("c", 1)], 1, {"a": 1, "b": 2, "c": 1}, ["b1", "c0", "b0", "a0"]),
        ([leaf("a", 2), leaf("b", 2)], 1, {"a": 2, "b": 1}, ["b0", "a0 a1"]),
        (
            [{"name": "x", "groups": [leaf("a", 1), leaf("b", 1)], "minGroups": 1}, leaf("c", 1)],
            2,
            {"a": 1, "b": 1, "c": 2},
            ["b0", "c1", "a0 c0"],
        ),
        # Below the minimum, all leave together.
        ([leaf("a", 2), leaf("b", 2)], 2, {"a": 3, "b": 1}, ["a0 a1 a2 b0"]),
    ],
)
def test_which_pods_leave_first(groups: list[Group], needed: int, running: dict[str, int], left: list[str]) -> None:
    assert [" ".join(pods) for pods in units_that_leave(groups, needed, running)] == left


def units_that_leave(groups: list[Group], needed: int, running: dict[str, int]) -> list[list[str]]:
    pods = [
        {"name": f"{name}{i}", "group": name, "cpu": 1, "status": "Running", "node": "n"}
        for name, count in running.items()
        for i in range(count)
    ]
    gang = {"name": "g", "queue": "q", "groups": groups, "minGroups": needed, "pods": pods}
    snapshot = snapshot_from_native(
        {"format": "kai-solver/v1", "nodes": [{"name": "n"}], "queues": [{"name": "q"}], "gangs": [gang]}
    )
    problem = build_problem(snapshot)
    units = units_of(State(problem), np.array([0])).units
    return [[problem.pods[pod].name for pod in sorted(unit.pods)] for unit in units]


@pytest.mark.parametrize("seed", range(60))
def test_units_of_gangs_that_were_not_looked_at_are_those_of_gangs_that_were(seed: int) -> None:
    problem = build_problem(a_cluster(Random(seed)))
    gangs = np.flatnonzero(problem.gang_columns.lies)
    untouched, looked_at = State(problem), State(problem)
    assert all(looked_at.gangs[gang].active for gang in gangs.tolist())
    found, wanted = units_of(untouched, gangs), units_of(looked_at, gangs)
    assert [*found.units] == [*wanted.units]
    assert [pod for unit in found.units for pod in unit.pods] == found.pods.tolist()
    assert [unit.index for unit in found.units] == list(range(len(found.units)))


@pytest.mark.parametrize("seed", range(30))
def test_units_of_a_gang_come_one_after_the_other(seed: int) -> None:
    pool = VictimPool.of_running(State(build_problem(a_cluster(Random(seed)))))
    of_gang: dict[int, list[int]] = {}
    for unit in pool.units:
        of_gang.setdefault(unit.gang, []).append(unit.index)
        assert pool.units[unit.index].step == len(of_gang[unit.gang]) - 1
    assert dict(pool.of_gang) == of_gang
    assert all((gang in pool.of_gang) == (gang in of_gang) for gang in range(-1, len(pool.state.problem.gangs) + 1))
