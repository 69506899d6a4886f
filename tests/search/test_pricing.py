"""Prices asked of the solver's process: the same as in this one, late or never, and what they say of plans."""

import math
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace

import pytest

from kai_solver.actions import Actions
from kai_solver.domain import GpuRequest, Plan, Snapshot
from kai_solver.engine import Engine
from kai_solver.engine.stages import measured_stages
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.bench import generated
from kai_solver.model.joint import Cap
from kai_solver.modelfiles import load_model
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.prices import Packing, programme_of
from kai_solver.problem import build_problem
from kai_solver.search.child import SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.pricing import Priced, Pricing, packing_of
from kai_solver.search.pricing import _limits as rows_of_limits
from kai_solver.search.refine import joint_of
from kai_solver.search.rights import rights_of
from kai_solver.units import GPU
from tests.bounds.test_counting_bounds import a_pod, a_problem
from tests.prices.test_packing_bounds import a_cover, a_packing
from tests.search.test_child_faults import fake, spec_of_two

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        assert child.wait(60.0)
        yield child


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as engine:
        assert engine.wait(60.0)
        yield engine


def shares() -> Packing:
    """Shares of two sizes and whole GPUs, of which some must leave."""
    pods = [a_pod(i, GpuRequest(1, (300, 500, 1000)[i % 3]), cpu=300) for i in range(9)]
    return a_packing(a_problem([2, 2], pods), 2, [7, 5, 9, 4, 3, 8, 2])


def loaded(seed: int) -> Snapshot:
    return generated(LoadedDoc(kind="loaded", nodes=25, gangs=10), seed=seed)


def decided(snapshot: Snapshot) -> Outcome:
    return Actions(build_problem(snapshot), load_model("greedy-only").actions, SolverActions(None)).run()


def priced_here(outcome: Outcome) -> Priced:
    """The prices of an outcome, by this process."""
    programme = programme_of(packing_of(joint_of(JointModelInput(outcome), rights_of(outcome))))
    at = {stage.name: int(stage.value) for stage in measured_stages(outcome)}
    return Priced(programme, tuple(programme.solve(60.0, at)))


def test_the_solver_process_answers_what_this_one_does(child: SolverChild) -> None:
    programme = programme_of(shares())
    child.ask_prices(programme, {}, math.inf)
    found, error = child.prices(math.inf)
    here = programme.solve(60.0)
    assert error == ""
    assert [(one.number, one.name, one.held) for one in found] == [(one.number, one.name, one.held) for one in here]
    assert found[0].duals.tolist() == here[0].duals.tolist()
    assert programme.bound(found[0], ()) == programme.bound(here[0], ()) > 0


def test_nothing_was_asked_and_nothing_is_answered(child: SolverChild) -> None:
    assert child.prices(math.inf) == ([], "")


def test_a_process_that_dies_leaves_no_prices() -> None:
    with SolverChild() as mortal:
        assert mortal.wait(60.0)
        assert mortal.pid is not None
        os.kill(mortal.pid, signal.SIGKILL)
        mortal.ask_prices(programme_of(shares()), {}, time.monotonic() + 60.0)
        found, _ = mortal.prices(time.monotonic() + 1.0)
        mortal.ask_prices(programme_of(shares()), {}, time.monotonic() + 60.0)
        again, error = mortal.prices(time.monotonic() + 60.0)
    assert found == [] or found[0].cost == again[0].cost  # it may have been started again in time
    assert again
    assert error == ""


NO_PRICES = """{"duals_0": b"", "holds_0": b""}"""


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('send("prices", solutions=[[0, 1.0, 1]])', "nonsense"),
        (f'os.write(1, worker.encode_frame("prices", {{"id": 1, "solutions": [[0, 1, 1]]}}, {NO_PRICES}))', "nonsense"),
        ('send("error", text="no such thing")', "no such thing"),
    ],
)
def test_nonsense_is_not_believed(answer: str, said: str) -> None:
    with SolverChild(fake(f"question()\n{answer}\ntime.sleep(60)\n"), start_s=60.0) as liar:
        assert liar.wait(60.0)
        liar.ask_prices(programme_of(shares()), {}, time.monotonic() + 60.0)
        found, error = liar.prices(time.monotonic() + 60.0)
    assert found == []
    assert said in error


def test_a_late_answer_is_none() -> None:
    with SolverChild(fake("question()\ntime.sleep(60)\n"), start_s=60.0) as slow:
        assert slow.wait(60.0)
        slow.ask_prices(programme_of(shares()), {}, time.monotonic() + 60.0)
        assert slow.prices(time.monotonic() + 0.1) == ([], "")


def test_a_question_behind_the_prices_does_not_lose_them(child: SolverChild) -> None:
    """The child solves the programme first; its frames come while the question is waited for."""
    child.ask_prices(programme_of(shares()), {}, math.inf)
    assert child.solve(spec_of_two(), SolverParameters(), time.monotonic() + 60.0).objective == 2
    found, error = child.prices(0.0)
    assert found
    assert error == ""


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_is_above_a_plan_with_the_same_admissions(engine: Engine, seed: int) -> None:
    """The stages of CP-SAT prove the least of the first stage; the bound is not above it."""
    snapshot = loaded(seed)
    plan: Plan = engine.cycle(snapshot, budget_s=4.0)
    outcome = decided(snapshot)
    if len(plan.admitted) != len({a.allocation_unit.gang for a in outcome.admissions}):
        pytest.skip("the solver admits others than the greedy")
    values = {stage.name: stage.value for stage in plan.stages}
    bounds = priced_here(outcome).bounds_at(values)
    assert bounds
    for name, bound in bounds.items():
        assert bound <= values.get(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_a_cycle_has_the_bounds_of_the_programme(seed: int) -> None:
    """The plan has no lower bound than that of the linear programme, whatever the stages prove; twice the same."""
    snapshot, model = loaded(seed), load_model("deterministic")
    model = replace(model, search=replace(model.search, questions_share=0.0))
    with Engine(model) as engine:
        assert engine.wait(60.0)
        plan, again = (engine.cycle(snapshot, budget_s=3.0) for _ in range(2))
    assert plan.stages == again.stages
    outcome = decided(snapshot)
    if {gang for gang, _ in plan.admitted} != {outcome.state.problem.gangs[g].gang.key for g in outcome.has_admitted()}:
        pytest.skip("the solver admits others than the greedy")
    bounds = priced_here(outcome).bounds_at({stage.name: stage.value for stage in plan.stages})
    work = [stage for stage in plan.stages if stage.name.startswith("evicted-work/")]
    assert work
    assert all(bounds[stage.name] <= stage.bound <= stage.value for stage in work)


def test_bounds_hold_when_more_is_admitted_by_the_same_rights(child: SolverChild) -> None:
    """A programme of all admissions but the last has no higher bound than that of all, and says that it covers them."""
    outcome = decided(loaded(1))
    rights, values = rights_of(outcome), {stage.name: stage.value for stage in measured_stages(outcome)}
    pricing = Pricing(child, by_gpus=False, should_stop=lambda: False)
    pricing.begin(outcome, rights, values, math.inf)
    whole = pricing.bounds(values, math.inf)
    fewer = replace(outcome, admissions=outcome.admissions[:-1])
    pricing.begin(fewer, rights, values, math.inf)
    assert pricing.is_of(fewer)
    assert not pricing.is_of(outcome)
    assert pricing.covers(outcome, rights)
    assert not pricing.covers(outcome, replace(rights, divisible=frozenset({0})))
    bounds = pricing.bounds(values, math.inf)
    assert bounds.keys() == whole.keys()
    assert all(bounds[name] <= whole[name] <= values.get(name, 0) for name in whole)
    pricing.begin(outcome, replace(rights, by_action={}), values, math.inf)
    assert not pricing.covers(outcome, rights)
    assert not pricing.covers(fewer, rights)


def test_nothing_is_asked_where_nothing_leaves(child: SolverChild) -> None:
    outcome = Outcome(State(a_problem([2], [a_pod(0, GpuRequest(1))])))
    pricing = Pricing(child, by_gpus=False, should_stop=lambda: False)
    pricing.begin(outcome, rights_of(outcome), {}, math.inf)
    assert pricing.priced(math.inf) is None
    assert pricing.bounds({}, math.inf) == {}


def test_what_those_that_stay_may_save_by_moves_need_not_leave() -> None:
    """At a limit, a request by GPU memory costs less on larger devices, whether its gang may be evicted or not."""
    outcome = decided(loaded(1))
    joint = joint_of(JointModelInput(outcome), rights_of(outcome))
    leaving = next(m for m in joint.movers if m.charge[GPU])
    staying = replace(leaving, unit=leaving.unit + 1, reclaimable=False, preemptable=False)
    arrival = replace(joint.arrivals[0], queue=leaving.queue, least=(0, 0, leaving.charge[GPU]), optional=False)
    at_limit = replace(joint, arrivals=(arrival,), caps=(Cap("limit", leaving.queue, GPU, 0),), releases=())
    needed = list(rows_of_limits(replace(at_limit, movers=(leaving, staying)), [leaving]))
    assert needed == [([0], [-leaving.charge[GPU]], -leaving.charge[GPU])]
    saving = replace(staying, saves=(0, 0, leaving.charge[GPU]))
    assert list(rows_of_limits(replace(at_limit, movers=(leaving, saving)), [leaving])) == []


def test_more_rows_after_the_child_was_killed() -> None:
    """A child that has not seen the programme is asked for all of it."""
    programme = a_cover(1, [4, 1, 1], [8, 3, 4])
    rows, deadline_s = [([1], [1], 0)], time.monotonic() + 60
    with SolverChild() as mortal:
        mortal.ask_prices(programme, {}, deadline_s)
        (first,), _ = mortal.prices(deadline_s)
        assert first.out.round(6).tolist() == [0, 1, 0]
        for _ in range(3):
            mortal.ask_prices_with(rows, programme, deadline_s)
            (found,), error = mortal.prices(deadline_s)
            assert (found.out.round(6).tolist(), error) == ([0, 0, 1], "")
            assert mortal.pid is not None
            os.kill(mortal.pid, signal.SIGKILL)
            time.sleep(0.2)


@pytest.mark.parametrize("seed", SEEDS)
def test_others_leave_where_one_has_to_stay(child: SolverChild, seed: int) -> None:
    outcome = decided(loaded(seed))
    pricing = Pricing(child, by_gpus=False, should_stop=lambda: False)
    assert pricing.leaving_by([], math.inf) == frozenset()
    values = {stage.name: int(stage.value) for stage in measured_stages(outcome)}
    pricing.begin(outcome, rights_of(outcome), values, math.inf)
    priced = pricing.priced(math.inf)
    assert priced is not None
    before = dict(priced.least)
    others = {unit: pricing.leaving_by([([unit], [1], 0)], math.inf) for unit in priced.leaving}
    assert any(others.values())
    assert not any(unit in leaving for unit, leaving in others.items())
    assert priced.least == before
    assert pricing.errors == []
