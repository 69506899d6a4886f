"""With what one cycle asks the solver: the model's parameters, a part of the time, the caller's patience."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from kai_solver.domain import SolverModel
from kai_solver.model.build import Formulation
from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.search.budget import Budget
from kai_solver.search.machine import slowness
from kai_solver.search.parameters import Presolve, SolverParameters
from kai_solver.search.session import Progress, SessionResult, Solver, StageObjective, solve_stages

HINT_S = 1.0
"""Longest time to complete the greedy's plan to values of all variables; 0.02 s on the bench instances (2026-11-21)."""


BUILD_S = 4e-5
"""Seconds a variable to build a model with nodes: 0.02 ms on loaded clusters of 500 and 1,000 nodes (2026-11-22), with
a margin. A budget is a promise, and nothing interrupts the building."""


def _never() -> bool:
    return False


@dataclass(frozen=True, slots=True)
class SolverClient:
    """Asks ``solver`` by the rules of ``model``, and charges ``budget`` with what it costs."""

    model: SolverModel
    solver: Solver
    budget: Budget
    seed: int = 0
    should_stop: Callable[[], bool] = _never

    @property
    def is_out_of_time(self) -> bool:
        """True where nothing can be asked any more."""
        return self.budget.left_s <= 0 or self.should_stop()

    def may_build(self, variables: int) -> bool:
        """Whether there is time to build a model of about so many ``variables``, and as much again to ask about it.

        Where deterministic seconds are counted, what it takes to build is charged as if it were such seconds.
        """
        seconds = BUILD_S * variables
        if self.is_out_of_time or self.budget.left_s < 2 * seconds:
            return False
        if self.model.search.deterministic:
            self.budget.spent_s += seconds
        return True

    def has_time_for(self, seconds: float, *, follows: bool = True) -> bool:
        """Whether a step can end in the time that is left.

        ``seconds``: as it takes where that was measured. ``follows``: it takes more or less as this machine does.
        """
        return self.model.search.deterministic or self.budget.left_s > seconds * (slowness() if follows else 1.0)

    def solve(
        self, spec: ModelSpec, seconds: float, *, gap: float = 0.0, presolve: Presolve | None = None
    ) -> SpecAnswer:
        """Ask one question, for at most ``seconds``; a solution may cost ``gap`` (relative) more than the best.

        ``presolve``: the profile; the model's where None.
        """
        limit_s = self.budget.limit_s(seconds)
        parameters = self._parameters(spec, seconds, gap)
        if presolve is not None:
            parameters = replace(parameters, presolve=presolve)
        answer = self.solver.solve(spec, parameters, limit_s, should_stop=self.should_stop)
        self.budget.charge(answer)
        return answer

    def cost_s(self, answer: SpecAnswer) -> float:
        """Seconds that ``answer`` took, deterministic ones where the model counts those."""
        return answer.deterministic_s if self.model.search.deterministic else answer.wall_s

    def complete(self, form: Formulation, main: Mapping[int, int]) -> Ints | None:
        """Values of all variables from those of the ``main`` ones; None where they are no solution."""
        spec = form.spec.pinned(main)
        if spec is None:
            return None
        low, high = spec.domains
        if (low == high).all():
            return low.copy() if spec.check(low) is None else None
        return self.solve(spec, HINT_S).values

    def minimize(
        self,
        form: Formulation,
        stages: Sequence[StageObjective],
        hint: Ints | None,
        progress: Progress | None = None,
        known: Mapping[str, int] | None = None,
        seconds: float = inf,
        rounds: int = 1,
    ) -> SessionResult:
        """Minimise ``stages`` one after the other, in ``seconds`` of what is left; ``known``: bounds of theirs.

        ``rounds``: as of `solve_stages`; one where deterministic seconds are counted, which are shared out in advance.
        """
        seconds = min(seconds, max(0.0, self.budget.left_s))
        result = solve_stages(
            self.solver,
            form.spec,
            stages,
            hint,
            self.budget.limit_s(seconds),
            self._parameters(form.spec, seconds),
            clock=self.budget.clock,
            apart=form.apart,
            known=known,
            rounds=1 if self.model.search.deterministic else rounds,
            progress=progress,
            should_stop=self.should_stop,
        )
        self.budget.blame(result.errors)
        return result

    def minimize_alone(self, spec: ModelSpec, stages: Sequence[StageObjective], seconds: float) -> SessionResult:
        """Minimise ``stages`` of a model of its own, in at most ``seconds``, by SCIP where time need not be counted."""
        parameters = self._parameters(spec, seconds)
        if not self.model.search.deterministic:
            parameters = replace(parameters, engine="scip")
        limit_s, clock = self.budget.limit_s(seconds), self.budget.clock
        result = solve_stages(
            self.solver, spec, stages, None, limit_s, parameters, clock=clock, should_stop=self.should_stop
        )
        self.budget.blame(result.errors)
        return result

    def _parameters(self, spec: ModelSpec, seconds: float, gap: float = 0.0) -> SolverParameters:
        variables, _ = spec.size
        return SolverParameters.choose(self.model.search, variables=variables, seed=self.seed, seconds=seconds, gap=gap)
