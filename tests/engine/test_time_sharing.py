"""An action that serves no gang gives way, and goes on after the others with what they leave."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kai_solver import compiled
from kai_solver.actions import Actions
from kai_solver.actions.context import Pace
from kai_solver.check import Violation, check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.engine import chain_time, cycle, first, plan_maker, run
from kai_solver.engine.chain_time import ChainTime
from kai_solver.engine.pace import IN_VAIN, PATIENCE
from kai_solver.engine.pace import Pace as ActionPace
from kai_solver.modelfiles import load_model
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.reasons.refusals import BUDGET_ENDED
from kai_solver.search.oracle import SolverActions
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

ACTIONS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM)


class Impatient:
    """Actions that may give way do so at once; ``hours``: whether there is time for them after the others."""

    def __init__(self, *, hours: bool) -> None:
        self.hours = hours
        self.started: list[tuple[int, bool]] = []

    def start(self, actions_left: int, *, may_yield: bool) -> None:
        self.started.append((actions_left, may_yield))

    def attempted(self, *, served: bool) -> None:
        pass

    def is_fruitless(self) -> bool:
        return self.started[-1][1]

    def is_over(self) -> bool:
        return not self.hours and len(self.started) > len(ACTIONS)

    def start_attempt(self) -> None:
        pass

    def is_attempt_over(self) -> bool:
        return self.is_over()


def ran(pace: Pace) -> Outcome:
    """A gang of three GPUs finds room on two nodes with two and one GPU free when one pod moves."""
    gangs = (
        a_gang("r0", gpus=2, on="n0"),
        a_gang("r1", gpus=2, on="n1"),
        a_gang("r2", gpus=1, on="n1"),
        a_gang("late", gpus=3),
    )
    snapshot = a_cluster([a_node("n0", 4), a_node("n1", 4)], gangs, [a_queue("q", 8)])
    return Actions(build_problem(snapshot), ACTIONS, SolverActions(None), pace).run()


def test_gangs_without_a_turn_get_it_after_the_others() -> None:
    pace = Impatient(hours=True)
    outcome = ran(pace)
    assert [a.action for a in outcome.admissions] == [Action.CONSOLIDATION]
    assert not outcome.stopped
    assert pace.started == [(3, False), (2, True), (1, True), (1, False), (1, False)]


def test_without_time_left_nothing_is_known_of_them() -> None:
    outcome = ran(Impatient(hours=False))
    assert not outcome.admissions
    assert outcome.stopped
    (refusals,) = outcome.refusals.values()
    assert refusals[Action.CONSOLIDATION] == refusals[Action.RECLAIM] == BUDGET_ENDED


class Watch:
    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def a_pace(watch: Watch, model: str = "default", *, is_patient: bool = False) -> ActionPace:
    search = load_model(model).search
    time = SimpleNamespace(
        clock=watch,
        kept_s=0.0,
        deadline_s=10.0,
        search=search,
        is_exact=search.deterministic,
        should_stop=lambda: False,
    )
    return ActionPace(cast("Any", time), is_patient=is_patient)


def test_an_action_has_a_tenth_of_the_time_left_to_serve_a_gang() -> None:
    watch = Watch()
    pace = a_pace(watch)
    pace.start(4, may_yield=True)
    watch.now_s = 10.0 * PATIENCE
    pace.attempted(served=False)
    assert not pace.is_fruitless()  # One slow turn is not enough to judge by.
    for _ in range(IN_VAIN):
        pace.attempted(served=False)
    assert pace.is_fruitless()
    pace.attempted(served=True)
    assert not pace.is_fruitless()
    assert not pace.is_over()


@pytest.mark.parametrize(("model", "is_patient"), [("greedy-only", False), ("default", True)])
def test_without_a_solver_and_where_patient_no_action_gives_way_before_half_of_the_budget(
    model: str, is_patient: bool
) -> None:
    """Else the clock would decide what a cycle does that has time to spare, and a solver would change the order."""
    watch = Watch()
    pace = a_pace(watch, model, is_patient=is_patient)
    pace.start(4, may_yield=True)
    for _ in range(IN_VAIN):
        pace.attempted(served=False)
    watch.now_s = 4.9
    assert not pace.is_fruitless()
    watch.now_s = 5.0
    assert pace.is_fruitless()


@pytest.mark.parametrize(("model", "action_may"), [("default", False), ("deterministic", True)])
def test_else_it_keeps_its_share(model: str, action_may: bool) -> None:
    watch = Watch()
    pace = a_pace(watch, model)
    pace.start(4, may_yield=action_may)
    watch.now_s = 7.0
    for _ in range(IN_VAIN):
        pace.attempted(served=False)
    assert not pace.is_fruitless()


@pytest.mark.parametrize(("build_s", "before"), [(0.04, True), (0.06, False)])
def test_prices_are_asked_for_before_chains_that_have_time_beside_them(
    monkeypatch: pytest.MonkeyPatch, build_s: float, *, before: bool
) -> None:
    """To write the programme down takes two builds of the problem, of which chains of 0.3 s keep 0.2 s or not."""
    monkeypatch.setattr(ChainTime, "left_s", lambda *_: 1.0)
    monkeypatch.setattr(ChainTime, "search_s", lambda *_: 0.3)
    time = SimpleNamespace(is_exact=False, build_s=build_s)
    assert ChainTime(cast("Any", time), cast("Any", None)).are_long(cast("Any", None)) is before


@pytest.mark.parametrize("slowness", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(("left_s", "seconds"), [(2.0, 0.2), (4.0, 0.8), (100.0, 70.0)])
def test_short_chains_leave_no_time_for_questions(
    monkeypatch: pytest.MonkeyPatch, left_s: float, seconds: float, slowness: float
) -> None:
    """Of what victims leave, 2 s or a tenth of the time at least, questions have most, but not of the first 0.2 s.

    What victims and questions take where that was measured, they take so many times here.
    """
    monkeypatch.setattr(chain_time, "_for_questions_s", lambda _: 10.0 / slowness)
    known = SimpleNamespace(variables=lambda _: 2.0 / slowness / chain_time.CHOOSING_S)
    time = SimpleNamespace(here_s=lambda seconds: seconds * slowness)
    chains = ChainTime(cast("Any", time), cast("Any", known))
    assert chains.search_s(cast("Any", None), left_s) == pytest.approx(seconds)


def of_many(count: int) -> Snapshot:
    """Gangs of an owed queue that each have to reclaim a node of their own, of one, two or three GPUs."""
    sizes = [1 + i % 3 for i in range(count)]
    nodes = [a_node(f"n{i}", size) for i, size in enumerate(sizes)]
    gangs = [a_gang(f"r{i}", queue="rich", gpus=size, on=f"n{i}") for i, size in enumerate(sizes)]
    gangs += [a_gang(f"w{i}", queue="poor", gpus=size, created_s=float(i)) for i, size in enumerate(sizes)]
    return a_cluster(nodes, gangs, [a_queue("rich", 0, weight=0.0), a_queue("poor", sum(sizes))])


class Steps(Watch):
    """A clock that goes on a little whenever it is read."""

    def __call__(self) -> float:
        self.now_s += 0.0006
        return self.now_s


def test_the_first_plan_is_the_beginning_of_the_cycle() -> None:
    watch = Steps()
    plan = cycle(of_many(100), load_model("greedy-only"), budget_s=1000.0, clock=watch)
    assert len(plan.binds) == 100
    assert 0.1 <= plan.timing_s["first-plan"] < plan.timing_s["decide"]
    short = cycle(of_many(3), load_model("greedy-only"), budget_s=1000.0, clock=watch)
    assert short.timing_s["first-plan"] == short.timing_s["decide"]


@pytest.mark.parametrize("large", [True, False])
@pytest.mark.parametrize("waiting", [0, 1])
def test_where_chains_follow_for_gangs_that_wait_it_is_what_a_short_climb_ends_with(
    waiting: int, monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    monkeypatch.setattr(compiled, "LARGE_NODES", 8 if large else 9)
    monkeypatch.setattr(compiled, "load_kept", lambda: True)
    monkeypatch.setattr(first, "FIRST_S", 1000.0)
    monkeypatch.setattr(first, "SOON", 1.0)
    nodes = [a_node(f"n{number}", 2) for number in range(8)]
    gangs = [a_gang("fits", gpus=2), *(a_gang(f"waits{number}", gpus=4) for number in range(waiting))]
    plan = cycle(a_cluster(nodes, gangs, [a_queue("q")]), load_model("default"), budget_s=20.0)
    assert len(plan.binds) == 1
    assert len(plan.pending) == waiting
    assert (plan.timing_s["first-plan"] < plan.timing_s["decide"]) == bool(large and waiting)


def test_it_stands_where_all_others_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """The checker refuses every plan with as many gangs; it blames none of them."""
    snapshot = of_many(100)

    def check(_: object, plan: Plan, **options: Any) -> tuple[Violation, ...]:
        found = check_plan(snapshot, plan, **options)
        return found if len(plan.binds) < 90 else (*found, Violation("form", "plan", "refused by this test"))

    monkeypatch.setattr(plan_maker, "check_plan", check)
    monkeypatch.setattr(run, "RETREATS", 0)  # plans without some of the gangs come before the first plan
    plan = cycle(snapshot, load_model("greedy-only"), budget_s=1000.0, clock=Steps())
    assert 0 < len(plan.binds) < 90
    assert not check_plan(snapshot, plan)
    assert "the cycle's first plan is used" in plan.notes[-1]
    assert {p.proof.state for p in plan.pending} == {"unknown"}
