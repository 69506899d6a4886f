"""Queues on hold in words: why a gang waits, what blocks, and the cluster with the queue resumed."""

from kai_solver.domain import Blocker
from kai_solver.problem import Problem
from kai_solver.rules.stopped_queues.problem import DRAIN, NAME, StoppedQueues

CURE = "queue {name} resumed"


def message(problem: Problem, stopped: StoppedQueues, queue: int) -> str:
    """Why pods of a stopped leaf queue are refused."""
    by = stopped.by[queue]
    tree = problem.queues
    below = "" if by == queue else f", which queue {tree.title(queue)} is below"
    return (
        f"Queue {tree.title(by)} is {_state(problem, by).removeprefix('that is ')}{below}. An administrator resumes it"
    )


def blocker(problem: Problem, stopped: StoppedQueues, queue: int) -> Blocker:
    """The element of a blocking set, for a stopped leaf queue."""
    by = stopped.by[queue]
    return Blocker(NAME, problem.queues.title(by), "a queue that starts work", f"a queue {_state(problem, by)}")


def _state(problem: Problem, queue: int) -> str:
    name = problem.queues.names[queue]
    said = next(dict(found.rules).get(NAME) for found in problem.snapshot.queues if found.name == name)
    return "that is being drained" if said == DRAIN else "on hold"
