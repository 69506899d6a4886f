"""Of plans that cost the same, the policy's own: its victim order says who leaves, its node score who goes where."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kai_solver.domain import Gang, Node, Plan, Queue, Snapshot
from kai_solver.engine import Engine
from kai_solver.modelfiles import load_model
from kai_solver.units import UNLIMITED, ResourceSchema
from tests.support.builders import a_gang, a_node

ENDLESS = (UNLIMITED, UNLIMITED, UNLIMITED)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(load_model("deterministic")) as started:
        yield started


def planned(engine: Engine, nodes: list[Node], *gangs: Gang) -> Plan:
    snapshot = Snapshot(1000.0, ResourceSchema(), tuple(nodes), (Queue("q", quota=ENDLESS),), gangs)
    return engine.cycle(snapshot, budget_s=10.0)


def moved(plan: Plan) -> dict[str, str]:
    return {move.pod: move.target for move in plan.moves}


def test_of_two_equal_moves_the_younger_gang_moves(engine: Engine) -> None:
    """The greedy sees a free GPU on the first node, keeps to it, and moves the older gang; the stage finds the tie."""
    old, young = a_gang("old", 2, on="n0", created_s=1.0), a_gang("young", 2, on="n1", created_s=2.0)
    plan = planned(engine, [a_node("n0", 4), a_node("n1", 4)], old, young, a_gang("new", 1, 3, created_s=3.0))
    assert moved(plan) == {"ns/young-0": "n0"}
    assert {b.node for b in plan.binds} == {"n1"}
    stage = next(s for s in plan.stages if s.name == "victim-order")
    assert (stage.value, stage.optimal) == (0, True)


def test_ages_the_other_way_round_move_the_other(engine: Engine) -> None:
    young, old = a_gang("young", 2, on="n0", created_s=2.0), a_gang("old", 2, on="n1", created_s=1.0)
    plan = planned(engine, [a_node("n0", 4), a_node("n1", 4)], old, young, a_gang("new", 1, 3, created_s=3.0))
    assert moved(plan) == {"ns/young-0": "n1"}


def test_fewer_moves_beat_the_victim_order(engine: Engine) -> None:
    """Moving the two young ones would also do; one move of the oldest is less."""
    gangs = [a_gang("oldest", 2, on="n0", created_s=1.0)]
    gangs += [a_gang(f"young{i}", 1, on="n1", created_s=5.0 + i) for i in range(2)]
    nodes = [a_node("n0", 4), a_node("n1", 4), a_node("n2", 2)]
    plan = planned(engine, nodes, *gangs, a_gang("new", 4, created_s=9.0))
    assert set(moved(plan)) == {"ns/oldest-0"}


def four_nodes_half_full() -> tuple[list[Node], list[Gang]]:
    nodes = [a_node(f"n{i}", 4) for i in range(4)]
    return nodes, [a_gang(f"r{i}", 1, on=f"n{i % 4}", created_s=float(i)) for i in range(8)]


def test_those_that_move_are_packed(engine: Engine) -> None:
    nodes, running = four_nodes_half_full()
    plan = planned(engine, nodes, *running, a_gang("new", 3, 3, created_s=9.0))
    assert set(moved(plan)) == {"ns/r6-0", "ns/r7-0"}
    assert len(set(moved(plan).values())) == 1


def test_those_that_move_are_spread_where_the_policy_spreads(engine: Engine) -> None:
    nodes, running = four_nodes_half_full()
    snapshot = Snapshot(
        1000.0,
        ResourceSchema(),
        tuple(nodes),
        (Queue("q", quota=ENDLESS),),
        (*running, a_gang("new", 3, 3, created_s=9.0)),
    )
    spread = replace(snapshot, policy=replace(snapshot.policy, gpu_placement="spread"))
    plan = engine.cycle(spread, budget_s=10.0)
    assert len(plan.moves) == 2
    assert len(set(moved(plan).values())) == 2
