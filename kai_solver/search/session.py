"""A session: objective stages over one model, in lexicographic order, each under its part of the budget.

A finished stage holds for the later ones as ``objective <= what was reached``, with a hint to its solution (an equality
hurts the search). The best solution lives here, not in the solver: what comes out is never worse, stage by stage, than
the hint that came in, and a stage that stays unknown costs the later ones nothing.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from kai_solver.model.folding import Folded, fold
from kai_solver.model.rows import NO_LOWER, Ints
from kai_solver.model.spec import ModelSpec, SpecAnswer, Term, Var
from kai_solver.search.child import OnBound, OnIncumbent
from kai_solver.search.parameters import SolverParameters

HELD_FAMILY = "stage"
"""Family of the rows that hold finished stages."""
SMALLEST_FOLD = 64
"""Variables below which a model is not folded: it is as fast itself."""
LARGE = 1_000
"""Variables from which a model is large."""

LEAST_ROUND_S = 0.05
"""Seconds for which stages are not gone through once more."""


@dataclass(frozen=True, slots=True)
class _Pace:
    """How the time of a stage is shared out.

    ``least_s``: seconds that a stage may use whatever its share is, as long as as much is left for the later ones.
    ``folded_part``: most of its time for its folded model, and for a solution that folds to that one's.
    ``hasty_s``: seconds less than which the whole model is not asked for: it would be late, and be killed for it.
    """

    least_s: float
    folded_part: float
    hasty_s: float


_SMALL_PACE, _LARGE_PACE = _Pace(0.2, 0.5, 0.0), _Pace(0.0, 0.25, 0.15)
"""A folded model of 200 variables is proven in 0.02 to 0.07 s. Where a rack is to be freed in 1 s, shares alone gave
it 0.01 s to count broken gangs and evicted pods: nothing was proven, and 0.4 s were left over (2026-11-22).
"""

Progress = Callable[[str, int | None, int | None], None]
"""Called with (stage, objective or None, bound or None) whenever one of them improves, and when the stage ends."""


class Solver(Protocol):
    """What answers: a `SolverChild`, or a stand-in."""

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
    ``gap`` is the relative gap at which it may stop; ``least`` a bound that is known from what the sum means.
    """

    name: str
    terms: tuple[Term, ...]
    constant: int = 0
    share: float = 1.0
    gap: float = 0.0
    least: int = NO_LOWER

    def value_of(self, values: Ints) -> int:
        """The sum at a solution."""
        return sum(coefficient * int(values[var]) for coefficient, var in self.terms) + self.constant


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
    apart: Iterable[Var] = (),
    known: Mapping[str, int] | None = None,
    rounds: int = 1,
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
    apart
        Variables that are never folded with others (`model.folding`).
    known
        Bounds of stages by name, each good for as long as the stages before it are at theirs: at these bounds, not at
        higher ones that are proven here.
    rounds
        How often the stages are gone through at most while some are open and time is left; a `LARGE` model's once.
    """
    session = _Session(solver, spec, hint, parameters, clock, progress, should_stop)
    session.known = known or {}
    session.fold(stages, apart)
    session.go_through(stages, deadline_s)
    for _ in range(1, rounds):
        if session.has_ended(deadline_s):
            break
        session.begin_again(stages)
        session.go_through(stages, deadline_s)
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
        self.known: Mapping[str, int] = {}
        self._solver = solver
        self._spec = spec.copy()
        self._parameters = parameters
        self._clock = clock
        self._progress = progress or (lambda _stage, _value, _bound: None)
        self._should_stop = should_stop
        self._values: Ints | None = None
        self._improved = False
        self._aggregated: Folded | None = None
        self._is_closed = self._is_at_known = True
        self._before: list[tuple[int, int | None]] = []
        self._is_as_before = True
        self._open: set[str] = set()
        self._pace = _LARGE_PACE if spec.size[0] >= LARGE else _SMALL_PACE
        self._bounds: list[int] = []
        self._reached: list[int | None] = []
        self._notes: list[str] = []
        self._errors: list[str] = []
        if hint is not None:
            self._accept_hint(hint)

    def fold(self, stages: Sequence[StageObjective], apart: Iterable[Var]) -> None:
        """Count together what all stages and rows treat equally, where that makes the model much smaller."""
        if self._spec.size[0] >= SMALLEST_FOLD:
            self._aggregated = fold(self._spec, [stage.terms for stage in stages], apart)

    def go_through(self, stages: Sequence[StageObjective], deadline_s: float) -> None:
        """Ask for all ``stages`` in order."""
        asked = self._open or {stage.name for stage in stages}
        for index, stage in enumerate(stages):
            if self.infeasible:
                break
            rest = [stage, *(later for later in stages[index + 1 :] if later.name in asked)]
            self.run(stage, _part(rest), _part(stages, index), deadline_s)

    def has_ended(self, deadline_s: float) -> bool:
        """True where another round would prove nothing: all is proven, or the time is over, or a stop was asked for."""
        is_stopped = self.infeasible or bool(self._errors) or (self._should_stop is not None and self._should_stop())
        is_over = self._clock() + LEAST_ROUND_S > deadline_s
        return self._is_closed or self._pace is _LARGE_PACE or is_stopped or is_over

    def begin_again(self, stages: Sequence[StageObjective]) -> None:
        """Let go of what held the stages; bounds are remembered, and the best solution. Open stages have the time."""
        results = zip(stages, self._bounds, self._reached, strict=True)
        self._open = {stage.name for stage, bound, value in results if value is None or bound < value}
        self._before = list(zip(self._bounds, self._reached, strict=True))
        self._bounds, self._reached = [], []
        self._is_closed = self._is_as_before = self._is_at_known = True
        self._spec = self._spec.without(HELD_FAMILY)
        if self._aggregated is not None:
            self._aggregated = replace(self._aggregated, spec=self._aggregated.spec.without(HELD_FAMILY))

    def run(self, stage: StageObjective, part_of_rest: float, part_of_all: float, deadline_s: float) -> None:
        """Ask for one stage, keep what is better, hold what was reached."""
        spec = self._spec
        spec.minimize(stage.terms, stage.constant)
        now = self._clock()
        left_s = deadline_s - now
        seconds = max(left_s * part_of_rest, min(self._pace.least_s, left_s / 2))
        stage_run = _StageRun(stage, now + seconds, max(part_of_all, 1e-6))
        bound = max(stage.least, spec.trivial_bound(), self._known(stage))
        if self._aggregated is not None and self._is_open(bound):
            bound = max(bound, self._ask_aggregated(self._aggregated, stage_run, bound))
        if self._is_open(bound) and not self.infeasible and stage_run.end_s - self._clock() > self._pace.hasty_s:
            bound = max(bound, self._ask_whole(stage_run, spec, bound))
        value = None if self._values is None else spec.objective_of(self._values)
        if value is not None and bound > value:
            self._notes.append(f"stage {stage.name}: a bound of {bound} above a solution of {value} is rejected")
            bound = max(stage.least, spec.trivial_bound())
        self._bounds.append(bound)
        self._remember(value)
        self._is_closed = self._is_closed and not self._is_open(bound)
        if stage.name in self.known:
            self._is_at_known = self._is_at_known and value is not None and value <= self.known[stage.name]
        self._progress(stage.name, value, bound)
        if value is not None:
            self._hold(stage, value - stage.constant)

    def _known(self, stage: StageObjective) -> int:
        """The bound of ``stage`` that is known before it is asked for."""
        number = len(self._bounds)
        is_known = self._is_closed and self._is_at_known and stage.name in self.known
        bounds = [self.known[stage.name]] if is_known else []
        bounds += [self._before[number][0]] if self._is_as_before and number < len(self._before) else []
        return max(bounds, default=NO_LOWER)

    def _remember(self, value: int | None) -> None:
        """Note what a stage reached. While that is no more than in an earlier round, bounds of then hold after it."""
        then = self._before[len(self._reached)][1] if len(self._reached) < len(self._before) else None
        self._is_as_before &= value is not None and then is not None and value <= then
        self._reached.append(value)

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

    def _is_open(self, bound: int) -> bool:
        return self._values is None or self._spec.objective_of(self._values) > bound

    def _hold(self, stage: StageObjective, most: int) -> None:
        self._spec.add_le(stage.terms, most, family=HELD_FAMILY)
        if self._aggregated is not None:
            self._aggregated.spec.add_le(self._aggregated.terms(stage.terms), most, family=HELD_FAMILY)

    def _ask_aggregated(self, folded: Folded, stage_run: "_StageRun", bound: int) -> int:
        """The bound of the folded model; where its solution is better than the best, look for one that folds to it."""
        stage = stage_run.stage
        folded.spec.minimize(folded.terms(stage.terms), stage.constant)
        folded.spec.hint(None if self._values is None else folded.values(self._values))
        answer = self._ask(stage_run, folded.spec, bound, self._pace.folded_part)
        self._note(stage, answer)
        bound = max(bound, bound if answer.bound is None else answer.bound)
        if answer.values is not None and self._is_open(answer.objective or 0):
            pinned = self._spec.copy()
            folded.pin(pinned, answer.values)
            self._accept(stage, self._ask(stage_run, pinned, bound, self._pace.folded_part))
        elif answer.status == "infeasible":
            self.infeasible = self._values is None
        return bound

    def _ask_whole(self, stage_run: "_StageRun", spec: ModelSpec, bound: int) -> int:
        spec.hint(self._values)
        answer = self._ask(stage_run, spec, bound, 1.0)
        self._accept(stage_run.stage, answer)
        if answer.status == "infeasible":
            self.infeasible = self._values is None
        return bound if answer.bound is None else answer.bound

    def _ask(self, stage_run: "_StageRun", spec: ModelSpec, known: int, part: float) -> SpecAnswer:
        """Ask about ``spec`` for a ``part`` of the time that the stage has left."""
        stage, now = stage_run.stage, self._clock()
        parameters = replace(
            self._parameters,
            relative_gap=stage.gap,
            deterministic_s=self._parameters.deterministic_s * stage_run.part_of_all * part,
        )
        best = [None if self._values is None else self._spec.objective_of(self._values)]
        bound = [known]

        def on_incumbent(_values: Ints, objective: int) -> None:
            if spec is self._spec and (best[0] is None or objective < best[0]):
                best[0] = objective
                self._progress(stage.name, objective, bound[0])

        def on_bound(better: int) -> None:
            if better > bound[0]:
                bound[0] = better
                self._progress(stage.name, best[0], better)

        return self._solver.solve(
            spec,
            parameters,
            now + (stage_run.end_s - now) * part,
            on_incumbent=on_incumbent,
            on_bound=on_bound,
            should_stop=self._should_stop,
        )

    def _accept(self, stage: StageObjective, answer: SpecAnswer) -> None:
        """Keep the answer's solution of the whole model where it is better."""
        self._note(stage, answer)
        if answer.values is None or answer.objective is None:
            return
        if self._values is None or answer.objective < self._spec.objective_of(self._values):
            self._values, self._improved = answer.values, True

    def _note(self, stage: StageObjective, answer: SpecAnswer) -> None:
        if answer.error:
            self._notes.append(f"stage {stage.name}: {answer.error}")
            self._errors.append(answer.error)


@dataclass(frozen=True, slots=True)
class _StageRun:
    """One stage's time: it ends at ``end_s``; ``part_of_all`` of the deterministic seconds are its own."""

    stage: StageObjective
    end_s: float
    part_of_all: float
