"""A small model's stages: no stage starves, and what is open is asked for again while time is left."""

from collections.abc import Callable, Sequence
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.session import LARGE, SessionResult, StageObjective, solve_stages

LENGTH = 6


class StatusReporter:
    """A solver that answers by ``tell``; every question takes ``takes_s``."""

    def __init__(self, tell: Callable[[ModelSpec], SpecAnswer], takes_s: float = 0.1) -> None:
        self.tell = tell
        self.takes_s = takes_s
        self.now = 0.0
        self.seconds: list[float] = []

    def clock(self) -> float:
        return self.now

    def solve(
        self, spec: ModelSpec, parameters: SolverParameters, deadline_s: float, **callbacks: object
    ) -> SpecAnswer:
        del parameters, callbacks
        self.seconds.append(deadline_s - self.now)
        self.now += self.takes_s
        return self.tell(spec)


def triple(more: int = 0) -> ModelSpec:
    """x + y + z >= 7 and 2 x + y >= 5, all in 0..LENGTH-1; ``more`` variables that do nothing."""
    spec = ModelSpec()
    x, y, z = (spec.int_var(0, LENGTH - 1) for _ in range(3))
    spec.add_ge([(1, x), (1, y), (1, z)], 7, family="f")
    spec.add_ge([(2, x), (1, y)], 5, family="f")
    for _ in range(more):
        spec.bool_var()
    return spec


WORST = np.array([5, 5, 5])
X = StageObjective("x", ((1, 0),), share=1.0)
YZ = StageObjective("yz", ((1, 1), (3, 2)), share=99.0)


def nothing(_spec: ModelSpec) -> SpecAnswer:
    return SpecAnswer("unknown", bound=None)


def every(spec: ModelSpec) -> list[Ints]:
    return [v for v in map(np.array, product(range(LENGTH), repeat=3)) if spec.check(v) is None]


def best(spec: ModelSpec) -> SpecAnswer:
    found = min(every(spec), key=spec.objective_of)
    return SpecAnswer("optimal", found, spec.objective_of(found), spec.objective_of(found))


def run(
    solver: StatusReporter,
    stages: Sequence[StageObjective] = (X, YZ),
    *,
    seconds: float = 1.0,
    rounds: int = 1,
    spec: ModelSpec | None = None,
) -> SessionResult:
    spec = spec or triple()
    hint = np.concatenate([WORST, np.zeros(spec.size[0] - 3, dtype=np.int64)])
    return solve_stages(
        solver, spec, stages, hint, solver.now + seconds, SolverParameters(), clock=solver.clock, rounds=rounds
    )


def test_a_stage_with_a_small_share_has_time_for_a_proof() -> None:
    solver = StatusReporter(nothing)
    run(solver)
    assert solver.seconds == pytest.approx([0.2, 0.9])


def test_a_stage_leaves_the_later_ones_as_much_as_it_takes() -> None:
    solver = StatusReporter(nothing, takes_s=0.05)
    run(solver, seconds=0.2)
    assert solver.seconds == pytest.approx([0.1, 0.15])


def test_a_large_model_keeps_to_the_shares() -> None:
    solver = StatusReporter(nothing)
    run(solver, seconds=100.0, spec=triple(LARGE))
    assert solver.seconds[0] == pytest.approx(0.25)  # a hundredth of the time, a quarter of that for the folded model


def test_what_is_open_is_asked_for_again_with_all_the_time() -> None:
    answers = [nothing, best, best, best]
    solver = StatusReporter(lambda spec: answers.pop(0)(spec))
    result = run(solver, rounds=3)
    assert solver.seconds == pytest.approx([0.2, 0.9, 0.8, 0.7])
    assert [(stage.value, stage.optimal) for stage in result.stages] == [(0, True), (11, True)]


def test_what_is_proven_is_not_asked_for_again() -> None:
    answers = [best, nothing, nothing, best]
    solver = StatusReporter(lambda spec: answers.pop(0)(spec))
    result = run(solver, rounds=9)
    assert not answers
    assert [(stage.value, stage.optimal) for stage in result.stages] == [(0, True), (11, True)]


@pytest.mark.parametrize(("rounds", "seconds", "more", "asked"), [(3, 1.0, 0, 6), (3, 0.2, 0, 2), (3, 99.0, LARGE, 4)])
def test_rounds_end(rounds: int, seconds: float, more: int, asked: int) -> None:
    """After so many, with the time, and after one where the model is large (whose folded model is asked as well)."""
    solver = StatusReporter(nothing)
    run(solver, rounds=rounds, seconds=seconds, spec=triple(more))
    assert len(solver.seconds) == asked


def test_a_failing_solver_is_not_asked_again() -> None:
    solver = StatusReporter(lambda _: SpecAnswer("unknown", bound=None, error="it crashed"))
    run(solver, rounds=3)
    assert len(solver.seconds) == 2


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    data=st.data(),
    terms=st.lists(st.tuples(*[st.integers(-3, 3)] * 3).filter(any), min_size=2, max_size=4),
    rounds=st.integers(1, 4),
)
def test_no_bound_is_above_what_can_be_reached(
    data: st.DataObject, terms: list[tuple[int, int, int]], rounds: int
) -> None:
    """Whatever a solver knows and when, as long as what it says is true."""

    def some(spec: ModelSpec) -> SpecAnswer:
        known = every(spec)
        found = data.draw(st.sampled_from([None, *known]))
        bound = min(map(spec.objective_of, known)) - data.draw(st.integers(0, 2))
        if found is None:
            return SpecAnswer("unknown", bound=bound)
        return SpecAnswer("feasible", found, spec.objective_of(found), bound)

    stages = [StageObjective(f"s{n}", tuple(zip(of, range(3), strict=True))) for n, of in enumerate(terms)]
    result = run(StatusReporter(some, takes_s=0.01), stages, rounds=rounds)
    left = every(triple())
    for stage, told in zip(stages, result.stages, strict=True):
        assert told.value is not None
        least = min(map(stage.value_of, left))
        assert told.bound <= least <= told.value
        assert told.optimal <= (told.value == least)
        left = [values for values in left if stage.value_of(values) <= told.value]
