"""Nodes chosen by the links of what they have free: cube meshes, of which it is known who holds what."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Pod, Snapshot, SolverModel
from kai_solver.engine import cycle
from kai_solver.instances_io.native import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.planstate.linking import Links
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, build_problem
from tests.links.brute import Brute
from tests.links.graphs import product

DGX1 = "dgx1-v100-8"
BRUTE = Brute(product(DGX1).grade)
EVERY = frozenset(range(8))
MODEL = load_model("greedy-only")
STILL = replace(MODEL, actions=(Action.ALLOCATE,))
"""Nobody is moved to make room."""
UNLINKED = replace(MODEL, stages=tuple(stage for stage in MODEL.stages if stage.name != "links"))

DOUBLE, FAR = {1, 5}, {0, 5}
"""Pairs of a cube mesh: two NVLinks, and none."""


def cluster(free: Sequence[set[int]], asked: int, *, topology: str = DGX1, **more: Any) -> Snapshot:
    """A node for each of ``free`` where one pod runs on the other GPUs; a pod of ``asked`` GPUs waits."""
    held = [sorted(EVERY - own) for own in free]
    gangs = [
        {
            "name": f"r{n}",
            "queue": "q",
            "pods": [{"gpus": len(own), "status": "Running", "node": f"n{n}", "devices": own}],
        }
        for n, own in enumerate(held)
        if own
    ]
    document = {
        "format": "kai-solver/v1",
        "nodes": [{"name": f"n{n}", "gpus": 8, "gpuTopology": topology} for n in range(len(free))],
        "queues": [{"name": "q", "quota": 8 * len(free)}],
        "gangs": [*gangs, {"name": "new", "queue": "q", "pods": [{"gpus": asked}]}],
    }
    return snapshot_from_native(document | more)


def planned(snapshot: Snapshot, model: SolverModel = MODEL) -> Plan:
    plan = cycle(snapshot, model, budget_s=5.0)
    assert check_plan(snapshot, plan) == ()
    return plan


def where(snapshot: Snapshot, model: SolverModel = MODEL) -> str:
    (bind,) = planned(snapshot, model).binds
    return bind.node


def test_a_pair_goes_where_two_links_are_free_and_not_to_the_fullest_node() -> None:
    snapshot = cluster([FAR, DOUBLE | {0}], 2)
    assert where(snapshot) == "n1"
    assert where(snapshot, UNLINKED) == "n0"


def test_no_idle_node_is_opened_for_a_better_link() -> None:
    assert where(cluster([FAR, set(EVERY)], 2)) == "n0"


def test_of_equal_links_the_fullest_node_is_taken() -> None:
    assert where(cluster([DOUBLE | {0, 2}, DOUBLE | {0}], 2)) == "n1"


def test_of_nodes_as_full_that_is_taken_which_stays_most_useful() -> None:
    """Both have a double link for the pair; what is left of n0's can hardly serve another one."""
    poor, good = {1, 3, 5, 7}, {0, 3, 5, 6}
    assert BRUTE._best(frozenset(poor), 2) == BRUTE._best(frozenset(good), 2)
    snapshot = cluster([poor, good], 2)
    assert where(snapshot) == "n1"
    assert where(snapshot, UNLINKED) == "n0"


@pytest.mark.parametrize("topology", ["", "hgx-h100-8"])
def test_where_links_say_nothing_the_fullest_node_is_taken(topology: str) -> None:
    assert where(cluster([FAR, DOUBLE | {0}], 2, topology=topology)) == "n0"


def test_where_it_is_not_known_what_is_free_the_fullest_node_is_taken() -> None:
    snapshot = cluster([FAR, DOUBLE | {0}], 2)
    unknown = tuple(replace(gang, pods=tuple(replace(pod, devices=()) for pod in gang.pods)) for gang in snapshot.gangs)
    assert where(replace(snapshot, gangs=unknown)) == "n0"


def test_what_spreads_goes_to_the_emptiest_node() -> None:
    snapshot = cluster([DOUBLE, FAR | {3}], 2, queues=[{"name": "q", "quota": 16, "placement": {"nodes": "spread"}}])
    assert where(snapshot) == "n1"


def test_single_gpus_leave_pairs_together() -> None:
    """Four pods of one GPU: a pair that comes after them still finds a double link."""
    ones = [{"name": "ones", "queue": "q", "pods": [{"gpus": 1, "replicas": 4}]}]
    plan = planned(cluster([set(EVERY)], 2, gangs=ones))
    left = EVERY - {device.index for bind in plan.binds for device in bind.devices}
    assert BRUTE._best(left, 2) == BRUTE._best(EVERY, 2)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(st.sets(st.integers(0, 7), min_size=1), min_size=1, max_size=5), st.integers(2, 5))
def test_nothing_had_a_better_set_on_a_node_in_use(free: list[set[int]], asked: int) -> None:
    binds = planned(cluster(free, asked), STILL).binds
    roomy = [own for own in free if len(own) >= asked]
    assert bool(binds) is bool(roomy)
    if binds:
        used = [own for own in roomy if own != EVERY] or roomy
        got = BRUTE.weakest[frozenset(device.index for device in binds[0].devices)]
        assert got == max(BRUTE._best(frozenset(own), asked) for own in used)


# -- kept up to date ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, 39), st.booleans()), min_size=1, max_size=40), max_size=4))
def test_losses_after_many_steps_are_those_of_a_new_look(rounds: list[list[tuple[int, bool]]]) -> None:
    """Few touched nodes are looked up one by one, many by arrays; some GPUs get free only later."""
    leaving = [
        {
            "name": f"l{n}",
            "queue": "q",
            "pods": [{"gpus": 3, "status": "Releasing", "node": f"n{n}", "devices": [0, 3, 5]}],
        }
        for n in range(0, 40, 3)
    ]
    ones = [{"name": f"p{i}", "queue": "q", "pods": [{"gpus": 1}]} for i in range(160)]
    problem = build_problem(cluster([set(EVERY)] * 40, 2, gangs=[*leaving, *ones, one("a", 2), one("b", 4)]))
    assert problem.fabric is not None
    state = State(problem)
    shapes = [problem.pod_shape[number] for number, pod in enumerate(problem.pods) if pod.gpu.devices in (2, 4)]
    kept = Links(state, problem.fabric)
    waiting = [number for number, pod in enumerate(problem.pods) if pod.gpu.devices == 1]
    for steps in rounds:
        for shape in shapes:
            assert kept.losses(shape).tolist() == Links(state, problem.fabric).losses(shape).tolist()
        for node, now in steps:
            if state.whole_now[node]:
                state.put(waiting.pop(), node, now=now)
    for shape in shapes:
        assert kept.losses(shape).tolist() == Links(state, problem.fabric).losses(shape).tolist()


def one(name: str, gpus: int) -> dict[str, Any]:
    return {"name": name, "queue": "q", "pods": [{"gpus": gpus}]}


def test_what_takes_all_gpus_of_a_node_is_counted_like_others() -> None:
    """There is one set of them: such pods are placed by the dozen, as where links say nothing."""
    problem = build_problem(cluster([set(EVERY)], 2, gangs=[one("two", 2), one("seven", 7), one("all", 8)]))
    state = State(problem)
    told = {pod.gpu.devices: (state.is_linked(shape), state.is_plain(shape)) for pod, shape in pairs_of(problem)}
    assert told == {2: (True, False), 7: (True, False), 8: (False, True)}


def pairs_of(problem: Problem) -> list[tuple[Pod, int]]:
    return list(zip(problem.pods, problem.pod_shape, strict=True))
