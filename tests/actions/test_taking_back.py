"""Reclaim against a place that consolidation made in the same cycle: nobody runs there yet."""

from dataclasses import replace

from kai_solver.check import check_plan
from kai_solver.domain import Action, Plan, Snapshot
from kai_solver.engine import cycle
from kai_solver.modelfiles import load_model
from tests.support.builders import a_cluster, a_gang, a_node, a_queue

ACTIONS = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM)
GREEDY = replace(load_model("greedy-only"), actions=ACTIONS)


def contested(*, priority: int = 50) -> Snapshot:
    """Owners' gang of three finds room when r1 moves; then others, owed half of all, ask for a whole node."""
    gangs = (
        a_gang("r0", queue="owners", gpus=2, on="n0", created_s=1.0),
        a_gang("r1", queue="owners", gpus=2, on="n1", created_s=2.0),
        a_gang("r2", queue="owners", gpus=1, on="n1", created_s=3.0),
        a_gang("late", queue="owners", gpus=3, created_s=4.0, priority=priority),
        a_gang("whole", queue="others", gpus=4, created_s=5.0),
    )
    queues = [a_queue(name, 4, weight=0.0) for name in ("owners", "others")]
    return a_cluster([a_node("n0", 4), a_node("n1", 4)], gangs, queues)


def evicted(plan: Plan) -> set[str]:
    return {e.gang for e in plan.evictions}


def placed(plan: Plan) -> set[str]:
    return {b.gang for b in plan.binds}


def test_consolidation_alone_makes_the_place() -> None:
    plan = cycle(contested(), replace(GREEDY, actions=ACTIONS[:2]))
    assert placed(plan) == {"ns/late"}
    assert len(plan.moves) == 1


def test_what_was_given_is_taken_back_before_running_work() -> None:
    snapshot = contested()
    plan = cycle(snapshot, GREEDY)
    assert placed(plan) == {"ns/whole"}
    assert len(evicted(plan)) == 1
    assert not check_plan(snapshot, plan, actions=ACTIONS)
    (waiting,) = plan.pending
    assert waiting.gang == "ns/late"
    assert waiting.proof.state == "unknown"


def test_but_not_from_a_gang_of_higher_priority_than_the_victims() -> None:
    snapshot = contested(priority=60)
    plan = cycle(snapshot, GREEDY)
    assert placed(plan) == {"ns/late", "ns/whole"}
    assert len(evicted(plan)) == 2
    assert not check_plan(snapshot, plan, actions=ACTIONS)


def test_what_was_moved_first_and_evicted_later_is_charged_to_the_later_gang_alone() -> None:
    """``one`` takes n0: one of two victims moves beside the old one, where ``two`` then evicts both."""
    old = replace(a_gang("old", queue="owners", gpus=2, on="n1", created_s=1.0), last_start_s=-9000.0)
    gangs = (
        a_gang("v", queue="owners", on="n0", created_s=2.0),
        a_gang("w", queue="owners", on="n0", created_s=3.0),
        old,
        a_gang("one", queue="others", gpus=2, created_s=5.0),
        a_gang("two", queue="others", gpus=3, created_s=6.0),
    )
    queues = [a_queue("owners", 0, weight=0.0), a_queue("others", 5, weight=0.0)]
    snapshot = a_cluster([a_node("n0", 2), a_node("n1", 3)], gangs, queues)
    plan = cycle(snapshot, replace(GREEDY, actions=(Action.RECLAIM,)))
    assert placed(plan) == {"ns/one", "ns/two"}
    assert not plan.moves
    assert sorted(e.helps for e in plan.evictions) == [("ns/one",), ("ns/two",), ("ns/two",)]
    assert not check_plan(snapshot, plan, actions=(Action.RECLAIM,))
