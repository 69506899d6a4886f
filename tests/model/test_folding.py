"""The folded model: every solution of the whole is one of it, at the same cost."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.model.folding import Folded, fold
from kai_solver.model.spec import ModelSpec, Term, negate


def identical_nodes(count: int) -> tuple[ModelSpec, list[Term]]:
    """``count`` nodes of 8 GPUs with 8 jobs each: ``stay + 8 place <= 8``; half of the nodes must be emptied."""
    spec = ModelSpec()
    places, stays = spec.bool_vars(count).tolist(), spec.int_vars(np.zeros(count), np.full(count, 8)).tolist()
    for place, stay in zip(places, stays, strict=True):
        spec.add_le([(8, place), (1, stay)], 8, family="capacity")
    spec.add_eq([(1, place) for place in places], count // 2, family="gang")
    return spec, [(-1, stay) for stay in stays]


def folded_of(spec: ModelSpec, *sums: list[Term], apart: tuple[int, ...] = ()) -> Folded:
    folded = fold(spec, sums, apart)
    assert folded is not None
    return folded


@pytest.mark.parametrize("count", [10, 1000])
def test_alike_nodes_become_one(count: int) -> None:
    spec, leave = identical_nodes(count)
    folded = folded_of(spec, leave)
    assert folded.spec.size == (2, 2)
    assert sorted(folded.sizes.tolist()) == [count, count]


def test_a_cost_of_its_own_tells_apart() -> None:
    spec, leave = identical_nodes(10)
    assert folded_of(spec, leave, [(5, 0)]).spec.size[0] == 4  # the dear place, its node's jobs, and the others'


def test_what_is_to_be_apart_is_never_folded() -> None:
    spec, leave = identical_nodes(10)
    folded = folded_of(spec, leave, apart=(0, 1))
    assert folded.sizes[folded.colour[[0, 1]]].tolist() == [1, 1]
    assert folded.colour[0] != folded.colour[1]


def test_a_model_of_unlike_parts_is_not_folded() -> None:
    spec = ModelSpec()
    for size in range(1, 9):
        spec.add_le([(size, spec.int_var(0, size))], 50, family="capacity")
    assert fold(spec, []) is None


def test_a_model_without_rows_or_variables_is_not_folded() -> None:
    assert fold(ModelSpec(), []) is None


def test_rows_are_divided_by_what_their_coefficients_share() -> None:
    spec = ModelSpec()
    variables = spec.bool_vars(6).tolist()
    for var in variables:
        spec.add_le([(3, var)], 2, family="capacity")
    assert folded_of(spec).spec.check(np.array([4])) is None  # 18 x <= 12 x 6 / 6: of 6 nodes at most 4
    assert folded_of(spec).spec.check(np.array([5])) is not None


def test_a_pinned_solution_folds_to_what_was_asked() -> None:
    spec, leave = identical_nodes(4)
    folded = folded_of(spec, leave)
    values = np.array([1, 0, 0, 1, 0, 8, 8, 0])
    pinned = spec.copy()
    folded.pin(pinned, folded.values(values))
    assert pinned.check(values) is None
    assert pinned.check(np.array([1, 0, 0, 1, 0, 8, 7, 0])) is not None


Row = tuple[tuple[int, ...], int, int, tuple[int, ...]]
"""Coefficients by variable, high end, kind (0: a linear row, 1: at least one), guards as literals."""


@st.composite
def symmetric_models(draw: st.DrawFn) -> tuple[ModelSpec, list[Term]]:
    """Up to 6 Booleans in blocks of two or three alike, and rows repeated with the blocks' members turned around."""
    blocks, block = draw(st.sampled_from([(2, 2), (2, 3), (3, 2)]))
    spec = ModelSpec()
    variables = spec.bool_vars(blocks * block).reshape(blocks, block)
    literals = st.integers(0, blocks * block - 1) | st.integers(0, 5).map(lambda v: negate(v % (blocks * block)))
    for _ in range(draw(st.integers(0, 3))):
        base = draw(st.lists(st.tuples(st.integers(-3, 3), literals), min_size=1, max_size=3))
        guards = draw(st.lists(literals, max_size=1))
        high, is_clause = draw(st.integers(-2, 4)), draw(st.booleans())
        for next_gang in range(block if draw(st.booleans()) else 1):
            terms = [(c, _turned(variables, v, next_gang)) for c, v in base]
            only_if = [_turned(variables, guard, next_gang) for guard in guards]
            if is_clause:
                spec.bool_or([v for _, v in terms], family="clause", only_if=only_if)
            else:
                spec.add_le(terms, high, family="linear", only_if=only_if)
    costs = draw(st.lists(st.integers(-2, 3), min_size=blocks, max_size=blocks))
    objective = [(cost, int(v)) for cost, row in zip(costs, variables, strict=True) for v in row]
    return spec, objective


def _turned(variables: np.ndarray, literal: int, next_gang: int) -> int:
    var = negate(literal) if literal < 0 else literal
    row, column = divmod(var, variables.shape[1])
    found = int(variables[row, (column + next_gang) % variables.shape[1]])
    return negate(found) if literal < 0 else found


@pytest.mark.slow
@given(symmetric_models())
def test_every_solution_folds_to_one_at_the_same_cost(model: tuple[ModelSpec, list[Term]]) -> None:
    spec, objective = model
    folded = fold(spec, [objective])
    if folded is None:
        return
    spec.minimize(objective)
    folded.spec.minimize(folded.terms(objective))
    for bits in product((0, 1), repeat=spec.size[0]):
        values = np.array(bits, np.int64)
        if spec.check(values) is None:
            image = folded.values(values)
            assert folded.spec.check(image) is None
            assert folded.spec.objective_of(image) == spec.objective_of(values)
