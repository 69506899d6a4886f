"""Logs of CP-SAT of OR-tools 9.15 as it wrote them (``logs``), and of the one that is installed."""

from pathlib import Path

import pytest

from kai_solver.search.child import SolverChild
from kai_solver.search.parameters import SolverParameters
from kai_solver.search.solver_log import LogReader
from tests.search.test_child import knapsack, market_split, soon

LOGS = Path(__file__).parent / "logs"


def read(name: str) -> LogReader:
    reader = LogReader()
    reader.feed((LOGS / name).read_text())
    return reader


def test_size_after_presolve_and_begin_of_the_search() -> None:
    reader = read("searched.txt")
    assert (reader.presolved_variables, reader.presolved_constraints) == (225, 38 + 3 + 6)
    assert (reader.search_began_s, reader.found_by) == (0.01, "default_lp")
    assert reader.ended_s == pytest.approx(2.58547)


def test_each_solution_and_bound_has_its_subsolver_when_it_comes() -> None:
    """Line by line; statistics that follow the search change nothing."""
    reader, found = LogReader(), []
    for line in (LOGS / "searched.txt").read_text().splitlines():
        reader.feed(line)
        if line.startswith("#") and line[1].isdigit():
            found.append(reader.found_by)
    first, last = ["fj_restart", *["default_lp"] * 4], ["rnd_cst_lns", "default_lp", "default_lp", "graph_var_lns"]
    assert found == first + last


def test_a_model_that_presolve_closed() -> None:
    reader = read("nothing_left.txt")
    assert (reader.presolved_variables, reader.presolved_constraints, reader.found_by) == (0, 0, "default_lp")


def test_where_no_search_began_presolve_took_all() -> None:
    reader = read("infeasible.txt")
    assert (reader.search_began_s, reader.found_by) == (None, "")
    assert reader.ended_s is not None
    assert 0 < reader.ended_s < 0.01
    assert reader.asked_model(2, 1, 5.0).presolve_s == reader.ended_s


def test_a_log_that_breaks_off_in_presolve_was_presolve_to_its_end() -> None:
    reader = LogReader()
    reader.feed("\nStarting CP-SAT solver v9.15.6755\nStarting presolve at 0.00s\n")
    model = reader.asked_model(100, 50, 0.7)
    assert (model.presolved_variables, model.presolve_s) == (0, 0.7)


def test_thousands_are_read() -> None:
    reader = LogReader()
    reader.feed("Presolved optimization model '': (x)\n#Variables: 12'345 (#bools: 1)\n#kLinear2: 1'000\n#kBoolOr: 7\n")
    assert (reader.presolved_variables, reader.presolved_constraints) == (12_345, 1_007)


def test_the_installed_solver_writes_such_a_log() -> None:
    found: list[tuple[str, str]] = []
    spec = market_split()
    with SolverChild(grace_s=10.0, reads_log=True) as child:
        child.solve(
            spec,
            SolverParameters(workers=2),
            soon(2.0),
            on_incumbent=lambda _values, _objective: found.append(("solution", child.found_by)),
            on_bound=lambda _bound: found.append(("bound", child.found_by)),
        )
        [model] = child.take_models()
        assert child.take_models() == []
        assert child.found_by == ""
        assert child.solve(knapsack(), SolverParameters(workers=1), soon()).objective == -9
        assert len(child.take_models()) == 1
    assert (model.variables, model.constraints) == spec.size
    assert model.presolved_variables > 0
    assert model.presolved_constraints > 0
    assert 0 < model.presolve_s < 2.0
    assert any(kind == "solution" for kind, _ in found)
    assert all(name and name[0].isalpha() for _, name in found), found


def test_without_asking_no_log_is_written() -> None:
    with SolverChild(grace_s=10.0) as child:
        assert child.solve(knapsack(), SolverParameters(workers=1), soon()).objective == -9
        assert child.take_models() == []
