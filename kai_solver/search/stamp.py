"""Whether an outcome changed since something was worked out of it."""

from dataclasses import dataclass

from kai_solver.planstate.outcome import Outcome


@dataclass(frozen=True, slots=True, eq=False)
class Stamp:
    """Another one once a gang is admitted or taken back, or a step is taken or undone.

    ``version``: of the admissions. ``steps``, ``last``: how many the journal has, and the last of them.
    """

    version: int
    steps: int
    last: object

    @classmethod
    def of(cls, outcome: Outcome) -> "Stamp":
        """The one of now."""
        journal = outcome.state.journal
        return cls(outcome.version, len(journal), journal[-1] if journal else None)

    def holds(self, outcome: Outcome) -> bool:
        """Whether nothing changed since."""
        now = Stamp.of(outcome)
        return self.version == now.version and self.steps == now.steps and self.last is now.last
