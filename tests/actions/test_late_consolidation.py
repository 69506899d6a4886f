"""After all other actions, consolidation serves gangs that it was not asked about, for as long as there is time."""

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
