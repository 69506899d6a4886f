"""After all other actions, consolidation serves gangs that it was not asked about, for as long as there is time."""

import pytest

from kai_solver.actions import Actions, consolidate_late
from kai_solver.domain import Action, PodStatus
from kai_solver.planstate.origins import moved_pods
from kai_solver.planstate.outcome import Outcome
from kai_solver.problem import build_problem
from tests.support.builders import a_cluster, a_gang, a_node, a_queue
from tests.support.oracles import Unasked

OTHERS = (Action.ALLOCATE, Action.RECLAIM, Action.PREEMPT)


def after(actions: tuple[Action, ...], *, waits: int = 1) -> Outcome:
    """One GPU is free on each of two nodes of two GPUs, and ``waits`` gangs ask for a pod of two GPUs."""
    running = [a_gang(f"run-{node}", gpus=1, on=node) for node in ("a", "b")]
    waiting = [a_gang(f"wait-{number}", gpus=2) for number in range(waits)]
    problem = build_problem(a_cluster([a_node("a", 2), a_node("b", 2)], [*running, *waiting], [a_queue("q", 8)]))
    return Actions(problem, actions, Unasked()).run()


def served(outcome: Outcome) -> list[tuple[str, Action]]:
    gangs = outcome.state.problem.gangs
    return [(gangs[admission.allocation_unit.gang].gang.name, admission.action) for admission in outcome.admissions]


def test_a_gang_gets_room_by_a_move() -> None:
    outcome = after(OTHERS)
    assert not served(outcome)
    consolidate_late(outcome, Unasked(), lambda: False)
    assert served(outcome) == [("wait-0", Action.CONSOLIDATION)]
    assert len(moved_pods(outcome.state)) == 1


def test_the_gang_for_which_there_is_no_room_says_so() -> None:
    outcome = after(OTHERS, waits=2)
    consolidate_late(outcome, Unasked(), lambda: False)
    assert len(served(outcome)) == 1
    (gang,) = outcome.waiting
    assert Action.CONSOLIDATION in outcome.refusals[gang]


def test_nothing_moves_once_the_time_has_ended() -> None:
    outcome = after(OTHERS)
    consolidate_late(outcome, Unasked(), lambda: True)
    assert not served(outcome)
    assert not outcome.state.gone


def test_a_gang_that_consolidation_was_asked_about_is_not_asked_about_again() -> None:
    outcome = after((Action.ALLOCATE, Action.CONSOLIDATION), waits=2)
    (gang,) = outcome.waiting
    before = outcome.refusals[gang][Action.CONSOLIDATION]
    consolidate_late(outcome, Unasked(), lambda: False)
    assert outcome.refusals[gang][Action.CONSOLIDATION] is before


def test_gangs_that_may_not_have_others_moved_are_left_alone() -> None:
    running = [a_gang(f"run-{node}", gpus=1, on=node) for node in ("a", "b")]
    fixed = a_gang("fixed", gpus=2, preemptible=False)
    gated = a_gang("gated", gpus=2, each={"status": PodStatus.GATED})
    problem = build_problem(a_cluster([a_node("a", 2), a_node("b", 2)], [*running, fixed, gated], [a_queue("q", 8)]))
    outcome = Actions(problem, OTHERS, Unasked()).run()
    consolidate_late(outcome, Unasked(), lambda: False)
    assert not served(outcome)
    assert not any(Action.CONSOLIDATION in refusals for refusals in outcome.refusals.values())


def crowded() -> Outcome:
    """One of five GPUs on the large node is for a gang that only consolidation serves: it moves two to the small one.

    That leaves a GPU free. A gang of a higher priority, which may not have others moved, needs it beside a victim's.
    """
    large = {"cpu": 4000}
    running = [
        a_gang("moves", gpus=2, on="large", priority=1, queue="other"),
        a_gang("leaves", gpus=3, on="large", priority=10),
    ]
    waiting = [
        a_gang("low", gpus=1, priority=10, queue="third", each=large),
        a_gang("high", gpus=4, priority=50, preemptible=False, each=large),
    ]
    nodes = [a_node("large", 5, cpu=64_000), a_node("small", 2, cpu=2000)]
    queues = [a_queue("q", 5), a_queue("other", 2), a_queue("third", 0)]
    return Actions(build_problem(a_cluster(nodes, [*running, *waiting], queues)), OTHERS, Unasked()).run()


@pytest.mark.parametrize("afterwards", [(), (Action.RECLAIM, Action.PREEMPT), (Action.RECLAIM,)])
def test_what_follows_serves_gangs_that_can_use_what_moves_freed(afterwards: tuple[Action, ...]) -> None:
    outcome = crowded()
    assert not served(outcome)
    consolidate_late(outcome, Unasked(), lambda: False, afterwards)
    by_moves, by_eviction = ("low", Action.CONSOLIDATION), ("high", Action.PREEMPT)
    assert served(outcome) == ([by_moves, by_eviction] if Action.PREEMPT in afterwards else [by_moves])


def test_nothing_follows_where_consolidation_served_none() -> None:
    outcome = after((Action.ALLOCATE, Action.CONSOLIDATION, Action.PREEMPT), waits=2)
    (gang,) = outcome.waiting
    before = outcome.refusals[gang][Action.PREEMPT]
    consolidate_late(outcome, Unasked(), lambda: False, (Action.PREEMPT,))
    assert outcome.refusals[gang][Action.PREEMPT] is before
