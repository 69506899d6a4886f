"""The stage ``moved-work``: what moved pods lose, and the least that they could."""

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


def two_moves() -> Snapshot:
    """Two of three pods of one GPU move, so that one of four fits the large node; one of the three is young."""
    starts = {"a": 0.0, "b": 0.0, "young": NOW_S - 30}
    gangs = [a_gang(name, 1, on="n0", last_start_s=start) for name, start in starts.items()]
    return a_cluster([a_node("n0", 6), a_node("n1", 2)], [*gangs, a_gang("wide", 5)])


def test_the_bound_is_what_the_cheapest_pods_lose_of_those_that_must_move() -> None:
    moves = MovesSpec(checkpoint_s=240, restart_s=60)
    plan = cycle(two_moves(), replace(load_model("default"), moves=moves), budget_s=60.0)
    stages = {stage.name: stage for stage in plan.stages}
    assert (stages["moved-pods"].value, stages["moved-pods"].bound) == (2, 2)
    assert stages["moved-work"].bound == 300 + 90
    assert stages["moved-work"].bound <= stages["moved-work"].value <= 2 * 300


def test_where_no_number_of_moves_is_proven_the_bound_is_0() -> None:
    plan = cycle(two_moves(), replace(GREEDY, moves=MovesSpec()), budget_s=60.0)
    stages = {stage.name: stage for stage in plan.stages}
    assert (stages["moved-pods"].bound, stages["moved-work"].bound) == (0, 0)
