"""The stage ``moved-work``: what moved pods lose."""

from dataclasses import replace

from kai_solver.domain import MovesSpec, Snapshot
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from tests.support.builders import NOW_S, a_cluster, a_gang, a_node

GREEDY = load_model("greedy-only")


def moved_work(snapshot: Snapshot, moves: MovesSpec) -> int | None:
    plan = cycle(snapshot, replace(GREEDY, moves=moves), budget_s=60.0)
    assert {stage.name: stage.value for stage in plan.stages}["moved-pods"] == len(plan.moves)
    return next((int(stage.value) for stage in plan.stages if stage.name == "moved-work"), None)


def one_move(started_s: float) -> Snapshot:
    """A pod of one GPU moves to the smaller node, so that one of four fits the larger one."""
    gangs = [a_gang("a", 1, on="n0", last_start_s=started_s), a_gang("wide", 4)]
    return a_cluster([a_node("n0", 4), a_node("n1", 1)], gangs)


def test_a_pod_loses_what_it_did_since_its_checkpoint_and_its_restart() -> None:
    assert moved_work(one_move(0.0), MovesSpec(checkpoint_s=240, restart_s=60)) == 300
    assert moved_work(one_move(NOW_S - 30), MovesSpec(checkpoint_s=240, restart_s=60)) == 90
    assert moved_work(one_move(0.0), MovesSpec(checkpoint_s=0, restart_s=0)) == 0


def test_where_nothing_moves_there_is_no_such_stage() -> None:
    free = a_cluster([a_node("n0", 4)], [a_gang("a", 1), a_gang("b", 1, on="n0")])
    assert moved_work(free, MovesSpec()) is None
