"""Pods that are placed once more, after the stages."""

from kai_solver.actions import Actions
from kai_solver.domain import Action
from kai_solver.planstate.origins import moved_pods
from kai_solver.problem import build_problem
from kai_solver.search.oracle import SolverActions
from kai_solver.search.reseat import reseat
from tests.support.builders import a_cluster, a_gang, a_node, a_queue


def test_no_more_pods_move_than_in_the_plan() -> None:
    """Two half-full nodes, and a pod of three GPUs: one pod of a gang moves, and the other one of it stays."""
    old = [a_gang(name, pods=2, on=on, queue="theirs") for name, on in (("left", "n0 n0"), ("right", "n1 n1"))]
    new = a_gang("new", gpus=3, queue="mine", created_s=1.0)
    queues = [a_queue("mine", 3), a_queue("theirs", 0)]
    snapshot = a_cluster([a_node("n0", 4), a_node("n1", 4)], [*old, new], queues)
    actions = (Action.ALLOCATE, Action.CONSOLIDATION, Action.RECLAIM)
    outcome = Actions(build_problem(snapshot), actions, SolverActions(None)).run()
    assert len(moved_pods(outcome.state)) == 1
    reseat(outcome)
    assert len(moved_pods(outcome.state)) == 1
