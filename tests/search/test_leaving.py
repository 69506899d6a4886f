"""Victims first, seats after: on loaded clusters, and in the plans that come of it."""

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kai_solver.bench import generated
from kai_solver.check import check_plan
from kai_solver.domain import Plan, Rung, Snapshot
from kai_solver.engine import Engine
from kai_solver.formulation.build import formulate
from kai_solver.formulation.leavers import Leavers, formulate_leavers
from kai_solver.formulation.rows import Ints
from kai_solver.formulation.spec import ModelSpec
from kai_solver.greedy import Ladder
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.modelfiles import load_model
from kai_solver.reduction import build_problem
from kai_solver.search import leaving
from kai_solver.search.asker import Asker
from kai_solver.search.budget import Budget
from kai_solver.search.joining import Joiner
from kai_solver.search.oracle import OracleLadder
from kai_solver.search.refine import main_values
from kai_solver.search.rights import rights_of
from kai_solver.search.session import StageObjective

SEEDS = (1, 2, 3)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as engine:
        assert engine.wait(60.0)
        yield engine


def loaded(seed: int) -> Snapshot:
    return generated(LoadedDoc(kind="loaded", nodes=25, gangs=10), seed=seed)


def planned(engine: Engine, snapshot: Snapshot, smallest: float) -> tuple[Plan, int]:
    """The plan, and how often victims were looked for without nodes."""
    asked: list[object] = []

    def count(*of: Any) -> Leavers:
        asked.append(of)
        return formulate_leavers(*of)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(leaving, "SMALLEST", smallest)
        patch.setattr(leaving, "formulate_leavers", count)
        return engine.cycle(snapshot, budget_s=3.0), len(asked)


@pytest.mark.parametrize("seed", SEEDS)
def test_victims_chosen_without_nodes_make_plans_that_hold(engine: Engine, seed: int) -> None:
    snapshot = loaded(seed)
    plan, asked = planned(engine, snapshot, 0)
    assert asked == 1
    assert not [v for v in check_plan(snapshot, plan) if v.rule != "needless"]
    assert not [note for note in plan.notes if "refused" in note]
    assert all(stage.bound <= stage.value for stage in plan.stages)


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


@pytest.mark.parametrize(("needed", "asked"), [(0, 1), (1, 2)])
def test_pods_are_moved_only_where_there_are_no_seats_without(engine: Engine, needed: int, asked: int) -> None:
    """Of three pods ``needed`` must move; the objective counts moves as what is left of three that stay."""
    spec = ModelSpec()
    stay = spec.int_var(0, 3)
    spec.add_le([(1, stay)], 3 - needed, family="test")
    moves = StageObjective("moved-pods", ((-1, stay),), 3)
    questions: list[ModelSpec] = []

    class Counting:
        def solve(self, spec: ModelSpec, *of: Any, **more: Any) -> Any:
            questions.append(spec)
            return engine.child.solve(spec, *of, **more)

    asker = Asker(engine.model, Counting(), Budget(5.0, time.monotonic, time.monotonic(), deterministic=True))
    found: Ints | None = leaving.seats(asker, spec, moves)
    assert found is not None
    assert int(found[stay]) == 3 - needed
    assert len(questions) == asked


@pytest.mark.parametrize("seed", SEEDS)
def test_the_plan_so_far_is_a_solution_of_the_stages(engine: Engine, seed: int) -> None:
    """What the reclaimers have taken, one after the other, is within their rights taken together."""
    model = engine.model
    outcome = Ladder(build_problem(loaded(seed)), model.ladder, OracleLadder(None)).climb()
    rights = rights_of(outcome)
    chunks = [(a.chunk, a.rung) for a in outcome.admissions]
    reclaim, preempt = (rights.by_rung.get(rung, frozenset()) for rung in (Rung.RECLAIM, Rung.PREEMPT))
    joint = Joiner(outcome).join(chunks, rights.movable, reclaim, preempt, rights.surplus, may_move=True)
    form = formulate(joint, model.families, ["disruption"])
    budget = Budget(20.0, time.monotonic, time.monotonic(), deterministic=True)
    assert any(a.rung is Rung.RECLAIM and a.units for a in outcome.admissions)
    assert Asker(model, engine.child, budget).complete(form, main_values(outcome, form)) is not None
