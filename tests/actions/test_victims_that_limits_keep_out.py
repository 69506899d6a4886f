"""A reclaim lasts where a victim would come first, but a limit of its queue keeps it from what it lost."""

from functools import partial

import pytest

from kai_solver.actions import Actions
from kai_solver.domain import ACTIONS, Snapshot
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from tests.engine.conftest import START_S
from tests.support.builders import a_cluster, a_gang, a_node, a_queue


def a_lowered_limit(*, above: bool) -> Snapshot:
    """Queue ``b`` comes first by its priority, and holds four GPUs, though it, or the one above, may hold two."""
    first = partial(a_queue, quota=0, priority=200, weight=1)
    queues = [first("over", limit=2), first("b", parent="over")] if above else [first("b", limit=2)]
    queues.append(a_queue("a", 0, weight=1))
    running = [a_gang(f"run-{number}", on="n", queue="b") for number in range(4)]
    asking = [a_gang("one", queue="a"), a_gang("two", gpus=2, queue="a", created_s=1.0)]
    return a_cluster([a_node("n", 4)], [*running, *asking], queues)


CASES = pytest.mark.parametrize("above", [False, True])


@CASES
@pytest.mark.parametrize("by_board", [False, True])
def test_the_greedy_takes_what_cannot_come_back(above: bool, by_board: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_solver.actions.context.MOST_WAITING", 0)
    problem = build_problem(a_lowered_limit(above=above))
    actions = Actions(problem, ACTIONS, SolverActions(None), by_board=by_board)
    outcome = actions.run()
    assert (actions.context.board is not None) is by_board
    assert [len(admission.units) for admission in outcome.admissions] == [1]


@CASES
def test_the_solver_may_take_the_same(above: bool) -> None:
    with Engine(load_model("default")) as engine:
        engine.wait(START_S)
        assert len(engine.cycle(a_lowered_limit(above=above)).evictions) == 1
