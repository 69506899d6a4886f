"""A session: objective stages over one model, in lexicographic order, each under its part of the budget.

A finished stage holds for the later ones as ``objective <= what was reached``, with a hint to its solution (an equality
hurts the search). The best solution lives here, not in the solver: what comes out is never worse, stage by stage, than
the hint that came in, and a stage that stays unknown costs the later ones nothing.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kai_solver.formulation.rows import Ints
from kai_solver.formulation.spec import ModelSpec, SpecAnswer, Term
from kai_solver.search.child import OnBound, OnIncumbent
from kai_solver.search.parameters import SolverParameters

HELD_FAMILY = "stage"
"""Family of the rows that hold finished stages."""

Progress = Callable[[str, int | None, int], None]
"""Called with (stage, objective or None, bound) whenever one of them improves, and when the stage ends."""


class Solver(Protocol):
    """Who answers: a `SolverChild`, or a stand-in."""

    def solve(
        self,
        spec: ModelSpec,
        parameters: SolverParameters,
        deadline_s: float,
        *,
        on_incumbent: OnIncumbent | None = None,
        on_bound: OnBound | None = None,
        should_stop: Callable[[], bool] | None = None,
    ) -> SpecAnswer:
        """As `SolverChild.solve`."""
        ...


@dataclass(frozen=True, slots=True)
class StageObjective:
    """One stage: minimise ``sum(terms) + constant``.

    ``share`` is its part of the budget relative to the other stages'; what a stage does not use goes to the later ones.
    ``gap`` is the relative gap at which it may stop.
    """

    name: str
    terms: tuple[Term, ...]
    constant: int = 0
    share: float = 1.0
    gap: float = 0.0


@dataclass(frozen=True, slots=True)
class StageResult:
    """What a stage came to: ``value`` of the final solution (None without one), the bound, whether they meet.

    The bound is for the stage with the earlier stages held at what they reached.
    """

    name: str
    value: int | None
    bound: int
    optimal: bool


@dataclass(frozen=True, slots=True)
class SessionResult:
    """Outcome of all stages.

    Attributes
    ----------
    values
        The best solution; None where none is known.
    improved
        True where it is better, in lexicographic order, than the hint (or there was no hint).
    infeasible
        The solver says that the model has no solution.
    notes, errors
        What went wrong on the way, in words; of this, failures of the solver.
    """

    stages: tuple[StageResult, ...]
    values: Ints | None
    improved: bool
    infeasible: bool
    notes: tuple[str, ...]
    errors: tuple[str, ...] = ()


def solve_stages(
    solver: Solver,
    spec: ModelSpec,
    stages: Sequence[StageObjective],
    hint: Ints | None,
    deadline_s: float,
    parameters: SolverParameters,
    *,
    clock: Callable[[], float],
    progress: Progress | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> SessionResult:
    """Minimise ``stages`` one after the other.

    Parameters
    ----------
    spec
        The model; not changed. Its own objective and hint are not used.
    hint
        A solution to start from, one value per variable. One that breaks a row is not used, and a note says so.
    deadline_s
        On ``clock``, the same clock as the solver's.
    parameters
        Its ``deterministic_s``, where finite, is divided among the stages too.
    """
    session = _Session(solver, spec, hint, parameters, clock, progress, should_stop)
    for index, stage in enumerate(stages):
        if session.infeasible:
            break
        session.run(stage, _part(stages[index:]), _part(stages, index), deadline_s)
    return session.result(stages)


def _part(stages: Sequence[StageObjective], index: int = 0) -> float:
    """Part of the budget that ``stages[index]`` has among ``stages``."""
    total = sum(stage.share for stage in stages)
    return stages[index].share / total if total > 0 else 1 / len(stages)


class _Session:
    """The state between stages: the model with its held rows, the best solution, the bounds."""

    def __init__(
        self,
        solver: Solver,
        spec: ModelSpec,
        hint: Ints | None,
        parameters: SolverParameters,
        clock: Callable[[], float],
        progress: Progress | None,
        should_stop: Callable[[], bool] | None,
    ) -> None:
        self.infeasible = False
        self._solver = solver
        self._spec = spec.copy()
        self._parameters = parameters
        self._clock = clock
        self._progress = progress or (lambda _stage, _value, _bound: None)
        self._should_stop = should_stop
        self._values: Ints | None = None
        self._improved = False
        self._bounds: list[int] = []
        self._notes: list[str] = []
        self._errors: list[str] = []
        if hint is not None:
            self._accept_hint(hint)

    def run(self, stage: StageObjective, part_of_rest: float, part_of_all: float, deadline_s: float) -> None:
        """Ask for one stage, keep what is better, hold what was reached."""
        spec = self._spec
        spec.minimize(stage.terms, stage.constant)
        spec.hint(self._values)
        bound = spec.trivial_bound()
        if self._values is None or spec.objective_of(self._values) > bound:
            now = self._clock()
            parameters = replace(
                self._parameters,
                relative_gap=stage.gap,
                deterministic_s=self._parameters.deterministic_s * max(part_of_all, 1e-6),
            )
            answer = self._ask(stage, parameters, now + (deadline_s - now) * part_of_rest)
            self._accept(stage, answer)
            bound = max(bound, bound if answer.bound is None else answer.bound)
        self._bounds.append(bound)
        value = None if self._values is None else spec.objective_of(self._values)
        self._progress(stage.name, value, bound)
        if value is not None:
            spec.add_le(stage.terms, value - stage.constant, family=HELD_FAMILY)

    def result(self, stages: Sequence[StageObjective]) -> SessionResult:
        """Judge every asked stage by the final solution."""
        results = []
        for stage, bound in zip(stages, self._bounds, strict=False):
            self._spec.minimize(stage.terms, stage.constant)
            value = None if self._values is None else self._spec.objective_of(self._values)
            results.append(StageResult(stage.name, value, bound, value == bound))
        return SessionResult(
            tuple(results), self._values, self._improved, self.infeasible, tuple(self._notes), tuple(self._errors)
        )

    def _accept_hint(self, hint: Ints) -> None:
        violation = self._spec.check(hint)
        if violation is None:
            self._values = hint
        else:
            self._notes.append(f"the hint is not a solution: {violation.text}")

    def _ask(self, stage: StageObjective, parameters: SolverParameters, deadline_s: float) -> SpecAnswer:
        spec = self._spec
        best: list[int | None] = [None if self._values is None else spec.objective_of(self._values)]
        bound = [spec.trivial_bound()]

        def on_incumbent(_values: Ints, objective: int) -> None:
            if best[0] is None or objective < best[0]:
                best[0] = objective
                self._progress(stage.name, objective, bound[0])

        def on_bound(better: int) -> None:
            bound[0] = better
            self._progress(stage.name, best[0], better)

        return self._solver.solve(
            spec, parameters, deadline_s, on_incumbent=on_incumbent, on_bound=on_bound, should_stop=self._should_stop
        )

    def _accept(self, stage: StageObjective, answer: SpecAnswer) -> None:
        if answer.error:
            self._notes.append(f"stage {stage.name}: {answer.error}")
            self._errors.append(answer.error)
        if answer.status == "infeasible":
            self.infeasible = self._values is None
        if answer.values is None or answer.objective is None:
            return
        if self._values is None or answer.objective < self._spec.objective_of(self._values):
            self._values, self._improved = answer.values, True
