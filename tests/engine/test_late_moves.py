"""Where moves are left to chains, gangs that wait after them are consolidated for, and say so where nothing moves."""

from dataclasses import replace
from typing import Any

import pytest

from kai_solver import compiled
from kai_solver.domain import Action, MovesSpec, Plan, Policy, Snapshot, SolverModel
from kai_solver.engine import Engine, cycle, deciding, improving
from kai_solver.engine.progress import Progress
from kai_solver.modelfiles import load_model
from tests.engine.conftest import START_S
from tests.support.builders import a_cluster, a_gang, a_node, a_queue, only_on

MODEL = load_model("default")


@pytest.fixture(autouse=True)
def with_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clusters of eight nodes are large, and kernels count as loaded, though they run uncompiled."""
    monkeypatch.setattr(compiled, "LARGE_NODES", 8)
    monkeypatch.setattr(compiled, "is_loaded", lambda: True)
    monkeypatch.setattr(compiled, "load_kept", lambda: True)
    monkeypatch.setattr(deciding, "MOST_PROMISED", 0)


def crowded() -> Snapshot:
    """Two GPUs are free on each of eight nodes, and two gangs ask for a pod of four."""
    running = [a_gang(f"run-{node}-{number}", gpus=1, on=f"n{node}") for node in range(8) for number in range(2)]
    waiting = [a_gang(f"wait-{number}", gpus=4) for number in range(2)]
    policy = Policy(reclaim_min_runtime_s=1.0)
    nodes = [a_node(f"n{node}", 4) for node in range(8)]
    return a_cluster(nodes, [*running, *waiting], [a_queue("q")], policy=policy)


def planned(model: SolverModel, snapshot: Snapshot | None = None, **more: Any) -> tuple[Plan, list[str]]:
    faults: list[str] = []
    with Engine(model) as engine:
        engine.wait(START_S)
        plan = engine.cycle(
            snapshot or crowded(), budget_s=20.0, on_fault=lambda fault: faults.append(fault.error), **more
        )
    return plan, faults


def test_a_gang_that_chains_leave_is_consolidated_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_solver.engine.chains.describe", lambda *_, **__: None)
    plan, faults = planned(MODEL)
    assert {action for _, action in plan.admitted} == {Action.CONSOLIDATION}
    assert len(plan.admitted) == 2
    assert not faults


def contested() -> Snapshot:
    """Each of two gangs may evict ``low``, but ``wide`` also runs where one other pod moves; ``pinned`` does not.

    ``wide`` comes first. Where it evicts, nothing is left for ``pinned``.
    """
    nodes = [a_node(f"n{node}", 4, labels={"node": f"n{node}"}) for node in range(8)]
    low = a_gang("low", gpus=4, on="n0", priority=40)
    running = [a_gang(f"run-{node}", gpus=2, on=f"n{node}", priority=80) for node in (1, 2)]
    full = [a_gang(f"full-{node}", gpus=4, on=f"n{node}", preemptible=False) for node in range(3, 8)]
    wide = a_gang("wide", gpus=4, priority=70)
    pinned = a_gang("pinned", gpus=4, priority=60, each={"constraints": only_on("node", "n0")})
    return a_cluster(nodes, [low, *running, *full, wide, pinned], [a_queue("q")])


BOTH = {("wide", Action.CONSOLIDATION), ("pinned", Action.PREEMPT)}


def admitted(plan: Plan) -> set[tuple[str, Action]]:
    return {(gang.split("/")[-1], action) for gang, action in plan.admitted}


@pytest.mark.parametrize("asks", [True, False])
@pytest.mark.parametrize("waits", [{"wide"}, {"wide", "pinned"}])
def test_up_to_500_nodes_no_stage_is_worse_than_without_a_solver_where_chains_find_nothing(
    monkeypatch: pytest.MonkeyPatch, waits: set[str], asks: bool
) -> None:
    """Chains that take all of their time leave none for another run of the actions; CP-SAT is asked, or not."""
    monkeypatch.setattr(deciding, "MOST_PROMISED", 500)
    monkeypatch.setattr(improving.Improver, "_search_chains", lambda *_: False)
    if not asks:
        monkeypatch.setattr(improving.Improver, "_ask_open", lambda *_: None)
    every = contested()
    gangs = tuple(gang for gang in every.gangs if gang.pods[0].node or gang.name in waits)
    snapshot = replace(every, gangs=gangs)
    least, _ = planned(load_model("greedy-only"), snapshot)
    plan, faults = planned(MODEL, snapshot)
    assert admitted(plan) == admitted(least) == {served for served in BOTH if served[0] in waits}
    assert stages(plan) <= stages(least)
    assert not faults


def stages(plan: Plan) -> list[float]:
    """By the names of one priority: what waits, and what is evicted and moves."""
    values = {stage.name: stage.value for stage in plan.stages}
    names = ("pending-gangs", "evicted-work/40", "gangs-broken", "evicted-pods", "moved-pods", "nodes-opened")
    return [values.get(name, 0.0) for name in names]


def test_where_no_chain_serves_a_gang_all_actions_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kai_solver.engine.chains.describe", lambda *_, **__: None)
    monkeypatch.setattr(improving.Improver, "_ask_open", lambda *_: None)
    plan, faults = planned(MODEL, contested())
    assert admitted(plan) == BOTH
    assert not faults


def test_a_model_without_consolidation_moves_nothing() -> None:
    model = replace(MODEL, actions=tuple(action for action in MODEL.actions if action is not Action.CONSOLIDATION))
    plan, faults = planned(model)
    assert not plan.admitted
    assert not plan.moves
    assert not faults


@pytest.mark.parametrize("moves", [MovesSpec(per_cycle=0), MovesSpec(per_gang=0)])
def test_nothing_moves_late_where_the_model_limits_moves(moves: MovesSpec) -> None:
    plan, faults = planned(replace(MODEL, moves=moves, actions=(Action.ALLOCATE, Action.CONSOLIDATION)))
    assert not plan.moves
    assert not faults


def test_a_cycle_that_is_told_to_stop_says_that_moves_were_not_looked_for() -> None:
    told = False

    def listen(progress: Progress) -> None:
        nonlocal told
        told = told or progress.phase == "greedy"

    plan, _ = planned(MODEL, progress=listen, should_stop=lambda: told)
    assert len(plan.pending) == 2
    for pending in plan.pending:
        assert pending.proof.state == "unknown"
        assert "consolidation: chains" in pending.proof.method


@pytest.mark.usefixtures("faults")
def test_an_error_leaves_what_was_decided_before(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise RuntimeError("no moves today")

    monkeypatch.setattr("kai_solver.engine.chains.describe", lambda *_, **__: None)
    monkeypatch.setattr(improving, "consolidate_late", fails)
    plan, faults = planned(replace(MODEL, actions=(Action.ALLOCATE, Action.CONSOLIDATION)))
    assert any("no moves today" in fault and "no pod moves late" in fault for fault in faults)
    assert not plan.notes or all("greedy alone" not in note for note in plan.notes)


@pytest.mark.parametrize("model", ["default", "greedy-only"])
def test_a_large_cluster_without_pods_has_an_empty_plan(model: str) -> None:
    faults: list[str] = []
    snapshot = a_cluster([a_node(f"n{number}") for number in range(8)], [], [a_queue("q")])
    plan = cycle(snapshot, load_model(model), budget_s=5.0, on_fault=lambda fault: faults.append(fault.error))
    assert not plan.binds
    assert not faults
    assert not plan.notes
