"""Bounds of victims that were chosen in a large cycle: of which plans they are said to hold."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.actions import Actions
from kai_solver.domain import Action, Stage
from kai_solver.instances_io import snapshot_from_native
from kai_solver.modelfiles import load_model
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search import victims
from kai_solver.search.budget import Budget
from kai_solver.search.child import SolverChild
from kai_solver.search.oracle import SolverActions
from kai_solver.search.refine import Refined, StageOptimizer
from kai_solver.search.rights import rights_of
from kai_solver.search.solver_client import SolverClient
from tests.support.builders import a_cluster, a_gang, a_node


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        yield child


def a_pair(*, with_own: bool) -> Outcome:
    """Two gangs of two GPUs take a gang of three each. Of their own queue, which reclaim may not disturb, one runs on
    each node ``with_own``; it would have room elsewhere.
    """
    unlimited = {"cpu": "unlimited", "memory": "unlimited"}
    queues = [{"name": "poor", "quota": {**unlimited, "gpu": 9}}, {"name": "rich", "quota": {**unlimited, "gpu": 0}}]
    nodes = [{"name": f"n{i}", "gpus": 4, "cpu": 64, "gpuMemory": 80_000} for i in range(3)]

    def gang(name: str, queue: str, gpus: int, node: str = "") -> dict[str, Any]:
        where = {"node": node, "status": "Running"} if node else {}
        pod = {"name": f"{name}-0", "cpu": "100m", "gpus": gpus} | where
        started = {"lastStart": 100.0} if node else {}
        return {"name": name, "queue": queue, "pods": [pod], "priority": 50, "created": 1.0, "minMember": 1} | started

    own = "poor" if with_own else "rich"
    gangs = [gang(f"r{i}", "rich", 3, f"n{i}") for i in range(2)] + [gang(f"p{i}", own, 1, f"n{i}") for i in range(2)]
    gangs += [gang("s", own, 3, "n2")] + [gang(f"late{i}", "poor", 2) for i in range(2)]
    document = {"format": "kai-solver/v1", "now": 1000.0, "nodes": nodes, "queues": queues, "gangs": gangs}
    problem = build_problem(snapshot_from_native(document))
    return Actions(problem, load_model("greedy-only").actions, SolverActions(None)).run()


@pytest.mark.parametrize("with_own", [False, True])
def test_bounds_are_said_only_where_all_that_runs_may_move(
    child: SolverChild, monkeypatch: pytest.MonkeyPatch, *, with_own: bool
) -> None:
    """Another plan may admit the same gangs by moves alone, which disturb what reclaim may not: 2,700 for 5,400."""
    monkeypatch.setattr(victims, "SMALLEST", 0)
    outcome = a_pair(with_own=with_own)
    assert [admission.action for admission in outcome.admissions] == [Action.RECLAIM] * 2
    rights = rights_of(outcome)
    client = SolverClient(load_model("default"), child, Budget(60.0, time.monotonic, time.monotonic()))
    refined = StageOptimizer(client).refine(outcome, rights)
    assert bool(refined.bounds) == (not with_own)
    assert refined.admitted == outcome.admitted


def some_admitted(gangs: int) -> frozenset[AllocationUnit]:
    waiting = [a_gang(f"g{i}") for i in range(gangs)]
    problem = build_problem(a_cluster([a_node("n", 4)], waiting))
    return Actions(problem, (Action.ALLOCATE,), SolverActions(None)).run().admitted


def test_bounds_hold_for_the_same_admissions_until_a_stage_is_above_its_own() -> None:
    admitted = some_admitted(2)
    refined = Refined((), improved=False, bounds={"evicted-work/75": 0, "evicted-work/50": 9}, admitted=admitted)
    assert refined.bounds_at({"evicted-work/50": 12}, admitted) == refined.bounds
    assert refined.bounds_at({"evicted-work/75": 1, "evicted-work/50": 2}, admitted) == {"evicted-work/75": 0}
    assert refined.bounds_at({"evicted-work/50": 12}, some_admitted(1)) == {}


def test_what_an_earlier_choice_found_is_not_lost() -> None:
    one, two = some_admitted(1), some_admitted(2)
    first = Refined((), improved=True, bounds={"evicted-work/50": 9}, admitted=one)
    late = Refined((), improved=False, notes=("stages not searched: too little time",), admitted=one)
    assert late.after(first) == first
    assert late.after(None) is late
    stages = (Stage("evicted-work/50", 9.0, 9.0, optimal=True),)
    more = Refined(stages, improved=False, bounds={"evicted-work/50": 12}, admitted=two)
    assert more.after(first) == Refined(stages, improved=True, bounds={"evicted-work/50": 12}, admitted=two)
