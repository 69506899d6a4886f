"""The greedy's climb is the floor: what asking the solver led to must not serve less."""

import pytest

from kai_solver.actions import Actions
from kai_solver.domain import Action, Node, Queue, Snapshot
from kai_solver.engine.actions_run import ActionsRun, better, seconds_for_questions
from kai_solver.problem import build_problem
from kai_solver.search.oracle import QuestionLog, SolverActions
from kai_solver.units import MILLI, ResourceSchema
from tests.support.builders import GIB, a_gang


def run_without(*left_out: str, unknown: int, stopped: bool = False) -> ActionsRun:
    """A climb on a node of 8 GPUs that serves all of high (2 GPUs), low and other (3 GPUs each) but ``left_out``."""
    node = Node("n0", (32_000, 64 * GIB, 8 * MILLI, 20), gpus=8, gpu_memory_mib=100)
    gangs = (a_gang("high", 2, priority=60), a_gang("low", 3, priority=50), a_gang("other", 3, priority=50))
    snapshot = Snapshot(1000.0, ResourceSchema(), (node,), (Queue("q", quota=(-1, -1, -1)),), gangs)
    keys = frozenset(f"ns/{name}" for name in left_out)
    outcome = Actions(build_problem(snapshot), (Action.ALLOCATE,), SolverActions(None), left_out=keys).run()
    assert len(outcome.admissions) == 3 - len(left_out)
    outcome.stopped = stopped
    return ActionsRun(outcome, QuestionLog(unknown=unknown))


def test_a_climb_whose_questions_were_all_answered_counts_where_it_serves_others() -> None:
    floor = run_without("high", unknown=1)
    assert better(floor, asked := run_without("low", "other", unknown=0)) is asked
    assert better(floor, same := run_without("high", unknown=0)) is same


def test_the_floor_counts_where_it_serves_the_same_gangs_and_more() -> None:
    floor = run_without(unknown=1)
    assert better(floor, run_without("low", unknown=0)) is floor


@pytest.mark.parametrize(("unknown", "stopped"), [(1, False), (0, True)])
def test_a_climb_that_ran_out_of_time_counts_only_where_it_serves_as_much(unknown: int, stopped: bool) -> None:
    floor = run_without("low", unknown=1)
    assert better(floor, more := run_without(unknown=unknown, stopped=stopped)) is more
    assert better(floor, same := run_without("other", unknown=unknown, stopped=stopped)) is same
    assert better(floor, run_without("low", "other", unknown=unknown, stopped=stopped)) is floor


def test_higher_priority_weighs_more_than_any_number_of_gpus() -> None:
    floor, asked = run_without("high", unknown=1), run_without("low", "other", unknown=1)
    assert better(floor, asked) is asked
    assert better(asked, floor) is asked


@pytest.mark.parametrize(
    ("left_s", "floor_s", "seconds"),
    [(1.0, 0.1, 0.5), (1.0, 0.5, 0.4), (1.0, 0.9, 0.0), (-0.5, 0.1, 0.0)],
)
def test_questions_leave_the_second_climb_time_to_end(left_s: float, floor_s: float, seconds: float) -> None:
    assert seconds_for_questions(left_s, floor_s, 0.5) == pytest.approx(seconds)
