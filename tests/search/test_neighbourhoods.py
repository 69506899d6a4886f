"""Neighbourhoods: who is in one, what is free there, and what asking about one may change."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest

from kai_solver.actions import Actions
from kai_solver.check import check_plan
from kai_solver.domain import (
    Action,
    Gang,
    GpuRequest,
    Node,
    Pod,
    Snapshot,
    SolverModel,
    Stage,
    StageSpec,
    flat_gang,
)
from kai_solver.engine import Engine
from kai_solver.engine.stages import measured_stages
from kai_solver.instances_io.bench_schema import LoadedDoc
from kai_solver.lab.bench import generated
from kai_solver.model.decode import Decision
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.modelfiles import load_model
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Admission, Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.budget import Budget
from kai_solver.search.child import SolverChild
from kai_solver.search.exchange import disturbed_elsewhere, exchanged
from kai_solver.search.neighbourhood import Census, LocalModelInput, is_local
from kai_solver.search.neighbourhood_admission import LocalAdmission
from kai_solver.search.neighbourhood_stages import LocalStages, is_unproven
from kai_solver.search.oracle import UNKNOWN, SolverActions
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.rights import rights_of
from kai_solver.search.solver_client import SolverClient
from kai_solver.units.shares import WHOLE
from tests.support.builders import GIB, a_cluster, a_gang, a_node

MODEL = load_model("deterministic")
LOCAL = replace(MODEL, search=replace(MODEL.search, neighbourhoods=0.5))


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as child:
        assert child.wait(60.0), "no test fails because the machine is slow to start it"
        yield child


class Silent:
    """A solver that takes ``takes_s`` and knows nothing."""

    def __init__(self, takes_s: float) -> None:
        self.takes_s = takes_s
        self.now = 0.0
        self.asked = 0

    def clock(self) -> float:
        return self.now

    def solve(self, spec: ModelSpec, parameters: SolverParameters, deadline_s: float, **_: object) -> SpecAnswer:
        del spec, parameters, deadline_s
        self.asked += 1
        self.now += self.takes_s
        return SpecAnswer("unknown")


def nodes_of_four(count: int) -> list[Node]:
    """Nodes of four GPUs and 32 cores."""
    return [a_node(f"n{number}", 4, cpu=32_000) for number in range(count)]


CHOICE = a_cluster(
    nodes_of_four(3),
    [
        a_gang("dear", 4, on="n0", last_start_s=0.0),
        a_gang("cheap", 4, on="n1", last_start_s=990.0),
        a_gang("wide", 4, 2, on="n2 n2", last_start_s=0.0),
        a_gang("urgent", 4, priority=60),
    ],
)
"""Urgent may have the node of dear (990 s more are lost), or that of cheap."""


def with_the_victim(victim: str, cluster: Snapshot = CHOICE, node: int = 0) -> tuple[Outcome, VictimPool]:
    """A climb that took ``victim`` on ``node``."""
    outcome = Actions(build_problem(cluster), (Action.ALLOCATE,), SolverActions(None)).run()
    pool = outcome.pool = VictimPool.of_running(outcome.state)
    gangs = {gang.gang.name: gang.index for gang in outcome.state.problem.gangs}
    (unit,) = pool.of_gang[gangs[victim]]
    state = outcome.state
    allocation_unit = AllocationUnits(
        state.problem.gangs[gangs["urgent"]], state.gangs[gangs["urgent"]], state.problem.pod_shape
    ).next()
    assert allocation_unit is not None
    pool.leave(unit)
    state.put(allocation_unit.pods[0], node, now=False)
    outcome.admit(Admission(allocation_unit, Action.PREEMPT, (unit,)))
    return outcome, pool


def with_the_dear_victim() -> tuple[Outcome, VictimPool]:
    """A climb that took the wrong victim."""
    return with_the_victim("dear")


def names(outcome: Outcome, units: Sequence[int]) -> set[str]:
    assert outcome.pool is not None
    return {outcome.state.problem.gangs[outcome.pool.units[unit].gang].gang.name for unit in units}


def nodes(outcome: Outcome, *chosen: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    return np.isin(np.arange(len(outcome.state.problem.nodes)), chosen)


# -- who is in it --------------------------------------------------------------------------------------------------


def test_gangs_come_whole() -> None:
    spread = a_cluster(nodes_of_four(2), [a_gang("both", 1, 1, on="n0 n1"), a_gang("here", 1, on="n0")])
    outcome = Actions(build_problem(spread), (Action.ALLOCATE,), SolverActions(None)).run()
    outcome.pool = VictimPool.of_running(outcome.state)
    census = Census(outcome, np.ones(len(outcome.pool.units), dtype=np.bool_))
    assert names(outcome, sorted(census.on(nodes(outcome, 0)).units)) == {"here"}
    assert names(outcome, sorted(census.on(nodes(outcome, 0, 1)).units)) == {"here", "both"}


def test_what_may_not_be_disturbed_is_no_part_and_keeps_nothing_out() -> None:
    outcome, pool = with_the_dear_victim()
    census = Census(
        outcome, np.array([name != "cheap" for unit in pool.units for name in names(outcome, [unit.index])])
    )
    hood = census.on(nodes(outcome, 0, 1))
    assert names(outcome, sorted(hood.units)) == {"dear"}
    assert hood.admissions == (0,)
    assert not census.on(nodes(outcome, 1, 2)).admissions


def test_free_is_what_is_in_it_with_its_own_out_of_the_way() -> None:
    outcome, pool = with_the_dear_victim()
    hood = Census(outcome, np.ones(len(pool.units), dtype=np.bool_)).on(nodes(outcome, 0, 1))
    before = outcome.state.future.copy()
    free, devices = LocalModelInput(outcome, hood).lifted(hood.units)
    assert (devices.sum(axis=1) // WHOLE).tolist() == [4, 4, 0]
    assert not free[:, 2].any()
    assert (outcome.state.future == before).all()


# -- the stages ----------------------------------------------------------------------------------------------------


def stages_of(outcome: Outcome) -> list[Stage]:
    return measured_stages(outcome)


def an_solver_client(
    solver: SolverChild | Silent, seconds: float = 5.0, seed: int = 0, model: SolverModel = LOCAL
) -> SolverClient:
    if isinstance(solver, Silent):
        return SolverClient(load_model("default"), solver, Budget(seconds, solver.clock, solver.now), seed)
    return SolverClient(model, solver, Budget(seconds, time.monotonic, time.monotonic(), deterministic=True), seed)


@pytest.mark.slow
def test_a_cheaper_victim_is_found(child: SolverChild) -> None:
    outcome, pool = with_the_dear_victim()
    told: list[tuple[int, int]] = []
    search = LocalStages(an_solver_client(child), outcome, pool, rights_of(outcome))
    assert search.run(lambda *of: told.append(of))
    assert names(outcome, outcome.admissions[0].units) == {"cheap"}
    assert stages_of(outcome)[0].value == 4 * 10
    assert told[-1] == (told[-1][0], search.improved)


@pytest.mark.slow
@pytest.mark.parametrize(("stage", "left"), [("disruption", {"large"}), ("disruption-gpus", {"old", "older"})])
def test_what_is_to_be_evicted_least_is_what_the_model_says(child: SolverChild, stage: str, left: set[str]) -> None:
    cluster = a_cluster(
        nodes_of_four(2),
        [
            a_gang("old", 2, on="n0", last_start_s=0.0),
            a_gang("older", 2, on="n0", last_start_s=-100.0),
            a_gang("large", 4, on="n1", last_start_s=990.0),
            a_gang("urgent", 2, priority=60),
        ],
    )
    outcome, pool = with_the_victim("large", cluster, node=1)
    model = replace(LOCAL, stages=(StageSpec(stage),))
    LocalStages(an_solver_client(child, model=model), outcome, pool, rights_of(outcome)).run()
    (taken,) = names(outcome, outcome.admissions[0].units)
    assert taken in left


def test_where_nothing_is_disturbed_nothing_is_asked() -> None:
    outcome = Actions(
        build_problem(a_cluster(nodes_of_four(1), [a_gang("w", 1)])), (Action.ALLOCATE,), SolverActions(None)
    ).run()
    outcome.pool = VictimPool.of_running(outcome.state)
    solver = Silent(0.1)
    assert not LocalStages(an_solver_client(solver), outcome, outcome.pool, rights_of(outcome)).run()
    assert solver.asked == 0


def test_the_search_ends_with_its_time_and_leaves_the_plan_as_it_was() -> None:
    outcome, pool = with_the_dear_victim()
    solver = Silent(0.3)
    before = stages_of(outcome)
    assert not LocalStages(an_solver_client(solver, 2.0), outcome, pool, rights_of(outcome)).run()
    assert solver.asked > 0
    assert solver.now <= 2.0 + 0.3
    assert stages_of(outcome) == before


def test_victims_stay_with_the_gang_that_took_them_and_new_ones_go_to_the_one_that_gave_back() -> None:
    outcome, pool = with_the_dear_victim()
    units = {next(iter(names(outcome, [unit.index]))): unit.index for unit in pool.units}
    decision = Decision(preempted=[units["cheap"]])
    inside = frozenset({units["dear"], units["cheap"]})
    given = exchanged(outcome, pool, decision, inside, rights_of(outcome).takers)
    assert [a.units for a in given] == [(units["cheap"],)]
    assert exchanged(outcome, pool, Decision(), frozenset(), rights_of(outcome).takers) == outcome.admissions
    elsewhere = disturbed_elsewhere(outcome, pool, frozenset())
    assert elsewhere.units == (units["dear"],)
    assert elsewhere.beside(decision).preempted == [units["cheap"], units["dear"]]


def test_a_proof_of_the_disruption_leaves_nothing_to_look_for() -> None:
    proven, opened = Stage("moved-pods", 2, 2, True), Stage("nodes-opened", 2, 0, False)
    assert not is_unproven((proven, opened))
    assert is_unproven((replace(proven, optimal=False), opened))
    assert is_unproven(())


# -- admission -----------------------------------------------------------------------------------------------------


def cpu_gang(*sizes: int) -> Gang:
    pods = tuple(
        Pod("ns", f"w-{i}", (cpu, GIB, 0, 1), GpuRequest(0), order=(0, float(i), "")) for i, cpu in enumerate(sizes)
    )
    return Gang("ns", "w", "q", flat_gang(len(pods)), pods)


TWELFTHS = a_cluster(nodes_of_four(2), [cpu_gang(*(2_666 * size for size in (3, 3, 4, 4, 4, 6)))])
"""Two nodes of twelve take 3 + 3 + 6 and 4 + 4 + 4; neither in order nor largest first does best fit find that."""
TIGHT = a_cluster(nodes_of_four(3), [cpu_gang(17_000, 17_000, 17_000, 10_000, 10_000, 10_000, 14_000)])
"""95 of 96 cores, and each pod would fit; but beside a 17 there is room for one more pod only."""


def asked_locally(snapshot: Snapshot, solver: SolverChild | Silent) -> tuple[Outcome, LocalAdmission]:
    outcome = Actions(build_problem(snapshot), (Action.ALLOCATE,), SolverActions(None, UNKNOWN)).run()
    search = LocalAdmission(an_solver_client(solver), outcome, (Action.ALLOCATE,))
    search.run()
    return outcome, search


def test_a_gang_whose_answer_is_unknown_gets_the_room_there_is(child: SolverChild) -> None:
    outcome, search = asked_locally(TWELFTHS, child)
    assert search.admitted == 1
    assert [a.by_solver for a in outcome.admissions] == [True]
    assert len(outcome.state.places) == 6


def test_where_there_is_no_room_it_stays_unknown(child: SolverChild) -> None:
    outcome, search = asked_locally(TIGHT, child)
    assert (search.admitted, outcome.admissions) == (0, [])
    assert search.asked > 0
    assert outcome.refusals[0][Action.ALLOCATE].proof.state == "unknown"


def test_a_gang_with_a_proof_is_not_asked_for() -> None:
    solver = Silent(0.1)
    _, search = asked_locally(a_cluster(nodes_of_four(1), [a_gang("w", 3, 3)]), solver)
    assert (search.asked, solver.asked) == (0, 0)


# -- cycles --------------------------------------------------------------------------------------------------------


def loaded(seed: int) -> Snapshot:
    return generated(LoadedDoc(kind="loaded", nodes=60, gangs=24), seed=seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_cycles_with_neighbourhoods_hold_and_are_the_same_twice(seed: int) -> None:
    snapshot = loaded(seed)
    model = replace(LOCAL, search=replace(LOCAL.search, max_variables=200))  # No stages over the whole.
    with Engine(model) as engine:
        assert engine.wait(60.0)
        plan, again = (engine.cycle(snapshot, budget_s=2.0) for _ in range(2))
    with Engine(replace(model, search=replace(model.search, neighbourhoods=0.0))) as engine:
        assert engine.wait(60.0)
        without = engine.cycle(snapshot, budget_s=2.0)
    assert not [v for v in check_plan(snapshot, plan) if v.rule != "needless"]
    assert [(s.name, s.value) for s in plan.stages] == [(s.name, s.value) for s in again.stages]
    assert set(without.admitted) <= set(plan.admitted)
    if len(plan.admitted) == len(without.admitted):
        assert cost(plan.stages) <= cost(without.stages)


def cost(stages: Sequence[Stage]) -> list[tuple[int, float]]:
    """Evicted work, the highest priority first; none of a priority is less than any."""
    work = {int(s.name.rpartition("/")[2]): s.value for s in stages if s.name.startswith("evicted-work/")}
    return [(priority, work.get(priority, 0.0)) for priority in (100, 75, 50)]


def test_small_clusters_and_models_that_do_not_say_so_have_no_neighbourhoods() -> None:
    small, large = build_problem(a_cluster(nodes_of_four(3), [])), build_problem(a_cluster(nodes_of_four(60), []))
    assert not is_local(small, LOCAL)
    assert not is_local(
        large,
        MODEL if MODEL.search.neighbourhoods == 0 else replace(MODEL, search=replace(MODEL.search, neighbourhoods=0.0)),
    )
    assert is_local(large, LOCAL)
