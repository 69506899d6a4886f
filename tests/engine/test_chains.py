"""The step of a cycle that runs ejection chains: plans hold, no stage is worse, and small clusters are left alone."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver import compiled
from kai_solver.actions import Actions
from kai_solver.chains.course import FRUITLESS, Course, searched
from kai_solver.chains.effect import Effect
from kai_solver.check import WASTE, check_plan
from kai_solver.domain import ACTIONS, Action, MovesSpec, Policy, Snapshot, SolverModel
from kai_solver.engine import cycle
from kai_solver.engine.chains import Chains, Judge, is_for_chains
from kai_solver.engine.progress import Progress
from kai_solver.engine.stages import measured_stages
from kai_solver.modelfiles import load_model
from kai_solver.planning import assemble
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from kai_solver.search.oracle import UNKNOWN, SolverActions
from tests.engine.test_random_cycles import clusters
from tests.support.builders import a_cluster, a_gang, a_node
from tests.support.chain_problems import random_problem
from tests.support.clusters import some

MODEL = load_model("deterministic")


def greedy(snapshot: Snapshot) -> Outcome:
    return Actions(build_problem(snapshot), ACTIONS, SolverActions(None, UNKNOWN)).run()


def by_chains(outcome: Outcome, insertions: int = 200, model: SolverModel = MODEL, seed: int = 1) -> Effect | None:
    return Chains(outcome, model).run(Course(insertions, 0.0, None, lambda: False), seed)


def vector(outcome: Outcome) -> list[float]:
    """Gangs that wait less those of the greedy, and the stages of what is evicted, most important first."""
    stages = {stage.name: stage.value for stage in measured_stages(outcome)}
    strata = sorted({gang.gang.priority for gang in outcome.state.problem.gangs}, reverse=True)
    names = [*(f"evicted-work/{priority}" for priority in strata), "gangs-broken", "evicted-pods"]
    return [stages.get(name, 0.0) for name in names]


def faults(snapshot: Snapshot, outcome: Outcome) -> list[str]:
    plan = assemble(outcome.state.problem, outcome)
    return [violation.text for violation in check_plan(snapshot, plan) if violation.rule not in WASTE]


@given(clusters(most_nodes=6, most_running=10, most_waiting=6), st.sampled_from([-1, 0, 1, 2]), st.integers(0, 3))
@some(40, campaign=400)
def test_the_plan_holds_and_no_stage_is_worse(snapshot: Snapshot, limit: int, seed: int) -> None:
    """With any limit of gangs that may move for one."""
    snapshot = replace(snapshot, policy=Policy(max_consolidation_gangs=limit))
    outcome = greedy(snapshot)
    if faults(snapshot, outcome):
        return  # The greedy's own fault is another test's.
    before, admitted = vector(outcome), outcome.has_admitted()
    effect = by_chains(outcome, seed=seed)
    assert faults(snapshot, outcome) == []
    assert vector(outcome) <= before
    assert admitted <= outcome.has_admitted()
    assert effect is None or effect.changed <= effect.wanted


def test_what_costs_the_same_and_opens_more_nodes_is_worse() -> None:
    snapshot = a_cluster([a_node("n0", 4), a_node("n1", 4)], [a_gang("r", 1, on="n0"), a_gang("w", 1)])
    outcome = greedy(snapshot)
    judge = Judge(outcome, MODEL)
    assert judge(outcome)
    (pod,) = outcome.state.places
    outcome.state.lift(pod)
    outcome.state.put(pod, outcome.state.problem.node_index["n1"], now=True)
    assert not judge(outcome)


def row_of_nodes(count: int, most_moved: int = -1) -> Snapshot:
    """Nodes of four GPUs with three pods of one GPU each; a gang of two GPUs waits for each pair of nodes."""
    nodes = [a_node(f"n{i:03}", 4) for i in range(count)]
    running = [a_gang(f"r{i:03}{pod}", 1, on=f"n{i:03}") for i in range(count) for pod in "abc"]
    waiting = [a_gang(f"w{i:03}", 2) for i in range(count // 2)]
    return a_cluster(nodes, [*running, *waiting], policy=Policy(max_consolidation_gangs=most_moved))


def without_consolidation(snapshot: Snapshot) -> Outcome:
    return Actions(build_problem(snapshot), (Action.ALLOCATE, Action.PREEMPT), SolverActions(None, UNKNOWN)).run()


def test_gangs_come_in_by_moves() -> None:
    snapshot = row_of_nodes(20)
    outcome = without_consolidation(snapshot)
    assert not outcome.admissions
    effect = by_chains(outcome)
    assert effect is not None
    assert effect.admitted == len(outcome.admissions) == 10
    assert {admission.action for admission in outcome.admissions} == {Action.CONSOLIDATION}
    assert all(len(admission.units) >= 1 for admission in outcome.admissions)
    assert faults(snapshot, outcome) == []


@pytest.mark.parametrize(
    ("model", "most_moved"),
    [
        (replace(MODEL, moves=MovesSpec(per_gang=0)), -1),
        (replace(MODEL, moves=MovesSpec(per_cycle=0)), -1),
        (MODEL, 0),
        (replace(MODEL, actions=(Action.ALLOCATE,)), -1),
    ],
)
def test_nothing_moves_where_nothing_may(model: SolverModel, most_moved: int) -> None:
    outcome = without_consolidation(row_of_nodes(8, most_moved))
    by_chains(outcome, model=model)
    assert not outcome.admissions
    assert not outcome.state.gone


def test_not_more_pods_are_elsewhere_than_the_model_says() -> None:
    outcome = without_consolidation(row_of_nodes(8))
    by_chains(outcome, model=replace(MODEL, moves=MovesSpec(per_cycle=2)))
    assert len(outcome.state.gone) == len(outcome.admissions) == 2


def test_a_cluster_that_grows_while_it_is_hostile_costs_nothing_but_time() -> None:
    """One node holds all pods, and asks for more than it has: none may come, and none is lost."""
    crowd = [a_gang(f"r{i}", 1, on="n0") for i in range(6)]
    snapshot = a_cluster([a_node("n0", 4), a_node("n1", 0, slots=1)], [*crowd, a_gang("w", 3), a_gang("x", 0, 0, 0)])
    outcome = greedy(snapshot)
    before = assemble(outcome.state.problem, outcome)
    by_chains(outcome)
    assert assemble(outcome.state.problem, outcome).binds == before.binds
    assert faults(snapshot, outcome) == []


def test_small_clusters_are_decided_as_a_whole() -> None:
    small, large = (build_problem(row_of_nodes(count)) for count in (8, compiled.LARGE_NODES))
    assert not is_for_chains(small, MODEL)
    assert is_for_chains(large, MODEL)
    assert not is_for_chains(large, load_model("greedy-only"))


def test_a_cycle_on_a_large_cluster_says_what_chains_did() -> None:
    model = replace(MODEL, actions=(Action.ALLOCATE, Action.CONSOLIDATION, Action.PREEMPT))
    found: list[Progress] = []
    plan = cycle(row_of_nodes(compiled.LARGE_NODES), model, budget_s=60.0, progress=found.append)
    assert "chains" in plan.timing_s
    assert any(progress.phase.startswith("chains") for progress in found)
    assert not plan.pending


# -- the course ----------------------------------------------------------------------------------------------------


class Clock:
    """Each insertion takes ``takes_s``."""

    def __init__(self, takes_s: float) -> None:
        self.now_s, self.takes_s = 0.0, takes_s
        self.asked: list[int] = []

    def now(self) -> float:
        return self.now_s

    def step(self, count: int) -> int:
        self.asked.append(count)
        self.now_s += count * self.takes_s
        return count


def test_slices_grow_while_they_are_short_and_shrink_while_they_are_long() -> None:
    quick, slow = Clock(1e-5), Clock(0.1)
    for clock in (quick, slow):
        Course(10**6, 2.0, clock.now, lambda: False).run(clock.step, 0.5, lambda: False)
    assert max(quick.asked) == FRUITLESS // 4
    assert quick.now_s == pytest.approx(1.0, abs=0.1)
    assert slow.asked[-1] == 1
    assert slow.now_s == pytest.approx(1.0, abs=0.5)


def test_the_course_ends_when_it_is_told_to() -> None:
    clock = Clock(0.0)
    Course(10**6, 2.0, lambda: 0.0, lambda: bool(clock.asked)).run(clock.step, 1.0, lambda: False)
    assert len(clock.asked) == 1
    course = Course(10, 0.0, None, lambda: False)
    course.run(clock.step, 1.0, lambda: False)
    assert course.done == 10


@pytest.mark.parametrize("seed", range(30))
def test_no_more_leaves_than_at_the_beginning(seed: int) -> None:
    problem = random_problem(seed)
    problem = problem._replace(cost=np.where(np.isin(np.arange(len(problem.cost)), problem.turn), 0, problem.cost))
    begins = problem.start[problem.first[:-1]] >= 0
    result = searched(problem, Course(150, 0.0, None, lambda: False), seed)
    assert problem.cost[~result.is_in].sum() <= problem.cost[~begins].sum() + problem.price.sum()
    assert result.is_in[np.flatnonzero(begins & ~problem.may_leave)].all()
