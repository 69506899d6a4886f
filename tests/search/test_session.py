"""Lexicographic stages: order, floor, budget, and what a failing stage costs."""

import math
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from kai_solver.model.rows import Ints
from kai_solver.model.spec import ModelSpec, SpecAnswer
from kai_solver.search.child import SolverChild
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.session import HELD_FAMILY, SessionResult, StageObjective, solve_stages

PARAMETERS = SolverParameters()


class Script:
    """A solver that answers from a list and remembers what it was asked; every question takes ``takes_s``."""

    def __init__(self, *answers: SpecAnswer, takes_s: float = 0.0) -> None:
        self.answers = list(answers)
        self.takes_s = takes_s
        self.now = 0.0
        self.deadlines: list[float] = []
        self.hints: list[list[int] | None] = []
        self.held: list[int] = []
        self.parameters: list[SolverParameters] = []

    def clock(self) -> float:
        return self.now

    def solve(
        self,
        spec: ModelSpec,
        parameters: SolverParameters,
        deadline_s: float,
        **callbacks: Callable[..., object] | None,
    ) -> SpecAnswer:
        self.deadlines.append(deadline_s)
        self.hints.append(None if spec.complete_hint is None else spec.complete_hint.tolist())
        self.held.append(spec.count(HELD_FAMILY))
        self.parameters.append(parameters)
        self.now += self.takes_s
        return self.answers.pop(0)


def square() -> ModelSpec:
    """x + y >= 4 with x and y in 0..9."""
    spec = ModelSpec()
    x, y = spec.int_var(0, 9), spec.int_var(0, 9)
    spec.add_ge([(1, x), (1, y)], 4, family="f")
    return spec


X = StageObjective("x", ((1, 0),))
Y = StageObjective("y", ((1, 1),))
SUM = StageObjective("sum", ((1, 0), (1, 1)))


def found(x: int, y: int, objective: int, bound: int) -> SpecAnswer:
    return SpecAnswer("optimal" if objective == bound else "feasible", np.array([x, y]), objective, bound)


UNKNOWN = SpecAnswer("unknown", bound=0, error="the solver process was ended by SIGSEGV")


def run(
    solver: Script, *stages: StageObjective, hint: Ints | None = None, parameters: SolverParameters = PARAMETERS
) -> SessionResult:
    return solve_stages(solver, square(), stages, hint, solver.now + 10.0, parameters, clock=solver.clock)


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild() as solver:
        yield solver


@pytest.mark.parametrize(
    ("stages", "expected"),
    [((SUM, X), [0, 4]), ((SUM, Y), [4, 0]), ((X, SUM), [0, 4]), ((Y, X), [4, 0])],
)
def test_the_real_solver_minimises_in_order(
    child: SolverChild, stages: tuple[StageObjective, ...], expected: list[int]
) -> None:
    result = solve_stages(child, square(), stages, None, time.monotonic() + 20, PARAMETERS, clock=time.monotonic)
    assert result.values is not None
    assert result.values.tolist() == expected
    assert all(stage.optimal for stage in result.stages)
    assert result.improved
    assert result.notes == ()


def test_a_later_stage_never_costs_an_earlier_one(child: SolverChild) -> None:
    stages = (StageObjective("first", ((3, 0), (1, 1))), StageObjective("second", ((-1, 0), (-1, 1)), constant=18))
    result = solve_stages(child, square(), stages, None, time.monotonic() + 20, PARAMETERS, clock=time.monotonic)
    assert [(stage.value, stage.bound) for stage in result.stages] == [(4, 4), (14, 14)]


def test_infeasible_ends_the_session(child: SolverChild) -> None:
    spec = square()
    spec.add_le([(1, 0), (1, 1)], 3, family="g")
    result = solve_stages(child, spec, (X, Y), None, time.monotonic() + 20, PARAMETERS, clock=time.monotonic)
    assert result.infeasible
    assert result.values is None
    assert [stage.name for stage in result.stages] == ["x"]


def test_the_model_is_not_changed(child: SolverChild) -> None:
    spec = square()
    before = spec.wire()
    solve_stages(child, spec, (SUM, X), None, time.monotonic() + 20, PARAMETERS, clock=time.monotonic)
    assert spec.wire() == before


def test_a_stage_at_its_trivial_bound_is_not_asked_but_holds() -> None:
    solver = Script(found(0, 4, 4, 4))
    result = run(solver, X, Y, hint=np.array([0, 5]))
    assert [(s.name, s.value, s.bound, s.optimal) for s in result.stages] == [("x", 0, 0, True), ("y", 4, 4, True)]
    assert solver.held == [1]
    assert solver.hints == [[0, 5]]


def test_the_hint_is_the_floor_when_every_stage_is_unknown() -> None:
    result = run(Script(UNKNOWN, UNKNOWN), X, Y, hint=np.array([2, 3]))
    assert result.values is not None
    assert result.values.tolist() == [2, 3]
    assert not result.improved
    assert [(s.value, s.bound, s.optimal) for s in result.stages] == [(2, 0, False), (3, 0, False)]
    assert len(result.notes) == 2
    assert "SIGSEGV" in result.notes[0]


def test_an_unknown_stage_does_not_lose_the_later_ones() -> None:
    result = run(Script(UNKNOWN, found(2, 2, 2, 2)), X, Y, hint=np.array([2, 3]))
    assert result.values is not None
    assert result.values.tolist() == [2, 2]
    assert [s.optimal for s in result.stages] == [False, True]


def test_without_any_solution_a_later_stage_may_find_the_first() -> None:
    solver = Script(UNKNOWN, found(4, 0, 0, 0))
    result = run(solver, X, Y)
    assert solver.held == [0, 0]
    assert [(s.name, s.value) for s in result.stages] == [("x", 4), ("y", 0)]
    assert result.improved


def test_a_worse_answer_is_not_taken() -> None:
    result = run(Script(found(3, 1, 3, 0)), X, hint=np.array([2, 3]))
    assert result.values is not None
    assert result.values.tolist() == [2, 3]
    assert not result.improved


def test_a_bound_above_a_known_solution_is_not_believed() -> None:
    result = run(Script(found(3, 4, 7, 7)), SUM, hint=np.array([2, 2]))
    assert (result.stages[0].value, result.stages[0].bound, result.stages[0].optimal) == (4, 0, False)
    assert any("is rejected" in note for note in result.notes)


def test_an_equal_answer_keeps_the_hint_and_brings_the_proof() -> None:
    result = run(Script(found(3, 1, 4, 4)), SUM, hint=np.array([2, 2]))
    assert result.values is not None
    assert result.values.tolist() == [2, 2]
    assert result.stages[0].optimal


def test_a_known_bound_closes_a_stage_where_those_before_are_at_theirs() -> None:
    solver, known, hint = Script(), {"sum": 4, "x": 2}, np.array([2, 2])
    result = solve_stages(solver, square(), (SUM, X), hint, 10.0, PARAMETERS, clock=solver.clock, known=known)
    assert [(s.value, s.bound) for s in result.stages] == [(4, 4), (2, 2)]
    assert solver.hints == []


def test_a_known_bound_says_nothing_where_those_before_are_proven_above_theirs() -> None:
    """That x is at least 2 where the sum is at most 3 is no bound where the sum is 4."""
    solver, known, hint = Script(found(2, 2, 4, 4), found(0, 4, 0, 0)), {"sum": 3, "x": 2}, np.array([2, 2])
    result = solve_stages(solver, square(), (SUM, X), hint, 10.0, PARAMETERS, clock=solver.clock, known=known)
    assert [(s.value, s.bound) for s in result.stages] == [(4, 4), (0, 0)]


def test_a_hint_that_is_no_solution_is_set_aside_with_a_note() -> None:
    solver = Script(found(0, 4, 4, 4))
    result = run(solver, SUM, hint=np.array([1, 1]))
    assert solver.hints == [None]
    assert "hint is not a solution" in result.notes[0]
    assert result.values is not None


def test_the_budget_is_divided_by_share_and_what_is_left_goes_on() -> None:
    solver = Script(found(3, 3, 6, 0), found(3, 3, 3, 0), found(3, 3, 3, 0), takes_s=1.0)
    stages = (
        StageObjective("sum", SUM.terms, share=2.0),
        StageObjective("x", X.terms, share=1.0),
        StageObjective("y", Y.terms, share=1.0),
    )
    run(solver, *stages, hint=np.array([5, 5]))
    assert solver.deadlines == pytest.approx([5.0, 5.5, 10.0])


def test_a_stage_that_overruns_leaves_the_later_ones_their_parts_of_the_rest() -> None:
    solver = Script(UNKNOWN, UNKNOWN, UNKNOWN, takes_s=4.0)
    run(solver, SUM, X, Y, hint=np.array([5, 5]))
    assert solver.deadlines == pytest.approx([10 / 3, 4 + 6 / 2, 10.0])


def test_deterministic_time_and_gap_are_divided_too() -> None:
    solver = Script(UNKNOWN, UNKNOWN)
    stages = (StageObjective("x", X.terms, share=3.0, gap=0.1), StageObjective("y", Y.terms, share=1.0))
    run(solver, *stages, hint=np.array([5, 5]), parameters=SolverParameters(deterministic_s=8.0))
    assert [p.deterministic_s for p in solver.parameters] == [6.0, 2.0]
    assert [p.relative_gap for p in solver.parameters] == [0.1, 0.0]


def test_without_a_deterministic_limit_there_is_none_per_stage() -> None:
    solver = Script(UNKNOWN)
    run(solver, X, hint=np.array([5, 5]))
    assert solver.parameters[0].deterministic_s == math.inf


def test_progress_names_the_stage(child: SolverChild) -> None:
    seen: list[tuple[str, int | None, int]] = []
    solve_stages(
        child,
        square(),
        (SUM, X),
        np.array([9, 9]),
        time.monotonic() + 20,
        PARAMETERS,
        clock=time.monotonic,
        progress=lambda *what: seen.append(what),
    )
    assert {name for name, _, _ in seen} == {"sum", "x"}
    assert ("sum", 4) in {(name, value) for name, value, _ in seen}


def test_a_session_under_a_killed_solver_returns_the_hint_with_its_error() -> None:
    with SolverChild(["/nowhere/solver"]) as broken:
        result = solve_stages(
            broken, square(), (SUM, X), np.array([5, 5]), time.monotonic() + 5, PARAMETERS, clock=time.monotonic
        )
    assert result.values is not None
    assert result.values.tolist() == [5, 5]
    assert all("cannot be started" in note for note in result.notes)


def racks(count: int) -> tuple[ModelSpec, StageObjective, Ints]:
    """``count`` nodes of 8, each with 8 jobs; half must be emptied for a job of 8. Cost: jobs that leave."""
    spec = ModelSpec()
    places, leaves = spec.bool_vars(count), spec.int_vars(np.zeros(count), np.full(count, 8))
    for place, leave in zip(places.tolist(), leaves.tolist(), strict=True):
        spec.add_ge([(1, leave), (-8, place)], 0, family="capacity")
    spec.add_eq([(1, place) for place in places.tolist()], count // 2, family="gang")
    stage = StageObjective("leave", tuple((1, leave) for leave in leaves.tolist()))
    everybody = np.concatenate((np.arange(count) % 2, np.full(count, 8)))
    return spec, stage, everybody


def test_a_folded_model_is_asked_first_and_its_bound_is_the_stages() -> None:
    spec, stage, hint = racks(64)
    hint[64:] = 8 * hint[:64]
    solver = Script(SpecAnswer("optimal", np.array([32, 256]), 256, 256))
    result = solve_stages(solver, spec, (stage,), hint, 10.0, PARAMETERS, clock=solver.clock)
    assert [(s.value, s.bound, s.optimal) for s in result.stages] == [(256, 256, True)]
    assert not result.improved


def test_a_better_folded_solution_is_looked_for_in_the_whole_model(child: SolverChild) -> None:
    spec, stage, hint = racks(400)
    result = solve_stages(child, spec, (stage,), hint, time.monotonic() + 20, PARAMETERS, clock=time.monotonic)
    assert [(s.value, s.bound, s.optimal) for s in result.stages] == [(1600, 1600, True)]
    assert result.values is not None
    assert spec.check(result.values) is None


def test_a_folded_solution_that_the_whole_model_has_not_is_only_a_bound(child: SolverChild) -> None:
    """Nodes of 8 with jobs of 3: folded, 64 nodes have room for 170 of them; one by one for 128."""
    spec = ModelSpec()
    room = spec.int_vars(np.zeros(64), np.full(64, 3))
    extra = spec.bool_vars(64)
    for place, beside in zip(room.tolist(), extra.tolist(), strict=True):
        spec.add_le([(3, place), (1, beside)], 8, family="capacity")
    stage = StageObjective("left", tuple((-1, place) for place in room.tolist()), constant=200)
    result = solve_stages(child, spec, (stage,), None, time.monotonic() + 20, PARAMETERS, clock=time.monotonic)
    assert [(s.value, s.optimal) for s in result.stages] == [(72, True)]


def test_a_folded_model_without_a_solution_ends_the_session() -> None:
    spec, stage, _ = racks(64)
    solver = Script(SpecAnswer("infeasible"))
    result = solve_stages(solver, spec, (stage,), None, 10.0, PARAMETERS, clock=solver.clock)
    assert result.infeasible


def test_a_known_bound_proves_without_a_question() -> None:
    solver = Script()
    result = solve_stages(
        solver, square(), (SUM, X), np.array([0, 4]), 10.0, PARAMETERS, clock=solver.clock, known={"sum": 4}
    )
    assert [(s.value, s.bound, s.optimal) for s in result.stages] == [(4, 4, True), (0, 0, True)]


def test_a_known_bound_is_good_only_while_earlier_stages_are_at_theirs() -> None:
    solver = Script(found(5, 0, 5, 4), found(0, 5, 5, 0))
    stages = (SUM, StageObjective("y", ((-1, 1),), constant=9))
    result = solve_stages(
        solver, square(), stages, np.array([5, 0]), 10.0, PARAMETERS, clock=solver.clock, known={"sum": 4, "y": 5}
    )
    assert [(s.value, s.bound) for s in result.stages] == [(5, 4), (4, 0)]


def test_what_a_sum_means_bounds_it_beyond_the_domains() -> None:
    solver = Script()
    difference = StageObjective("difference", ((1, 0), (-1, 1)), least=-4)
    result = solve_stages(solver, square(), (difference,), np.array([0, 4]), 10.0, PARAMETERS, clock=solver.clock)
    assert [(s.value, s.bound) for s in result.stages] == [(-4, -4)]
