"""Refuses pods that wait in a stopped queue. Running pods may move, and keep their places."""

from collections.abc import Sequence

from kai_solver.domain import Reason
from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger, Refused
from kai_solver.rules.stopped_queues.problem import NAME, StoppedQueues
from kai_solver.rules.stopped_queues.words import blocker, message


class StoppedLedger(Ledger):
    """Nodes make no difference, so every shape is plain."""

    kind = NAME

    def __init__(self, problem: Problem, stopped: StoppedQueues) -> None:
        self._problem = problem
        self._stopped = stopped

    def is_plain(self, shape: int, /) -> bool:
        return True

    def may_return(self, pod: int, /) -> bool:
        return True

    def refuses(self, gang: int, pods: Sequence[int], /) -> Refused | None:
        queue = self._problem.gangs[gang].queue
        if queue not in self._stopped.by or self._stopped.of_pod.keys().isdisjoint(pods):
            return None
        text = message(self._problem, self._stopped, queue)
        return Refused(Reason.QUEUE_ON_HOLD, text, blocker(self._problem, self._stopped, queue))
