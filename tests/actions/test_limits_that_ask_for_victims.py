"""Where there is room and a limit refuses, work below the limit leaves, as in KAI."""

import numpy as np
import pytest

from kai_solver.actions import Actions
from kai_solver.actions.room.capping import sets_below
from kai_solver.check import check_plan
from kai_solver.domain import ACTIONS, Action, Gang, Queue, Snapshot
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

LEAF = [a_queue("q", 4, 4)]
ABOVE = [a_queue("all", 4, 4), a_queue("q", 4, parent="all")]
BESIDE = [a_queue("all", 4, 4), a_queue("q", 2, parent="all"), a_queue("other", 2, parent="all")]
QUEUES = pytest.mark.parametrize("queues", [LEAF, ABOVE])
BY_BOARD = pytest.mark.parametrize("by_board", [False, True])


def full(queue: str = "q", **more: object) -> list[Gang]:
    """Four gangs of a GPU: the limit of their queue. The first one has run for the shortest time."""
    return [
        a_gang(f"run-{number}", on="n", queue=queue, priority=50, last_start_s=900.0 - number, **more)  # type: ignore[arg-type]
        for number in range(4)
    ]


def served(queues: list[Queue], gangs: list[Gang], *, by_board: bool) -> dict[str, tuple[Action, list[str]]]:
    """By gang that was admitted, the action and which gangs leave for it; eight GPUs are there."""
    problem = build_problem(a_cluster([a_node("n", 8)], gangs, queues))
    actions = Actions(problem, ACTIONS, SolverActions(None), by_board=by_board)
    outcome = actions.run()
    assert (actions.context.board is not None) is by_board
    pool, names = outcome.pool, [shape.gang.name for shape in problem.gangs]
    return {
        names[a.allocation_unit.gang]: (
            a.action,
            [names[pool.units[unit].gang] for unit in a.units if pool is not None and pool.has_left(unit)],
        )
        for a in outcome.admissions
    }


@pytest.fixture(autouse=True)
def on_the_board(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_solver.actions.context.MOST_WAITING", 0)


@QUEUES
@BY_BOARD
@pytest.mark.parametrize(("pods", "left"), [(1, ["run-0"]), (2, ["run-0", "run-1"])])
def test_the_cheapest_work_of_lower_priority_leaves(
    queues: list[Queue], pods: int, left: list[str], *, by_board: bool
) -> None:
    urgent, later = a_gang("urgent", pods=pods, priority=75), a_gang("later", gpus=8, created_s=1.0)
    found = served(queues, [*full(), urgent, later], by_board=by_board)
    assert {gang: (action, sorted(gone)) for gang, (action, gone) in found.items()} == {
        "urgent": (Action.PREEMPT, left)
    }


@BY_BOARD
def test_no_more_leaves_than_the_limit_asks_for(*, by_board: bool) -> None:
    pair = a_gang("pair", pods=2, on="n", priority=50, last_start_s=100.0)
    gangs = [*full()[:2], pair, a_gang("urgent", priority=75), a_gang("later", gpus=8, created_s=1.0)]
    assert served(LEAF, gangs, by_board=by_board) == {"urgent": (Action.PREEMPT, ["run-0"])}


@QUEUES
@BY_BOARD
@pytest.mark.parametrize("priority", [50, 100])
def test_nothing_leaves_that_may_not(queues: list[Queue], priority: int, *, by_board: bool) -> None:
    """Not work of the same priority; and for work that is not preemptible, no quota becomes free by it."""
    kept = a_gang("kept", pods=2, on="n", priority=100, preemptible=False)
    gangs = full() if priority == 50 else [*full()[:2], kept]
    quota = [a_queue("q", 2, 4)] if priority == 100 else queues
    asking = a_gang("asking", priority=priority, preemptible=priority == 50)
    assert served(quota, [*gangs, asking, a_gang("later", gpus=8, created_s=1.0)], by_board=by_board) == {}


def test_reclaim_takes_of_a_queue_below_the_same_limit() -> None:
    found = served(BESIDE, [*full("other"), a_gang("mine")], by_board=False)
    assert found == {"mine": (Action.RECLAIM, ["run-0"])}


@pytest.mark.parametrize("model", ["greedy-only", "default"])
@pytest.mark.parametrize("nodes", [1, 200])
def test_whole_cycles_do_so_and_the_checker_agrees(model: str, nodes: int) -> None:
    gangs = [*full(), *(a_gang(f"urgent-{number}", priority=75, created_s=number) for number in range(3))]
    snapshot: Snapshot = a_cluster([a_node("n", 8), *(a_node(f"m{i}") for i in range(1, nodes))], gangs, LEAF)
    plan = cycle(snapshot, load_model(model), budget_s=10.0)
    assert check_plan(snapshot, plan) == ()
    assert len(plan.admitted) == len(plan.evictions) == 3


def test_surplus_that_is_the_minimum_now_leaves_together() -> None:
    """Of four pods two are the minimum. Where these have left, the other two are."""
    gang = a_gang("elastic", pods=4, need=2, on="n", priority=50)
    state = State(build_problem(a_cluster([a_node("n", 8)], [gang], LEAF)))
    pool = VictimPool.of_running(state)
    eligible, queue = np.ones(len(pool.units), dtype=np.bool_), state.problem.queues.index["q"]
    assert [len(units) for units in sets_below(pool, eligible, queue, [2])] == [1, 2, 3]
    pool.leave(len(pool.units) - 1)
    assert [sorted(units) for units in sets_below(pool, eligible, queue, [2])] == [[0, 1], [0, 1]]
