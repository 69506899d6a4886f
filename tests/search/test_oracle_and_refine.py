"""Questions and stages: what the solver answers for one gang, and what a solution does to the state."""

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from kai_solver.actions import Actions
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    PodStatus,
    Policy,
    SearchSpec,
    Snapshot,
    SolverModel,
    flat_gang,
)
from kai_solver.domain.placement import Strategy
from kai_solver.model.decode import Decision
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.apply import apply
from kai_solver.search.budget import Budget
from kai_solver.search.child import OnBound, OnIncumbent, SolverChild
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.refine import StageOptimizer
from kai_solver.search.rights import rights_of
from kai_solver.search.solver_client import SolverClient
from tests.support.builders import RACK, a_cluster, a_gang, a_node, a_pod

MODEL = SolverModel("test", search=SearchSpec(workers=1, presolve="none", question_s=5.0))


class Scripted:
    """A solver that always says the same, and counts."""

    def __init__(self, answer: SpecAnswer) -> None:
        self.answer = answer
        self.asked = 0

    def solve(
        self,
        spec: ModelSpec,
        parameters: SolverParameters,
        deadline_s: float,
        *,
        on_incumbent: OnIncumbent | None = None,
        on_bound: OnBound | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> SpecAnswer:
        del spec, parameters, deadline_s, on_incumbent, on_bound, should_stop
        self.asked += 1
        return self.answer


INFEASIBLE = SpecAnswer("infeasible")
CRASHED = SpecAnswer("unknown", error="the solver died")


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        assert child.wait(60.0), "no test fails because the machine is slow to start it"
        yield child


def run_actions(
    cluster: Snapshot,
    solver: Scripted | SolverChild | None,
    *,
    model: SolverModel = MODEL,
    seconds: float = 10.0,
    actions: Sequence[Action] = (Action.ALLOCATE,),
) -> tuple[Outcome, SolverActions]:
    budget = Budget(seconds, time.monotonic, time.monotonic())
    oracle = SolverActions(SolverClient(model, solver, budget) if solver is not None else None)
    return Actions(build_problem(cluster), actions, oracle).run(), oracle


def proof(outcome: Outcome, action: Action = Action.ALLOCATE) -> tuple[str, str]:
    found = outcome.refusals[len(outcome.refusals) - 1 if len(outcome.refusals) > 1 else next(iter(outcome.refusals))]
    return found[action].proof.state, found[action].proof.method


# -- the oracle ladder ---------------------------------------------------------------------------------------------

FULL = a_cluster([a_node("n0", 1)], [a_gang("w", 2)])
JOINT = a_cluster(
    [a_node("n0", 4, rack="r0"), a_node("n1", 2, rack="r1"), a_node("n2", 2, rack="r1")],
    [
        a_gang("first", 2, root=flat_gang(1, RACK), created_s=1.0),
        a_gang("second", 2, 2, root=flat_gang(2, RACK), created_s=2.0),
        a_gang("third", 2, created_s=3.0),
    ],
)


def cpu_gang(name: str, *sizes: int) -> Gang:
    return a_gang(name, *(a_pod(f"{name}-{i}", 0, cpu=cpu, order=i) for i, cpu in enumerate(sizes)))


TIGHT = a_cluster(
    [a_node(f"n{i}", 0, cpu=32_000) for i in range(3)],
    [cpu_gang("w", 17_000, 17_000, 17_000, 10_000, 10_000, 10_000, 14_000)],
)
"""95 of 96 cores, and each pod would fit; but beside a 17 there is room for one more pod only."""
HETEROGENEOUS = a_cluster(
    [a_node("n0", 0, cpu=32_000), a_node("n1", 0, cpu=32_000)],
    [cpu_gang("w", *(2_666 * size for size in (3, 3, 4, 4, 4, 6)))],
)
"""Two nodes of twelve take 3 + 3 + 6 and 4 + 4 + 4; neither in order nor largest first does best fit find that."""


def test_a_bound_answers_before_the_solver_is_asked() -> None:
    solver = Scripted(INFEASIBLE)
    outcome, _ = run_actions(FULL, solver)
    assert proof(outcome) == ("proven", "count")
    assert solver.asked == 0


def test_one_pod_that_fits_nowhere_needs_no_solver() -> None:
    """Sixteen and a half cores are free on two nodes, in halves that counting does not see as too small."""
    solver = Scripted(INFEASIBLE)
    taken = Gang(
        "ns",
        "r",
        "q",
        flat_gang(2),
        tuple(
            replace(pod, status=PodStatus.RUNNING, node=f"n{i}")
            for i, pod in enumerate(cpu_gang("r", 20_000, 20_000).pods)
        ),
    )
    outcome, _ = run_actions(
        a_cluster([a_node("n0", 0, cpu=32_000), a_node("n1", 0, cpu=32_000)], [taken, cpu_gang("w", 13_000)]), solver
    )
    assert proof(outcome)[0] == "proven"
    assert solver.asked == 0


def test_without_a_solver_what_no_bound_answers_is_unasked() -> None:
    outcome, _ = run_actions(TIGHT, None)
    assert proof(outcome) == ("unasked", "greedy")


def test_what_the_solver_refutes_is_proven(child: SolverChild) -> None:
    outcome, _ = run_actions(TIGHT, child)
    assert proof(outcome) == ("proven", "cp-sat")


def test_a_solver_switched_off_is_not_asked() -> None:
    solver = Scripted(INFEASIBLE)
    off = replace(MODEL, search=replace(MODEL.search, enabled=False))
    outcome, _ = run_actions(TIGHT, solver, model=off)
    assert (proof(outcome)[0], solver.asked) == ("unasked", 0)


def test_a_crash_proves_nothing_and_is_told() -> None:
    outcome, oracle = run_actions(TIGHT, Scripted(CRASHED))
    assert proof(outcome)[0] == "unknown"
    assert oracle.solver_client is not None
    assert oracle.solver_client.budget.errors == ["the solver died"]


def test_without_time_nothing_is_asked() -> None:
    solver = Scripted(INFEASIBLE)
    outcome, _ = run_actions(TIGHT, solver, seconds=0.0)
    assert (proof(outcome)[0], solver.asked) == ("unknown", 0)


@pytest.mark.parametrize(("seconds", "asked"), [(6e-4, 0), (10.0, 1)])
def test_a_question_that_cannot_be_built_in_time_is_not_asked(seconds: float, asked: int) -> None:
    """Three shapes on three nodes are nine variables, 0.4 ms; and as long again to answer."""
    solver = Scripted(INFEASIBLE)
    counted = replace(MODEL, search=replace(MODEL.search, deterministic=True))
    outcome, _ = run_actions(TIGHT, solver, model=counted, seconds=seconds)
    assert (proof(outcome)[0], solver.asked) == ("proven" if asked else "unknown", asked)


def test_stages_that_cannot_be_built_in_time_are_not_begun() -> None:
    outcome, _ = run_actions(a_cluster([a_node("n0", 2)], [a_gang("w", 1)]), None)
    assert outcome.admissions
    solver = Scripted(INFEASIBLE)
    solver_client = SolverClient(replace(MODEL, search=SearchSpec()), solver, Budget(1e-6, lambda: 0.0, 0.0))
    refined = StageOptimizer(solver_client).refine(outcome, rights_of(outcome))
    assert (refined.improved, refined.stages, solver.asked) == (False, (), 0)
    assert "too little time" in refined.notes[0]


def test_the_solver_places_what_first_fit_cannot(child: SolverChild) -> None:
    alone, _ = run_actions(HETEROGENEOUS, None)
    assert alone.admissions == []
    outcome, _ = run_actions(HETEROGENEOUS, child)
    assert [a.by_solver for a in outcome.admissions] == [True]
    assert len(outcome.state.places) == 6
    assert (outcome.state.future >= 0).all()


def test_a_yes_that_is_nonsense_is_refused_and_proves_nothing() -> None:
    """All zeros: nobody has a place."""

    class Zeros(Scripted):
        def solve(self, spec: ModelSpec, *args: object, **more: object) -> SpecAnswer:
            del args, more
            return SpecAnswer("optimal", np.zeros(spec.size[0], dtype=np.int64))

    outcome, _ = run_actions(TIGHT, Zeros(INFEASIBLE))
    assert outcome.admissions == []
    assert proof(outcome)[0] == "unknown"
    assert outcome.state.places == {}


def test_those_admitted_before_may_change_their_places(child: SolverChild) -> None:
    """The first gang packs onto a node of the only rack that can hold the second; it has to go elsewhere."""
    alone, _ = run_actions(JOINT, None)
    together, _ = run_actions(JOINT, child)
    assert {a.allocation_unit.gang for a in together.admissions} >= {a.allocation_unit.gang for a in alone.admissions}
    assert {a.allocation_unit.gang for a in together.admissions} == {0, 1, 2}


def test_after_two_failures_the_child_is_left_alone() -> None:
    solver = Scripted(CRASHED)
    sizes = (17_000, 17_000, 17_000, 10_000, 10_000, 10_000)
    gangs = [cpu_gang(f"w{i}", *sizes, 14_000 - i) for i in range(4)]
    run_actions(replace(TIGHT, gangs=tuple(gangs)), solver)
    assert solver.asked == 2


# -- joining and realising -----------------------------------------------------------------------------------------


def question(cluster: Snapshot) -> tuple[Outcome, JointModelInput]:
    outcome = Outcome(State(build_problem(cluster)))
    outcome.pool = VictimPool.of_running(outcome.state)
    return outcome, JointModelInput(outcome)


def test_lifted_capacity_is_that_with_the_units_gone() -> None:
    outcome, model_input = question(
        a_cluster([a_node("n0", 4)], [a_gang("r", 1, 2, on="n0 n0"), a_gang("s", 1, on="n0")])
    )
    pool = outcome.pool
    assert pool is not None
    free, devices = model_input.lifted(frozenset({0}))
    pool.leave(0)
    assert np.array_equal(free, outcome.state.future)
    assert np.array_equal(devices, outcome.state.device_future)


def test_lifting_does_not_depend_on_where_the_units_are_now() -> None:
    outcome, model_input = question(a_cluster([a_node("n0", 2), a_node("n1", 2)], [a_gang("r", 1, on="n0")]))
    pool = outcome.pool
    assert pool is not None
    before = [array.copy() for array in model_input.lifted(frozenset({0}))]
    pool.leave(0)
    outcome.state.put(0, 1, now=False)
    for one, other in zip(before, JointModelInput(outcome).lifted(frozenset({0})), strict=True):
        assert np.array_equal(one, other)


def test_a_scope_is_bound_to_those_that_stay_and_free_of_those_that_may_move() -> None:
    root = flat_gang(1, RACK)
    gang = a_gang("r", 1, 1, on="n0 n0", root=root)
    waiting = replace(gang.pods[0], name="r-2", status=PodStatus.PENDING, node="", order=(0, 2.0, ""))
    gang = replace(gang, pods=(*gang.pods, waiting))
    outcome, model_input = question(a_cluster([a_node("n0", 2, rack="r0"), a_node("n1", 2, rack="r1")], [gang]))
    allocation_unit = AllocationUnits(outcome.state.problem.gangs[0], outcome.state.gangs[0]).next()
    assert allocation_unit is not None
    pool = outcome.pool
    assert pool is not None
    fixed = model_input.arrival(allocation_unit, Action.ALLOCATE, frozenset())
    assert fixed.scopes[0].domain_of.tolist() == [0, -1]
    everybody = frozenset(unit.index for unit in pool.units)
    assert model_input.arrival(allocation_unit, Action.CONSOLIDATION, everybody).scopes[0].domain_of.tolist() == [0, 1]


def test_a_solution_that_cannot_be_seated_changes_nothing() -> None:
    cluster = a_cluster([a_node("n0", 1), a_node("n1", 1)], [a_gang("w", 1, 1)])
    outcome, model_input = question(cluster)
    allocation_unit = AllocationUnits(outcome.state.problem.gangs[0], outcome.state.gangs[0]).next()
    assert allocation_unit is not None
    nobody: frozenset[int] = frozenset()
    joint = model_input.join([(allocation_unit, Action.ALLOCATE)], nobody, nobody, nobody, (), may_move=False)
    both_on_one = Decision(places={0: 0, 1: 0})
    mark = outcome.state.mark()
    assert not apply(outcome.state, outcome.pool, joint, both_on_one, [(allocation_unit, Action.ALLOCATE)])
    assert outcome.state.mark() == mark
    assert outcome.state.places == {}
    apart = Decision(places={0: 0, 1: 1})
    assert apply(outcome.state, outcome.pool, joint, apart, [(allocation_unit, Action.ALLOCATE)])
    assert {pod: place.node for pod, place in outcome.state.places.items()} == {0: 0, 1: 1}


@pytest.mark.parametrize(("strategy", "devices"), [("binpack", 1), ("spread", 2)])
def test_shares_are_seated_as_the_policy_packs_or_spreads(strategy: Strategy, devices: int) -> None:
    """Whatever devices the model's counts name: both halves fit one, and each a device of its own."""
    gang = a_gang("w", 1, 1)
    halves = tuple(replace(pod, gpu=GpuRequest(1, 500)) for pod in gang.pods)
    cluster = a_cluster([a_node("n0", 2)], [replace(gang, pods=halves)])
    outcome, model_input = question(replace(cluster, policy=Policy(gpu_sharing_placement=strategy)))
    allocation_unit = AllocationUnits(outcome.state.problem.gangs[0], outcome.state.gangs[0]).next()
    assert allocation_unit is not None
    nobody: frozenset[int] = frozenset()
    joint = model_input.join([(allocation_unit, Action.ALLOCATE)], nobody, nobody, nobody, (), may_move=False)
    together: dict[int, tuple[int, ...]] = {0: (0,), 1: (0,)}
    apart: dict[int, tuple[int, ...]] = {0: (0,), 1: (1,)}
    for named in (together, apart):
        decision = Decision(places={0: 0, 1: 0}, devices=named)
        assert apply(outcome.state, outcome.pool, joint, decision, [(allocation_unit, Action.ALLOCATE)])
        assert len({place.devices for place in outcome.state.places.values()}) == devices


def test_shares_that_only_fit_as_the_model_says_are_seated_so() -> None:
    """Packed as they come, 500 and 400 would share a device, and the last 500 would be left out."""
    gang = a_gang("w", 1, 1, 1, 1)
    sizes = (500, 400, 600, 500)
    shares = tuple(replace(pod, gpu=GpuRequest(1, size)) for pod, size in zip(gang.pods, sizes, strict=True))
    outcome, model_input = question(a_cluster([a_node("n0", 2)], [replace(gang, pods=shares)]))
    allocation_unit = AllocationUnits(outcome.state.problem.gangs[0], outcome.state.gangs[0]).next()
    assert allocation_unit is not None
    nobody: frozenset[int] = frozenset()
    joint = model_input.join([(allocation_unit, Action.ALLOCATE)], nobody, nobody, nobody, (), may_move=False)
    named: dict[int, tuple[int, ...]] = {0: (0,), 1: (1,), 2: (1,), 3: (0,)}
    decision = Decision(places=dict.fromkeys(range(4), 0), devices=named)
    assert apply(outcome.state, outcome.pool, joint, decision, [(allocation_unit, Action.ALLOCATE)])
    assert {pod: place.devices for pod, place in outcome.state.places.items()} == named


def test_no_place_at_all_is_refused_too() -> None:
    outcome, model_input = question(a_cluster([a_node("n0", 1)], [a_gang("w", 1)]))
    allocation_unit = AllocationUnits(outcome.state.problem.gangs[0], outcome.state.gangs[0]).next()
    assert allocation_unit is not None
    nobody: frozenset[int] = frozenset()
    joint = model_input.join([(allocation_unit, Action.ALLOCATE)], nobody, nobody, nobody, (), may_move=False)
    assert not apply(outcome.state, outcome.pool, joint, Decision(), [(allocation_unit, Action.ALLOCATE)])
    assert math.isfinite(outcome.state.future.sum())
