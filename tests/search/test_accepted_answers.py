"""What a question makes of CP-SAT's answer: what is not in the way comes back before anything is judged."""

from kai_solver.actions import Actions
from kai_solver.actions.disrupt import search_of
from kai_solver.domain import Action
from kai_solver.model.decode import Decision
from kai_solver.placement.fit import FitTable
from kai_solver.planstate.allocation_units import GangUnitsOf
from kai_solver.problem import build_problem
from kai_solver.search.joint_input import JointModelInput
from kai_solver.search.oracle import UNKNOWN, SolverActions
from kai_solver.search.question import Question
from tests.support.builders import a_cluster, a_gang, a_node, a_queue


def test_an_answer_that_evicts_too_much_is_judged_by_what_is_in_the_way() -> None:
    """Queue rich may lose one of its two GPUs: both may not go, but the place of one is enough."""
    running = [a_gang(f"run{i}", queue="rich", on=f"n{i}") for i in range(2)]
    gangs = [*running, a_gang("late", queue="poor")]
    queues = [a_queue("rich", 1), a_queue("poor", 1)]
    snapshot = a_cluster([a_node("n0", 1), a_node("n1", 1)], gangs, queues)
    problem = build_problem(snapshot)
    outcome = Actions(problem, (Action.ALLOCATE,), SolverActions(None, UNKNOWN)).run()
    gang_units = GangUnitsOf(outcome.state)
    search = search_of(Action.RECLAIM, outcome, FitTable(outcome.state), gang_units, outcome.waiting)
    (late,) = outcome.waiting
    unit = gang_units[late].next()
    assert unit is not None
    question = Question(JointModelInput(outcome), outcome, unit, Action.RECLAIM, search)
    joint = question.joint()
    both = sorted(mover.unit for mover in joint.movers)
    (pod,) = unit.pods
    taken = question.accept(joint, Decision(admitted=[0], reclaimed=both, places={pod: 0}))
    assert taken is not None
    assert outcome.pool is not None
    (gone,) = taken
    assert [problem.pod_node[pod] for pod in outcome.pool.units[gone].pods] == [0]
    assert [outcome.pool.has_left(unit) for unit in both] == [unit == gone for unit in both]
