"""What reclaim tests in one piece: surplus up to a gang's minimum is one allocation unit, beyond it pod by pod.

Source: docs/kai-behaviour.md#reclaim-parts.

Each case is decided by the greedy, by the solver alone, and judged by the checker, which has the rule of its own.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from kai_solver.check import check_plan
from kai_solver.domain import Action, Gang, Plan, Snapshot
from kai_solver.engine import Engine, cycle
from kai_solver.modelfiles import load_model
from kai_solver.planstate.eligibility import victim_parts
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.units import MILLI
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

RECLAIM = (Action.RECLAIM,)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with Engine(replace(load_model("deterministic"), actions=RECLAIM)) as started:
        yield started


def contested(victim: Gang, asks: int, *, mine: int) -> Snapshot:
    """All eight GPUs of a node are in use by ``victim``, whose queue deserves what is not ``mine``."""
    queues = [a_queue("v", 8 - mine, weight=0.0), a_queue("r", mine, weight=0.0)]
    return a_cluster([a_node("n", 8)], [victim, a_gang("new", queue="r", gpus=asks)], queues)


def evicted(plan: Plan) -> list[str]:
    return sorted(e.pod for e in plan.evictions)


def test_surplus_up_to_the_minimum_is_tested_once(engine: Engine) -> None:
    """v is one GPU over its quota of seven; the allocation unit that starts there may take three surplus pods of a gang
    of four.

    But the reclaimer may not pass its own share, so its queue has to be owed as many.
    """
    snapshot = contested(a_gang("elastic", queue="v", pods=8, need=4, on="n"), 3, mine=3)
    for plan in (cycle(snapshot, replace(load_model("greedy-only"), actions=RECLAIM)), engine.cycle(snapshot)):
        assert evicted(plan) == ["ns/elastic-5", "ns/elastic-6", "ns/elastic-7"]
        assert not check_plan(snapshot, plan, actions=RECLAIM)


@pytest.mark.parametrize(("need", "parts"), [(4, [3]), (1, [1, 1, 1]), (2, [1, 2])])
def test_parts_of_three_surplus_victims(need: int, parts: list[int]) -> None:
    """KAI counts positions in the list of victims, not what is left of the gang."""
    problem = build_problem(contested(a_gang("elastic", queue="v", pods=8, need=need, on="n"), 3, mine=3))
    state = State(problem)
    pool: VictimPool = VictimPool.of_running(state)
    found = victim_parts(state, pool.units[:3])
    assert [charge[2] // MILLI for charge in found] == parts


def overdrawn(need: int) -> Snapshot:
    """r goes first and is owed the three GPUs that it asks for; v is one above its quota. Quotas exceed the node."""
    queues = [a_queue("v", 7, weight=0.0), a_queue("r", 3, weight=0.0, priority=101)]
    victim = a_gang("elastic", queue="v", pods=8, need=need, on="n")
    return a_cluster([a_node("n", 8)], [victim, a_gang("new", queue="r", gpus=3)], queues)


def test_one_gpu_over_quota_is_enough_for_a_chunk_of_three(engine: Engine) -> None:
    snapshot = overdrawn(need=4)
    for plan in (cycle(snapshot, replace(load_model("greedy-only"), actions=RECLAIM)), engine.cycle(snapshot)):
        assert len(plan.evictions) == 3
        assert not check_plan(snapshot, plan, actions=RECLAIM)


def test_pod_by_pod_the_second_is_protected_and_that_is_proven(engine: Engine) -> None:
    """With a minimum of one, every surplus pod is an allocation unit: after the first, v is at its quota."""
    snapshot = overdrawn(need=1)
    plan = engine.cycle(snapshot)
    assert not plan.evictions
    (waiting,) = plan.pending
    assert waiting.proof.state == "proven"


def test_a_chunk_of_two_pods_does_not_reach_three(engine: Engine) -> None:
    """Two in the last allocation unit and one before it: the test before the last sees v at its quota."""
    plan = engine.cycle(overdrawn(need=2))
    assert not plan.evictions
    assert plan.pending[0].proof.state == "proven"
