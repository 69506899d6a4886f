"""Time for the solver in one cycle: wall seconds, or deterministic seconds that no slow machine can change."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kai_solver.model.spec import SpecAnswer

Clock = Callable[[], float]

SAFETY_S = 60.0
"""Wall seconds after which even a deterministic answer is given up: a hung child must not hang the cycle."""
PATIENCE = 2
"""Failures of the child in one cycle after which it is not asked again."""


@dataclass(slots=True)
class Budget:
    """What is left of ``seconds``.

    Attributes
    ----------
    deterministic
        Count the solver's deterministic seconds, and only those.
    failures, errors
        Answers that ended in an error, and what it was.
    """

    seconds: float
    clock: Clock
    start_s: float
    deterministic: bool = False
    spent_s: float = 0.0
    failures: int = 0
    errors: list[str] = field(default_factory=list)

    @property
    def end_s(self) -> float:
        """Wall moment at which the solver must be silent."""
        return self.clock() + SAFETY_S if self.deterministic else self.start_s + self.seconds

    @property
    def left_s(self) -> float:
        """Seconds left, deterministic or wall; none once the child failed too often."""
        if self.failures >= PATIENCE:
            return 0.0
        if self.deterministic:
            return self.seconds - self.spent_s
        return self.end_s - self.clock()

    def limit_s(self, seconds: float) -> float:
        """Wall moment by which an answer that may take ``seconds`` has to be there."""
        return self.end_s if self.deterministic else min(self.end_s, self.clock() + seconds)

    def apart(self, seconds: float) -> "Budget":
        """A budget of its own for a part of the work; what it cost is noted here by ``settle``."""
        return Budget(seconds, self.clock, self.clock(), self.deterministic)

    def settle(self, part: "Budget") -> None:
        """Note what came of a part that had its own budget."""
        self.spent_s += part.spent_s
        self.failures += part.failures
        self.errors.extend(part.errors)

    def blame(self, errors: Iterable[str]) -> None:
        """Note failures that were counted elsewhere."""
        self.errors.extend(errors)

    def charge(self, answer: SpecAnswer) -> None:
        """Note what an answer cost."""
        self.spent_s += answer.deterministic_s
        if answer.error:
            self.failures += 1
            self.errors.append(answer.error)


def promised_s(budget_s: float) -> float:
    """Seconds by which a cycle with such a budget has ended, whatever happens."""
    return 1.2 * budget_s + 0.2
