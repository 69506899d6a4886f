"""Victims first, seats after: on loaded clusters, and in the plans that come of it."""

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from kai_solver.actions import Actions
from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
    Plan,
    Pod,
    PodStatus,
    Policy,
    Queue,
    Snapshot,
    Stage,
    flat_gang,
)
from kai_solver.domain.constraints import Constraints, PodAffinityTerm, Requirement
from kai_solver.engine import Engine, improving
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.bench import generated
from kai_solver.model.build import formulate
from kai_solver.model.victim_model import VictimModel, formulate_victim_model
from kai_solver.modelfiles import load_model
from kai_solver.problem import build_problem
from kai_solver.search import refine, victims
from kai_solver.search.budget import Budget
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import SolverActions
from kai_solver.search.refine import main_values
from kai_solver.search.rights import rights_of
from kai_solver.search.solver_client import SolverClient
from kai_solver.units import MILLI, ResourceSchema

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as engine:
        assert engine.wait(60.0)
        yield engine


def loaded(seed: int) -> Snapshot:
    return generated(LoadedDoc(kind="loaded", nodes=25, gangs=10), seed=seed)


def planned(engine: Engine, snapshot: Snapshot, smallest: float, whole: float = math.inf) -> tuple[Plan, int]:
    """The plan, and how often victims were looked for without nodes.

    ``smallest``, ``whole``: variables from which that is done, and up to which the whole model is asked as well.
    """
    asked: list[object] = []

    def count(*of: Any) -> VictimModel:
        asked.append(of)
        return formulate_victim_model(*of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "SMALLEST", smallest)
        patch.setattr(victims, "formulate_victim_model", count)
        patch.setattr(refine, "WHOLE", whole)
        return engine.cycle(snapshot, budget_s=3.0), len(asked)


@pytest.mark.parametrize("whole", [0, math.inf])
@pytest.mark.parametrize("seed", SEEDS)
def test_victims_chosen_without_nodes_make_plans_that_hold(engine: Engine, seed: int, whole: float) -> None:
    snapshot = loaded(seed)
    plan, asked = planned(engine, snapshot, 0, whole)
    assert asked == 1
    assert not [v for v in check_plan(snapshot, plan) if v.rule != "needless"]
    assert not [note for note in plan.notes if "refused" in note]
    assert all(stage.bound <= stage.value for stage in plan.stages)


@pytest.mark.parametrize("seed", SEEDS)
def test_the_victims_of_the_prices_make_plans_that_hold(
    engine: Engine, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(improving, "PRICED_FROM", 0)
    snapshot = loaded(seed)
    plan, _ = planned(engine, snapshot, 0, 0)
    assert not [v for v in check_plan(snapshot, plan) if v.rule != "needless"]
    assert not [note for note in plan.notes if "refused" in note]
    assert all(stage.bound <= stage.value for stage in plan.stages)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_the_stages_alone_never_do_better(engine: Engine, seed: int) -> None:
    """Where both prove the first stages, they prove the same."""
    snapshot = loaded(seed)
    (ours, _), (alone, asked) = planned(engine, snapshot, 0), planned(engine, snapshot, math.inf)
    assert asked == 0
    assert ours.admitted == alone.admitted
    for mine, theirs in zip(ours.stages, alone.stages, strict=False):
        if mine.name != theirs.name or not (mine.optimal and theirs.optimal):
            break
        assert mine.value == theirs.value


@pytest.mark.parametrize("seed", SEEDS)
def test_the_restricted_model_never_makes_a_plan_worse(engine: Engine, seed: int) -> None:
    """The same gangs, and evicted work, priority by priority, that is no more than the greedy's."""
    snapshot = loaded(seed)
    plan, _ = planned(engine, snapshot, 0, 0)
    with Engine(load_model("greedy-only")) as greedy:
        floor = greedy.cycle(snapshot)
    assert plan.admitted >= floor.admitted
    if plan.admitted == floor.admitted:
        assert [-p for p in _works(plan)] >= [-p for p in _works(floor)]


def _works(plan: Plan) -> list[float]:
    """Evicted work of priorities 100, 75 and 50."""
    values = {stage.name: stage.value for stage in plan.stages}
    return [values.get(f"evicted-work/{priority}", 0.0) for priority in (100, 75, 50)]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_so_far_is_a_solution_of_the_stages(engine: Engine, seed: int) -> None:
    """What the reclaimers have taken, one after the other, is within their rights taken together."""
    model = engine.model
    outcome = Actions(build_problem(loaded(seed)), model.actions, SolverActions(None)).run()
    rights = rights_of(outcome)
    allocation_units = [(a.allocation_unit, a.action) for a in outcome.admissions]
    reclaim, preempt = (rights.by_action.get(action, frozenset()) for action in (Action.RECLAIM, Action.PREEMPT))
    joint = JointModelInput(outcome).join(
        allocation_units, rights.movable, reclaim, preempt, rights.surplus, may_move=True
    )
    form = formulate(joint, model.families, ["disruption"])
    budget = Budget(20.0, time.monotonic, time.monotonic(), deterministic=True)
    assert any(a.action is Action.RECLAIM and a.units for a in outcome.admissions)
    assert SolverClient(model, engine.child, budget).complete(form, main_values(outcome, form)) is not None


# -- cuts ----------------------------------------------------------------------------------------------------------

GIB = 2**30
HOST = "kubernetes.io/hostname"
ALONE = Constraints(anti_affinity=(PodAffinityTerm((Requirement("app", "In", ("guard",)),), HOST),))


def a_gang(
    name: str, on: str = "", *, since_s: float = 0.0, priority: int = 50, rule: Constraints | None = None
) -> Gang:
    status = PodStatus.RUNNING if on else PodStatus.PENDING
    labels = {"app": name}
    pod = Pod("ns", name, (100, GIB, 0, 1), GpuRequest(2), status=status, node=on, constraints=rule or Constraints())
    pod = replace(pod, labels=labels)
    gang = Gang("ns", name, "q", flat_gang(1), (pod,), priority=priority, preemptible=priority < 100)
    return replace(gang, last_start_s=since_s if on else None)


def guarded(others: int) -> Snapshot:
    """Whoever leaves n0 costs least, but "guard" stays there, beside whom the newcomer may not be; nobody moves."""
    names = [f"n{i}" for i in range(1 + others)]
    nodes = tuple(
        Node(name, (32_000, 64 * GIB, 4 * MILLI, 20), gpus=4, gpu_memory_mib=100, labels={HOST: name}) for name in names
    )
    gangs = [a_gang("guard", "n0", priority=100), a_gang("cheap", "n0", since_s=900.0)]
    for i, name in enumerate(names[1:]):
        gangs += [a_gang(f"fixed{i}", name, priority=100), a_gang(f"dear{i}", name, since_s=100.0 * i)]
    gangs.append(a_gang("new", priority=60, rule=ALONE))
    queues, policy = (Queue("q", quota=(-1, -1, -1)),), Policy(consolidating_reclaim=False)
    return Snapshot(1000.0, ResourceSchema(), nodes, queues, tuple(gangs), policy=policy)


@pytest.mark.parametrize("others", [1, 3])
def test_where_the_least_victims_leave_no_places_others_leave(engine: Engine, others: int) -> None:
    """The greedy takes the dearest; the cheapest leaves no places, so the cheapest of those that do is taken."""
    snapshot = guarded(others)
    plan, _ = planned(engine, snapshot, 0, 0)
    assert [e.gang for e in plan.evictions] == [f"ns/dear{others - 1}"]
    assert all(stage.bound <= stage.value for stage in plan.stages)


def test_a_bound_without_nodes_raises_no_stage_behind_one_that_costs_more_than_its_own() -> None:
    stages = (Stage("evicted-work/50", 100, 100, True), Stage("evicted-pods", 12, 3, False))
    at_least, above = ({"evicted-work/50": work, "evicted-pods": 11} for work in (100, 95))
    assert [stage.bound for stage in refine._raised(stages, at_least)] == [100, 11]
    assert [stage.bound for stage in refine._raised(stages, above)] == [100, 3]
