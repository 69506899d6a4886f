"""Gangs that were passed over: CP-SAT is asked for them in policy order, beside what was admitted before them.

The greedy may miss the only way to place a gang, and give the room to gangs that come after it. Once the actions have
ended, CP-SAT finds room for the first gang only beside those. So the actions run once more, and ask CP-SAT when they
come to the gang. All that follows is as if the greedy had found the places.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from kai_solver.actions import Answer
from kai_solver.actions.paces import UntilLate
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.oracle import SolverActions

Question = tuple[int, Action]
"""A gang, and the action that looked for its places."""


def passed_over(outcome: Outcome, actions: Iterable[Action]) -> tuple[Question, ...]:
    """Questions that stayed open, after which a gang was admitted that comes later in policy order."""
    position = {gang: number for number, gang in enumerate(policy_order(outcome, actions))}
    latest = [-1] * (len(outcome.admissions) + 1)
    """By number of admissions, the last position of those that came after them."""
    for number in range(len(outcome.admissions) - 1, -1, -1):
        gang = outcome.admissions[number].allocation_unit.gang
        latest[number] = max(latest[number + 1], position[gang])
    open_questions = (
        (gang, action)
        for gang, refusals in outcome.refusals.items()
        for action, refusal in refusals.items()
        if refusal.proof.state == "unknown" and any(outcome.state.gangs[gang].pending)
    )
    return tuple(
        (gang, action)
        for gang, action in open_questions
        if latest[min(outcome.refused_at[gang, action], len(outcome.admissions))] > position[gang]
    )


def policy_order(outcome: Outcome, actions: Iterable[Action]) -> list[int]:
    """Gangs in the order in which the first action asked for them; those that it did not ask for come last."""
    first = next((action for action in actions if action is not Action.STALE), None)
    found: dict[int, tuple[int, int]] = {}
    for number, admission in enumerate(outcome.admissions, 1):
        if admission.action is first:
            found.setdefault(admission.allocation_unit.gang, (number, 0))
    for (gang, action), version in outcome.refused_at.items():
        if action is first:
            found.setdefault(gang, (version, 1))
    rest = (gang.index for gang in outcome.state.problem.gangs if gang.index not in found)
    return [*sorted(found, key=lambda gang: found[gang]), *rest]


def is_better(outcome: Outcome, floor: Outcome, order: Sequence[int]) -> bool:
    """Whether ``outcome`` serves an earlier gang of ``order`` than ``floor`` does, or more pods of an earlier gang.

    The first gang of the order that only one of them serves decides, whatever comes after it.
    """
    return _served(outcome, order) > _served(floor, order)


def _served(outcome: Outcome, order: Sequence[int]) -> tuple[list[bool], list[int]]:
    """In ``order``, which gangs got places, and for how many pods."""
    pods: Counter[int] = Counter()
    for admission in outcome.admissions:
        pods[admission.allocation_unit.gang] += len(admission.allocation_unit.pods)
    return [gang in pods for gang in order], [pods[gang] for gang in order]


class AskingInOrder:
    """The oracle of a second run: asks CP-SAT the ``questions``, and all that follow once a gang has come in.

    Where no gang comes in, the run decides what the first one did, and need not end.
    """

    def __init__(self, without: SolverActions, asking: SolverActions, questions: Sequence[Question]) -> None:
        self.without, self.asking = without, asking
        self.has_admitted = False
        self._questions = frozenset(questions)
        self._still_open = list(questions)

    @property
    def unanswered(self) -> Answer:
        """As the first run."""
        return self.without.unanswered

    def refute(self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action) -> Answer | None:
        """As the first run."""
        return self.without.refute(outcome, allocation_unit, action)

    def place(
        self, outcome: Outcome, allocation_unit: AllocationUnit, action: Action, victim_search: VictimSearch | None
    ) -> Answer:
        """As the first run, or with CP-SAT."""
        is_asked = self.has_admitted or (allocation_unit.gang, action) in self._questions
        oracle = self.asking if is_asked else self.without
        answer = oracle.place(outcome, allocation_unit, action, victim_search)
        self.has_admitted |= answer.verdict == "yes"
        return answer

    def is_answered(self, outcome: Outcome) -> bool:
        """True once every question is answered and nothing has changed."""
        while self._still_open and self._is_over(outcome, *self._still_open[-1]):
            self._still_open.pop()
        return not self._still_open and not self.has_admitted

    def note_proofs(self, outcome: Outcome, floor: Outcome) -> None:
        """Give ``floor`` the proofs that ``outcome`` has of the questions, where nothing was decided otherwise."""
        for gang, action in self._questions if not self.has_admitted else ():
            refusal = outcome.refusals.get(gang, {}).get(action)
            if refusal is not None and refusal.proof.state == "proven":
                floor.refusals[gang][action] = refusal

    @staticmethod
    def _is_over(outcome: Outcome, gang: int, action: Action) -> bool:
        return action in outcome.refusals.get(gang, {})


class UntilAnswered(UntilLate):
    """The pace of a second run: it ends with the time, or when ``is_answered``.

    Attributes
    ----------
    outcome
        Of the run, to be set before it begins. The run holds its pace: a pace that held the run would be a cycle of
        references, and the problem would stay until the garbage collector finds it.
    """

    def __init__(self, is_late: Callable[[], bool], is_answered: Callable[[Outcome], bool]) -> None:
        super().__init__(is_late)
        self.is_answered = is_answered
        self.outcome: Outcome | None = None

    def is_over(self) -> bool:
        """True where the time has ended, or nothing is left to find out."""
        return self.is_late() or (self.outcome is not None and self.is_answered(self.outcome))
