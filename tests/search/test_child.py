"""The child with the real solver."""

import math
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import numpy as np
import pytest

from kai_solver.domain import CpSatValue
from kai_solver.errors import InternalError
from kai_solver.model.spec import ModelSpec, negate
from kai_solver.search.child import SolverChild
from kai_solver.search.parameters import PRESOLVE_PROFILES, SolverParameters

PARAMETERS = SolverParameters(workers=2)


def soon(seconds: float = 20.0) -> float:
    return time.monotonic() + seconds


def knapsack() -> ModelSpec:
    """Best is x = 3, y = 1: objective 5 - 3 * 3 - 5 * 1 = -9."""
    spec = ModelSpec()
    x, y = spec.int_var(0, 9, "x"), spec.bool_var("y")
    spec.add_le([(2, x), (3, y)], 9, family="capacity")
    spec.minimize([(-3, x), (-5, y)], constant=5)
    return spec


def market_split(constant: int = 0, seed: int = 3, rows: int = 5, columns: int = 40) -> ModelSpec:
    """Equations that random Booleans can hardly meet: solutions are found at once, a proof is not."""
    rng = np.random.default_rng(seed)
    weights = rng.integers(1, 100, (rows, columns))
    spec = ModelSpec()
    x = spec.bool_vars(columns)
    over, under = spec.int_vars(0, [5000] * rows), spec.int_vars(0, [5000] * rows)
    for k in range(rows):
        terms = [*zip(weights[k].tolist(), x.tolist(), strict=True), (-1, int(over[k])), (1, int(under[k]))]
        spec.add_eq(terms, int(weights[k].sum()) // 2, family="equation")
    spec.minimize([(1, int(v)) for v in (*over, *under)], constant)
    return spec


@pytest.fixture(scope="module")
def child() -> Iterator[SolverChild]:
    with SolverChild(grace_s=10.0) as solver:  # no test fails because the machine is slow
        yield solver


def test_the_optimum_comes_with_its_proof(child: SolverChild) -> None:
    answer = child.solve(knapsack(), PARAMETERS, soon())
    assert (answer.status, answer.objective, answer.bound, answer.error) == ("optimal", -9, -9, "")
    assert answer.values is not None
    assert answer.values.tolist() == [3, 1]
    assert answer.incumbents >= 1
    assert answer.first_s is not None
    assert answer.wall_s >= answer.first_s


def test_the_constant_counts_in_objective_and_bound(child: SolverChild) -> None:
    spec = ModelSpec()
    spec.minimize([(4, negate(spec.bool_var()))], constant=1000)
    answer = child.solve(spec, PARAMETERS, soon())
    assert (answer.objective, answer.bound) == (1000, 1000)


def test_numpy_integers_are_as_good_as_python_s(child: SolverChild) -> None:
    spec = ModelSpec()
    x = spec.int_vars(np.int64(0), np.array([4, 5]))
    spec.add_le(zip(np.array([1, 1]), x, strict=True), np.int64(6), family="f")  # type: ignore[arg-type]
    spec.minimize(zip(np.array([-1, -1]), x, strict=True), np.int64(6))  # type: ignore[arg-type]
    assert child.solve(spec, PARAMETERS, soon()).objective == 0


def test_a_model_without_objective_is_optimal_when_it_is_feasible(child: SolverChild) -> None:
    spec = ModelSpec()
    a, b = spec.bool_var(), spec.bool_var()
    spec.exactly_one([a, b], family="f")
    spec.implication(a, b, family="f")
    answer = child.solve(spec, PARAMETERS, soon())
    assert answer.status == "optimal"
    assert answer.values is not None
    assert answer.values.tolist() == [0, 1]


def test_infeasible_is_said(child: SolverChild) -> None:
    spec = ModelSpec()
    a, b = spec.bool_var(), spec.bool_var()
    spec.add_ge([(1, a), (1, b)], 2, family="f")
    spec.at_most_one([a, b], family="f")
    answer = child.solve(spec, PARAMETERS, soon())
    assert (answer.status, answer.values, answer.bound, answer.error) == ("infeasible", None, None, "")


@pytest.mark.parametrize("presolve", PRESOLVE_PROFILES)
def test_every_kind_of_row_means_to_cp_sat_what_it_means_to_check(child: SolverChild, presolve: str) -> None:
    """Exhaustive optimum over all Booleans against CP-SAT's, on random rows of all kinds."""
    parameters = SolverParameters(workers=1, presolve=presolve)  # type: ignore[arg-type]
    for seed in range(12):
        spec, rng = ModelSpec(), np.random.default_rng(seed)
        spec.bool_vars(6)

        def literals(count: int, rng: np.random.Generator = rng) -> list[int]:
            return [int(v) for v in rng.permutation(6)[:count] - 6 * rng.integers(0, 2, count)]

        spec.add(list(zip([3, -2, 4, 3], [*literals(3), 1], strict=True)), -1, 5, family="l", only_if=literals(1))
        spec.add_rows([3, 6], literals(3) + literals(3), [1, 2, 3, -1, 2, 1], [-2, -3], [4, 2], family="b")
        spec.at_most_one(literals(3), family="a")
        spec.bool_or(literals(2), family="o", only_if=literals(2))
        spec.exactly_one(literals(3), family="e")
        spec.minimize(list(zip([3, -5, 2, -4], literals(4), strict=True)))
        vectors = [np.array(list(np.binary_repr(code, 6)), np.int64) for code in range(64)]
        best = min((spec.objective_of(v) for v in vectors if spec.check(v) is None), default=None)
        answer = child.solve(spec, parameters, soon())
        assert answer.error == ""
        assert answer.objective == best, seed
        assert answer.status == ("infeasible" if best is None else "optimal")


@pytest.mark.slow
def test_solutions_and_bounds_stream_and_improve(child: SolverChild) -> None:
    seen: list[int] = []
    bounds: list[int] = []
    spec = market_split()
    answer = child.solve(
        spec, PARAMETERS, soon(0.8), on_incumbent=lambda _, objective: seen.append(objective), on_bound=bounds.append
    )
    assert answer.status == "feasible"
    assert seen == sorted(seen, reverse=True)
    assert bounds == sorted(bounds)
    assert seen[-1] == answer.objective
    assert answer.values is not None
    assert spec.check(answer.values) is None


def test_the_deadline_holds() -> None:
    """It comes with the first solution, however long that took; a proof would take years."""
    ahead_s, limit_s = 0.0, 600.0

    def found(_values: object, _objective: int) -> None:
        nonlocal ahead_s
        ahead_s = limit_s

    with SolverChild(grace_s=60.0, clock=lambda: time.monotonic() + ahead_s) as child:
        assert child.wait(60.0)
        answer = child.solve(market_split(), PARAMETERS, soon(limit_s), on_incumbent=found)
    assert answer.error == ""
    assert answer.status == "feasible"


def test_a_deadline_in_the_past_asks_nothing(child: SolverChild) -> None:
    child.solve(knapsack(), PARAMETERS, soon())
    answer = child.solve(knapsack(), PARAMETERS, time.monotonic() - 1)
    assert (answer.status, answer.error) == ("unknown", "")
    assert answer.bound == -27


def test_should_stop_ends_the_search_with_the_best_so_far(child: SolverChild) -> None:
    found: list[int] = []
    answer = child.solve(
        market_split(), PARAMETERS, math.inf, on_incumbent=lambda _, o: found.append(o), should_stop=lambda: bool(found)
    )
    assert answer.status == "feasible"
    assert answer.error == ""


def test_a_hint_is_found_again(child: SolverChild) -> None:
    spec = knapsack()
    spec.hint([3, 1])
    first: list[int] = []
    answer = child.solve(spec, PARAMETERS, soon(), on_incumbent=lambda _, o: first.append(o))
    assert first == [-9]
    assert answer.status == "optimal"


def test_a_gap_of_the_whole_objective_may_stop_the_search_and_is_not_called_optimal(child: SolverChild) -> None:
    answer = child.solve(market_split(constant=100_000), SolverParameters(relative_gap=0.5), soon(60))
    assert answer.status == "feasible"
    assert answer.wall_s < 30
    assert answer.objective is not None
    assert answer.bound is not None
    assert 100_000 <= answer.bound < answer.objective


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2])
def test_deterministic_parameters_give_the_same_objective_and_bound(child: SolverChild, workers: int) -> None:
    parameters = SolverParameters(workers=workers, interleave=workers > 1, deterministic_s=0.3, seed=7)
    runs = [child.solve(market_split(), parameters, math.inf) for _ in range(2)]
    assert runs[0].objective is not None
    assert (runs[0].objective, runs[0].bound) == (runs[1].objective, runs[1].bound)
    assert all(run.deterministic_s >= 0.25 for run in runs)


def test_an_overflowing_model_is_an_error_and_not_a_crash(child: SolverChild) -> None:
    spec = ModelSpec()
    x = spec.int_var(-(2**61), 2**61)
    spec.add_le([(2**40, x)], 5, family="f")
    answer = child.solve(spec, PARAMETERS, soon())
    assert answer.status == "unknown"
    assert "refuses the model" in answer.error
    assert child.solve(knapsack(), PARAMETERS, soon()).status == "optimal"


def test_a_model_with_a_loose_reference_is_our_own_error(child: SolverChild) -> None:
    spec = ModelSpec()
    spec.add_le([(1, 3)], 0, family="f")
    with pytest.raises(InternalError):
        child.solve(spec, PARAMETERS, soon())


def test_an_interrupt_in_a_callback_passes_and_the_next_question_is_answered() -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with SolverChild() as solver:
        with pytest.raises(KeyboardInterrupt):
            solver.solve(market_split(), PARAMETERS, soon(), on_incumbent=interrupt)
        assert solver.solve(knapsack(), PARAMETERS, soon()).status == "optimal"


def test_memory_and_version_are_reported(child: SolverChild) -> None:
    child.solve(knapsack(), PARAMETERS, soon())
    assert 10 < child.peak_rss_mib < 1000
    assert child.ortools_version.startswith("9.")


def test_a_child_that_was_waited_for_can_be_asked_at_once() -> None:
    with SolverChild() as solver:
        assert solver.wait(60)
        assert solver.ortools_version.startswith("9.")


def test_a_closed_child_starts_again_when_asked() -> None:
    solver = SolverChild()
    solver.warm()
    solver.close()
    try:
        assert solver.solve(knapsack(), PARAMETERS, soon()).status == "optimal"
    finally:
        solver.close()


def test_the_child_ignores_an_interrupt_meant_for_the_parent() -> None:
    with SolverChild() as solver:
        solver.solve(knapsack(), PARAMETERS, soon())
        assert solver._channel is not None
        os.kill(solver._channel.pid, signal.SIGINT)
        assert solver.solve(knapsack(), PARAMETERS, soon()).status == "optimal"


def test_the_child_ends_with_its_parent() -> None:
    program = (
        "import math, sys, threading\n"
        "from kai_solver.search.child import SolverChild\n"
        "child = SolverChild()\n"
        "child.warm()\n"
        "child._await_ready(child._channel, math.inf, lambda: False)\n"
        "print(child._channel.pid, flush=True)\n"
        "threading.Event().wait()\n"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild = int(parent.stdout.readline())
        assert is_alive(grandchild)
        parent.kill()
    wait_until_gone = soon(10)
    while is_alive(grandchild) and time.monotonic() < wait_until_gone:
        time.sleep(0.02)
    assert not is_alive(grandchild)


def is_alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 - one line of the kernel's
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_parent_never_imports_ortools() -> None:
    program = "import sys, kai_solver.search.session; assert not any(m.startswith('ortools') for m in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


SCIP = SolverParameters(engine="scip")


def mixed(seed: int) -> ModelSpec:
    """Random rows of every kind, with negations and guards."""
    rng = np.random.default_rng(seed)
    spec = ModelSpec()
    bits, counts = spec.bool_vars(6).tolist(), spec.int_vars(0, [3, 4, 5]).tolist()

    def literal() -> int:
        chosen = int(rng.choice(bits))
        return chosen if rng.random() < 0.5 else negate(chosen)

    for _ in range(8):
        terms = [(int(rng.integers(-4, 5)), literal()) for _ in range(3)]
        terms += [(int(rng.integers(-3, 4)), int(rng.choice(counts)))]
        guards = [literal() for _ in range(int(rng.integers(0, 3)))]
        low, high = int(rng.integers(-9, 0)), int(rng.integers(0, 9))
        spec.add(terms, low if rng.random() < 0.5 else None, high, family="linear", only_if=guards)
    spec.bool_or([literal(), literal()], family="clause", only_if=[literal()])
    spec.at_most_one(bits[:3], family="clause")
    spec.exactly_one([bits[3], negate(bits[4])], family="clause")
    spec.minimize([(int(rng.integers(-5, 6)), v) for v in (*bits, *counts)], constant=7)
    return spec


@pytest.mark.parametrize("seed", range(25))
def test_both_engines_have_the_same_optimum(child: SolverChild, seed: int) -> None:
    spec = mixed(seed)
    ours, theirs = (child.solve(spec, parameters, soon()) for parameters in (PARAMETERS, SCIP))
    assert theirs.error == ""
    if ours.status == "infeasible":
        assert theirs.status == "unknown"  # of floating point we believe what can be checked
    else:
        assert (theirs.status, theirs.objective, theirs.bound) == ("optimal", ours.objective, ours.objective)


@pytest.mark.slow
def test_the_other_engine_ends_in_time_with_no_less_than_its_hint(child: SolverChild) -> None:
    spec = market_split(rows=8, columns=60)
    halves = np.asarray(spec.rows.high)
    spec.hint(np.concatenate((np.zeros(60 + 8, np.int64), halves)))
    assert spec.complete_hint is not None
    assert spec.check(spec.complete_hint) is None
    answer = child.solve(spec, SCIP, soon(2.0))
    assert answer.error == ""
    assert answer.objective is not None
    assert answer.objective <= int(halves.sum())
    assert answer.status == "feasible"


def test_parameters_of_the_model_reach_the_solver(child: SolverChild) -> None:
    given: dict[str, CpSatValue] = {"ignore_subsolvers": ["no_lp"], "search_branching": 2, "linearization_level": 2}
    answer = child.solve(knapsack(), SolverParameters(given=given), soon())
    assert (answer.status, answer.error) == ("optimal", "")


def test_a_parameter_out_of_its_range_is_named_in_the_answer(child: SolverChild) -> None:
    answer = child.solve(knapsack(), SolverParameters(given={"linearization_level": -4}), soon())
    assert answer.status != "optimal"
    assert "linearization_level" in answer.error
