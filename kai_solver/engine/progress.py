"""What a cycle tells while it works, and when something in it failed."""

from collections.abc import Callable
from dataclasses import dataclass

from kai_solver.domain import Snapshot, SolverModel

OnSlow = Callable[[str, float], None]
"""Called with a gang, and the seconds that its turns took."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The solver crashed, hung or answered nonsense, or its plan was refused: what is needed to see it again."""

    error: str
    snapshot: Snapshot
    model: SolverModel
    budget_s: float
    seed: int


@dataclass(frozen=True, slots=True)
class FaultReporter:
    """Tells ``on_fault`` of errors, each with what is needed to see it again."""

    snapshot: Snapshot
    model: SolverModel
    budget_s: float
    seed: int
    on_fault: Callable[[Fault], None] | None

    def report(self, error: str) -> None:
        """Tell of an error."""
        if self.on_fault is not None:
            self.on_fault(Fault(error, self.snapshot, self.model, self.budget_s, self.seed))


@dataclass(frozen=True, slots=True)
class Progress:
    """A moment of a cycle: the phase or stage, seconds since its start, the stage's incumbent and bound if any."""

    phase: str
    elapsed_s: float
    incumbent: float | None = None
    bound: float | None = None
    text: str = ""
