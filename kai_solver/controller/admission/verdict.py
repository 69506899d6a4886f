"""What rules say of an object."""

from dataclasses import dataclass

from kai_solver.errors import InputError


@dataclass(frozen=True, slots=True)
class Verdict:
    """Why an object is refused, and what its author should know; neither: it is fine."""

    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __add__(self, other: "Verdict") -> "Verdict":
        return Verdict(self.refusals + other.refusals, self.warnings + other.warnings)

    def excusing(self, before: "Verdict") -> "Verdict":
        """The verdict on a change: what was wrong ``before`` is no reason to refuse it.

        Else an object that was kept while the webhook was away could not even lose its finalizers.
        """
        known = set(before.refusals)
        return Verdict(
            tuple(text for text in self.refusals if text not in known),
            (*self.warnings, *(text for text in self.refusals if text in known)),
        )


FINE = Verdict()


def refuse(problem: str | InputError) -> Verdict:
    """A refusal; of an error KAI's words come first, and the cure after them."""
    return Verdict(refusals=(_text(problem),))


def warn(problem: str | InputError) -> Verdict:
    """A warning."""
    return Verdict(warnings=(_text(problem) if isinstance(problem, str) else str(problem),))


def _text(problem: str | InputError) -> str:
    if isinstance(problem, str):
        return problem
    return f"{problem.problem}. {problem.cure}" if problem.cure else problem.problem
