"""What a cycle decided, before it becomes a plan, and how the plan describes it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from kai_solver.domain import Stage
from kai_solver.domain.plan import Source
from kai_solver.errors import GangError
from kai_solver.errors.barrier import caught
from kai_solver.planstate.outcome import Outcome
from kai_solver.search.refine import Refined


@dataclass(slots=True)
class Decided:
    """What a cycle decided, what was proven of it, and which of the solver's steps failed."""

    outcome: Outcome
    refined: Refined | None
    errors: tuple[str, ...]
    links: Stage | None = None
    bounds: Mapping[str, int] = field(default_factory=dict)
    """By stage, what sums or the linear programme prove of plans that cost no more in the stages before."""
    measured: Sequence[Stage] | None = None
    """Stages before pods were moved for a rule's sake, which no stage counts; None: none was."""


def stage_failed(error: Exception) -> str:
    """The greedy's plan is used."""
    cause = error.cause if isinstance(error, GangError) else error
    return f"an unexpected error, so the greedy's plan is used: {caught('deciding', 'the solver', cause)}"


def with_bound(measured: Stage, solved: Stage | None) -> Stage:
    """The plan's own value with the solver's bound, where the bound holds for it."""
    if solved is None or solved.bound > measured.value:
        return measured
    return replace(measured, bound=solved.bound, optimal=solved.bound >= measured.value)


def with_proven(stage: Stage, bound: int | None) -> Stage:
    """The stage with a bound by sums or the linear programme, where that is better and holds for it."""
    if bound is None or not stage.bound < bound <= stage.value:
        return stage
    return replace(stage, bound=float(bound), optimal=bound >= stage.value)


def source_of(decided: Decided, stages: Sequence[Stage]) -> Source:
    """The source of the plan."""
    if any(a.by_solver for a in decided.outcome.admissions) or (decided.refined and decided.refined.improved):
        return "cp-sat"
    return "bound" if all(stage.optimal for stage in stages) else "greedy"


def notes_of(decided: Decided) -> list[str]:
    """Notes for users on how it was decided."""
    notes = list(decided.errors)
    if decided.refined is not None:
        notes += decided.refined.notes
    if decided.outcome.stopped:
        notes.append("stopped before every gang was asked: time or patience ended")
    return notes
