"""Caps per user within a queue: at most so many GPUs or pods, by a label of pods (docs/operating.md#user-caps)."""

from collections.abc import Callable, Sequence

from kai_solver.bounds.blocking import ElementWords
from kai_solver.domain import Blocker, Snapshot, without_setting
from kai_solver.model.variables import Variables
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Rule, RuleFacts
from kai_solver.rules.user_caps import bound, rows, words
from kai_solver.rules.user_caps.ledger import Held, UserLedger
from kai_solver.rules.user_caps.problem import NAME, UserCaps, caps_of, setting_of


class UserCapsFacts(RuleFacts):
    """Users of queues with caps in this cycle."""

    name = kind = NAME

    def __init__(self, caps: UserCaps) -> None:
        self.caps = caps

    def ledger(self, state: State, /) -> UserLedger:
        return UserLedger(state.problem, self.caps)

    def add_rows(self, variables: Variables, /) -> None:
        rows.add(variables, self.caps)

    def tells_apart(self, pod: int, /) -> tuple[int, ...] | None:
        return self.caps.of.get(pod)

    def lacks(
        self, problem: Problem, pods: Sequence[int], so_far: Held | None, gone: Callable[[int], bool], /
    ) -> Blocker | None:
        return bound.lacks(self.caps, pods, so_far, gone)

    def element(self, words_: ElementWords, /) -> Blocker:
        return words.element(self.caps, words_.demand.pods)


class UserCapsRule(Rule):
    """Prepared where any queue has the setting."""

    name = kind = NAME
    cure = words.CURE

    def setting_fault(self, text: str, /) -> str:
        try:
            setting_of(text)
        except ValueError as error:
            return str(error)
        return ""

    def prepare(self, problem: Problem, /) -> UserCapsFacts | None:
        caps = caps_of(problem)
        return UserCapsFacts(caps) if caps is not None and caps.groups else None

    def eased(self, snapshot: Snapshot, gang: str, blocker: Blocker, /) -> Snapshot:
        return without_setting(snapshot, NAME, blocker.name)


RULE = UserCapsRule()
