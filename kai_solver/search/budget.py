"""Time for the solver in one cycle: wall seconds, or deterministic seconds that no slow machine can change."""

from collections.abc import Callable
from dataclasses import dataclass

from kai_solver.formulation.spec import SpecAnswer

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
    failures
        Answers that ended in an error.
    """

    seconds: float
    clock: Clock
    start_s: float
    deterministic: bool = False
    spent_s: float = 0.0
    failures: int = 0

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

    def charge(self, answer: SpecAnswer) -> None:
        """Note what an answer cost."""
        self.spent_s += answer.deterministic_s
        self.failures += bool(answer.error)
