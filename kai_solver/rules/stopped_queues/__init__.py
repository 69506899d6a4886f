"""Queues on hold: nothing of such a queue, or below it, starts; with ``drain``, what may be evicted leaves, too."""

from collections.abc import Callable, Mapping, Sequence

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot, without_setting
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.stopped_queues import words
from kai_solver.rules.stopped_queues.ledger import StoppedLedger
from kai_solver.rules.stopped_queues.problem import NAME, SETTINGS, StoppedQueues, stopped_queues


class StoppedFacts(RuleFacts):
    """Stopped queues of this cycle."""

    name = kind = NAME
    ties = False

    def __init__(self, stopped: StoppedQueues) -> None:
        self.stopped = stopped

    def ledger(self, state: State, /) -> StoppedLedger:
        return StoppedLedger(state.problem, self.stopped)

    def add_rows(self, variables: Variables, /) -> None:
        """What arrives in a stopped queue is not admitted: ``admit = 0``."""
        problem = variables.joint.problem
        for arrival, admit in zip(variables.joint.arrivals, variables.admit, strict=True):
            if problem.gangs[arrival.gang].queue in self.stopped.by:
                variables.spec.add_le([(1, admit)], 0, family=NAME)

    def lacks(
        self, problem: Problem, pods: Sequence[int], so_far: object, gone: Callable[[int], bool], /
    ) -> Blocker | None:
        queue = problem.gangs[problem.pod_gang[pods[0]]].queue
        return words.blocker(problem, self.stopped, queue) if queue in self.stopped.by else None

    def tells_apart(self, pod: int, /) -> str | None:
        return self.stopped.of_pod.get(pod)

    def may_block(self, problem: Problem, needed: Mapping[int, int], /) -> bool:
        return any(problem.pod_shape[pod] in needed for pod in self.stopped.of_pod)

    def element(self, words_: ElementWords, /) -> Blocker:
        problem, pods = words_.problem, words_.demand.pods
        queue = problem.gangs[problem.pod_gang[pods[0]]].queue
        return words.blocker(problem, self.stopped, queue)

    @property
    def drained(self) -> frozenset[int]:
        return self.stopped.drained


class StoppedRule(Rule):
    """Prepared where any queue has the setting."""

    name = kind = NAME
    cure = words.CURE

    def setting_fault(self, text: str, /) -> str:
        return "" if text in SETTINGS else f"Write {' or '.join(SETTINGS)}, or remove the annotation"

    def prepare(self, problem: Problem, /) -> StoppedFacts | None:
        stopped = stopped_queues(problem)
        return StoppedFacts(stopped) if stopped.by else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return without_setting(snapshot, NAME, blocker.name)


RULE = StoppedRule()
