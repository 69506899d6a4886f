"""Rows about whole blocks forbid no packing of whole blocks, and what a linear program would do by halves."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ortools.linear_solver import pywraplp  # type: ignore[import-untyped]

from kai_solver.domain import FAMILIES, Action
from kai_solver.instances_io.bench_schema import CliquesDoc
from kai_solver.lab.bench import generated
from kai_solver.model.blocks import Block, emptying, whole_blocks
from kai_solver.model.build import formulate
from kai_solver.model.families import topology
from kai_solver.model.rows import NO_LOWER, NO_UPPER
from kai_solver.model.spec import ModelSpec, Term
from kai_solver.planstate.allocation_units import AllocationUnits
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.state import State
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem import build_problem
from kai_solver.search.joint_input import JointModelInput


@given(st.integers(0, 24), st.lists(st.tuples(st.integers(1, 18), st.integers(1, 3)), min_size=1, max_size=4))
def test_whole_blocks_that_fit_break_no_row(room: int, kinds: list[tuple[int, int]]) -> None:
    blocks = [Block(size, var, most) for var, (size, most) in enumerate(kinds)]
    rows = list(whole_blocks(blocks, room))
    for counts in product(*(range(block.most + 1) for block in blocks)):
        if sum(block.size * count for block, count in zip(blocks, counts, strict=True)) <= room:
            assert all(sum(weight * counts[var] for weight, var in terms) <= most for terms, most in rows)


@given(st.integers(1, 24), st.integers(1, 18), st.integers(1, 18))
def test_what_stays_leaves_room_for_so_many_whole_blocks(room: int, come: int, stay: int) -> None:
    coming, staying = Block(come, 0, max(1, room // come)), Block(stay, 1, 1)
    rows = list(emptying([coming], [staying], room))
    for count, stays in product(range(coming.most + 1), (0, 1)):
        fits = count * come + stays * stay <= room
        if stay <= room and come <= room:
            assert fits == all(count * terms[0][0] + stays * terms[1][0] <= most for terms, most in rows)


def test_four_blocks_of_four_fill_a_rack_of_eighteen() -> None:
    blocks = [Block(4, 0, 9), Block(8, 1, 9), Block(18, 2, 9)]
    assert ([(1, 0), (2, 1), (4, 2)], 4) in list(whole_blocks(blocks, 18))


def test_where_sizes_divide_the_room_nothing_is_added() -> None:
    assert list(whole_blocks([Block(4, 0, 9), Block(8, 1, 9)], 16)) == []


def relaxed(spec: ModelSpec, terms: Sequence[Term]) -> float:
    """The least value of ``terms`` where variables may be parts of numbers."""
    solver = pywraplp.Solver.CreateSolver("GLOP")
    low, high = spec.domains
    var = [solver.NumVar(float(a), float(b), "") for a, b in zip(low.tolist(), high.tolist(), strict=True)]
    rows = spec.rows.without_negations()
    start = 0
    for low_end, high_end, end in zip(rows.low, rows.high, rows.term_end, strict=True):
        scale = max(map(abs, rows.coefficient[start:end]), default=1)  # memory is in bytes
        found = solver.Constraint(
            -solver.infinity() if low_end == NO_LOWER else low_end / scale,
            solver.infinity() if high_end == NO_UPPER else high_end / scale,
        )
        for at in range(start, end):
            found.SetCoefficient(var[rows.reference[at]], rows.coefficient[at] / scale)
        start = end
    solver.Minimize(sum(cost * var[index] for cost, index in terms))
    assert solver.Solve() == pywraplp.Solver.OPTIMAL
    return float(solver.Objective().Value())


def test_that_a_clique_must_be_freed_is_seen_without_a_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """108 segments of 4 pods, 4 of 8, 6 of 16, one of 18, a newcomer of 16: four blocks of 4 too many for 36 racks."""
    problem = build_problem(generated(CliquesDoc(kind="cliques", racks=36, running=0.95, clique_pods=16), 4))
    outcome = Outcome(State(problem))
    pool = outcome.pool = VictimPool.of_running(outcome.state)
    newcomer = next(shape for shape in problem.gangs if not shape.active)
    allocation_unit = AllocationUnits(newcomer, outcome.state.gangs[newcomer.index]).next()
    assert allocation_unit is not None
    units = frozenset(unit.index for unit in pool.units)
    joint = JointModelInput(outcome).join(
        [(allocation_unit, Action.RECLAIM)], units, units, frozenset(), (), may_move=True, optional=False
    )
    form = formulate(joint, FAMILIES, ["disruption"])
    work = form.objectives[0].terms
    with_rows = relaxed(form.spec, work)
    monkeypatch.setattr(topology, "_keep_whole", lambda *_: None)
    assert relaxed(formulate(joint, FAMILIES, ["disruption"]).spec, work) == pytest.approx(0)
    assert with_rows > 50_000
