"""A gang that takes more than its share of the time to place waits until the others have had their turns."""

import math
from dataclasses import replace

import pytest

from kai_solver.actions import Actions
from kai_solver.domain import Action, Constraints, Requirement, Snapshot, SpreadConstraint
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.reasons.refusals import SHARE_ENDED
from kai_solver.search.oracle import SolverActions
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

RULES = Constraints(spread=(SpreadConstraint((Requirement("app", "In", ("x",)),), "metadata.name", 50),))


class Looks:
    """Time as the number of looks at it: ``next_gang`` in one turn while others wait, ``rung`` in all."""

    def __init__(self, next_gang: float, action: float = math.inf) -> None:
        self.next_gang, self.action = next_gang, action
        self.in_order = self.in_all = 0

    def start(self, actions_left: int, *, may_yield: bool) -> None:
        pass

    def attempted(self, *, served: bool) -> None:
        pass

    def is_fruitless(self) -> bool:
        return False

    def start_attempt(self) -> None:
        self.in_order = 0

    def is_attempt_over(self) -> bool:
        self.in_order += 1
        self.in_all += 1
        return self.in_order > self.next_gang or self.in_all > self.action

    def is_over(self) -> bool:
        return self.in_all > self.action


def one_large_and_others() -> Snapshot:
    plain = a_gang("large", pods=40, need=40)
    large = replace(plain, pods=tuple(replace(pod, constraints=RULES) for pod in plain.pods))
    others = [a_gang(f"small-{i}", gpus=1 + i % 2, created_s=1.0 + i, need=1) for i in range(5)]
    return a_cluster([a_node(f"n{i}", 8) for i in range(6)], [large, *others], [a_queue("q", 48)])


def ran(pace: Looks, *, by_board: bool = False) -> Outcome:
    problem = build_problem(one_large_and_others())
    return Actions(problem, (Action.ALLOCATE,), SolverActions(None), pace, by_board=by_board).run()


def served(outcome: Outcome) -> list[str]:
    return [outcome.state.problem.gangs[a.allocation_unit.gang].gang.name for a in outcome.admissions]


def test_within_its_share_it_has_its_turn_first() -> None:
    assert served(ran(Looks(next_gang=math.inf)))[0] == "large"


def test_past_its_share_it_is_placed_after_the_others() -> None:
    assert served(ran(Looks(next_gang=2))) == [*(f"small-{i}" for i in range(5)), "large"]


def test_on_arrays_the_others_have_their_turns_meanwhile_and_every_admitted_gang_has_its_places() -> None:
    outcome = ran(Looks(next_gang=2), by_board=True)
    assert outcome.state.places.keys() == {pod for a in outcome.admissions for pod in a.allocation_unit.pods}
    assert served(outcome) == [*(f"small-{i}" for i in range(5)), "large"]


@pytest.mark.parametrize("by_board", [False, True])
def test_without_time_after_them_it_waits_and_is_told_why(by_board: bool) -> None:
    pace = Looks(next_gang=2)
    pace.is_over = lambda: pace.in_all > 2  # type: ignore[method-assign]
    outcome = ran(pace, by_board=by_board)
    assert "large" not in served(outcome)
    large = next(g.index for g in outcome.state.problem.gangs if g.gang.name == "large")
    assert outcome.refusals[large][Action.ALLOCATE] == SHARE_ENDED
    assert outcome.stopped
    assert not outcome.state.places.keys() & set(outcome.state.problem.gangs[large].pending)


@pytest.mark.parametrize("looks", range(30))
def test_time_that_ends_while_victims_are_looked_for_ends_the_rung_and_is_no_error(looks: int) -> None:
    class Ending(Looks):
        def is_over(self) -> bool:
            self.in_all += 1
            return self.in_all > looks

    running = [a_gang(f"r{i}", queue="lender", pods=1, on=f"n{i // 8}", need=1) for i in range(24)]
    snapshot = a_cluster(
        [a_node(f"n{i}", 8) for i in range(3)],
        [*running, a_gang("large", queue="owner", pods=20, need=20)],
        [a_queue("owner", 24), a_queue("lender", 0)],
    )
    actions = (Action.RECLAIM, Action.PREEMPT)
    outcome = Actions(build_problem(snapshot), actions, SolverActions(None), Ending(math.inf)).run()
    is_served = "large" in served(outcome)
    assert is_served == (len(outcome.state.gone) == 20)
    assert is_served or not outcome.state.places
