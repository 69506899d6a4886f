"""The builder against a direct reading of its rows."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.errors import InternalError
from kai_solver.model.spec import ModelSpec, negate


def values(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def two_booleans() -> tuple[ModelSpec, int, int]:
    spec = ModelSpec()
    return spec, spec.bool_var("a"), spec.bool_var("b")


def holds(spec: ModelSpec, *numbers: int) -> bool:
    return spec.check(values(*numbers)) is None


def test_a_model_without_rows_accepts_all_values_of_its_domains() -> None:
    spec = ModelSpec()
    spec.int_var(-2, 3)
    assert holds(spec, -2)
    assert holds(spec, 3)


def test_an_empty_model_accepts_the_empty_vector() -> None:
    assert holds(ModelSpec())


def test_values_outside_a_domain_are_named() -> None:
    spec = ModelSpec()
    spec.int_var(0, 3, "gpus")
    violation = spec.check(values(4))
    assert violation is not None
    assert violation.row == -1
    assert "gpus = 4 is outside [0, 3]" in violation.text


def test_a_vector_of_the_wrong_length_is_a_violation() -> None:
    spec, _, _ = two_booleans()
    assert spec.check(values(1)) is not None


def test_linear_rows_have_both_ends() -> None:
    spec = ModelSpec()
    x, y = spec.int_var(0, 9), spec.int_var(0, 9)
    spec.add([(2, x), (3, y)], 6, 12, family="capacity")
    assert holds(spec, 3, 2)
    assert not holds(spec, 1, 1)
    assert not holds(spec, 9, 9)


def test_one_sided_and_equal_rows() -> None:
    spec = ModelSpec()
    x = spec.int_var(-9, 9)
    spec.add_le([(1, x)], 5, family="le")
    spec.add_ge([(1, x)], -5, family="ge")
    spec.add_eq([(2, x)], 4, family="eq")
    assert holds(spec, 2)
    for wrong, family in ((6, "le"), (-6, "ge"), (3, "eq")):
        violation = spec.check(values(wrong))
        assert violation is not None
        assert violation.family == family


def test_the_violation_shows_row_family_and_terms() -> None:
    spec, a, b = two_booleans()
    spec.add_le([(1, a)], 1, family="limit")
    spec.add_le([(5, a), (7, negate(b))], 6, family="capacity")
    violation = spec.check(values(0, 0))
    assert violation is not None
    assert (violation.row, violation.family) == (1, "capacity")
    assert violation.text == "capacity: 5*a[0] + 7*not b[1] <= 6 does not hold"


@pytest.mark.parametrize(("a", "b", "ok"), [(0, 0, True), (1, 0, True), (0, 1, True), (1, 1, False)])
def test_at_most_one(a: int, b: int, ok: bool) -> None:
    spec, x, y = two_booleans()
    spec.at_most_one([x, y], family="f")
    assert holds(spec, a, b) is ok


@pytest.mark.parametrize(("a", "b", "ok"), [(0, 0, False), (1, 0, True), (0, 1, True), (1, 1, False)])
def test_exactly_one(a: int, b: int, ok: bool) -> None:
    spec, x, y = two_booleans()
    spec.exactly_one([x, y], family="f")
    assert holds(spec, a, b) is ok


@pytest.mark.parametrize(("a", "b", "ok"), [(0, 0, True), (1, 0, False), (0, 1, True), (1, 1, True)])
def test_implication(a: int, b: int, ok: bool) -> None:
    spec, x, y = two_booleans()
    spec.implication(x, y, family="f")
    assert holds(spec, a, b) is ok


def test_negated_literals_in_clauses() -> None:
    spec, a, b = two_booleans()
    spec.bool_or([negate(a), negate(b)], family="f")
    assert not holds(spec, 1, 1)
    assert holds(spec, 0, 1)


def test_a_guarded_row_holds_only_where_all_guards_are_true() -> None:
    spec, a, b = two_booleans()
    x = spec.int_var(0, 9)
    spec.add_ge([(1, x)], 5, family="f", only_if=[a, negate(b)])
    assert holds(spec, 0, 0, 0)
    assert holds(spec, 1, 1, 0)
    assert not holds(spec, 1, 0, 4)
    assert holds(spec, 1, 0, 5)


def test_rows_in_bulk_equal_rows_one_by_one() -> None:
    single, bulk = ModelSpec(), ModelSpec()
    for spec in (single, bulk):
        spec.int_vars(0, [5, 5, 5])
    single.add([(1, 0), (2, 1)], None, 8, family="f")
    single.add([], None, 8, family="f")
    single.add([(3, 2)], None, 9, family="f")
    bulk.add_rows([2, 2, 3], [0, 1, 2], [1, 2, 3], None, [8, 8, 9], family="f")
    assert single.wire() == bulk.wire()


def test_bulk_rows_must_divide_their_terms() -> None:
    spec = ModelSpec()
    spec.bool_vars(3)
    with pytest.raises(InternalError, match="family f"):
        spec.add_rows([1, 2], [0, 1, 2], 1, 0, 1, family="f")


def test_families_are_counted_and_left_out() -> None:
    spec, a, b = two_booleans()
    spec.at_most_one([a, b], family="gang")
    spec.add_ge([(1, a)], 1, family="capacity", only_if=[b])
    spec.add_ge([(1, b)], 1, family="capacity")
    assert spec.families == {"gang": 1, "capacity": 2}
    assert spec.size == (2, 3)
    relaxed = spec.without("gang")
    assert relaxed.families == {"capacity": 2}
    assert holds(relaxed, 1, 1)
    assert not holds(spec, 1, 1)
    assert not holds(relaxed, 0, 1)
    assert spec.without("capacity").count("capacity") == 0


def test_a_copy_grows_on_its_own() -> None:
    spec, a, _ = two_booleans()
    other = spec.copy()
    other.add_ge([(1, a)], 1, family="f")
    other.bool_var()
    other.minimize([(1, a)])
    assert spec.size == (2, 0)
    assert other.size == (3, 1)
    assert spec.objective_of(values(1, 1)) == 0


def test_objective_and_trivial_bound_with_negated_literals() -> None:
    spec, a, b = two_booleans()
    x = spec.int_var(-3, 4)
    spec.minimize([(5, a), (7, negate(b)), (-2, x)], constant=100)
    assert spec.objective_of(values(1, 0, 2)) == 108
    assert spec.objective_of(values(0, 1, 4)) == spec.trivial_bound() == 92


@pytest.mark.parametrize(("hint", "complete"), [(None, False), ([1], False), ([1, 0], True)])
def test_only_a_hint_for_all_variables_is_complete(hint: list[int] | None, complete: bool) -> None:
    spec, _, _ = two_booleans()
    spec.hint(hint)
    assert (spec.complete_hint is not None) is complete


def test_references_beyond_the_variables_are_an_internal_error() -> None:
    spec, a, _ = two_booleans()
    spec.add_le([(1, a), (1, 7)], 1, family="f")
    with pytest.raises(InternalError, match="beyond"):
        spec.wire()


def test_an_integer_as_a_literal_is_an_internal_error() -> None:
    spec = ModelSpec()
    x = spec.int_var(0, 5)
    spec.add_le([(1, negate(x))], 1, family="f")
    with pytest.raises(InternalError, match="literal"):
        spec.wire()


def test_an_empty_domain_is_an_internal_error() -> None:
    spec = ModelSpec()
    spec.int_var(1, 0)
    with pytest.raises(InternalError, match="domain"):
        spec.wire()


def test_a_model_survives_pickling() -> None:
    spec, a, b = two_booleans()
    spec.add_le([(2, a), (3, negate(b))], 4, family="f", only_if=[b])
    spec.hint([1, 0])
    copy = pickle.loads(pickle.dumps(spec, protocol=5))  # noqa: S301 - our own bytes
    assert copy.wire() == spec.wire()
    assert copy.families == spec.families


term = st.tuples(st.integers(-9, 9), st.integers(-4, 3))


@given(
    rows=st.lists(st.tuples(st.lists(term, max_size=5), st.integers(-20, 0), st.integers(0, 20)), max_size=6),
    bits=st.lists(st.integers(0, 1), min_size=4, max_size=4),
)
def test_check_agrees_with_reading_every_row(
    rows: list[tuple[list[tuple[int, int]], int, int]], bits: list[int]
) -> None:
    spec = ModelSpec()
    spec.bool_vars(4)
    for terms, low, high in rows:
        spec.add(terms, low, high, family="f")

    def value(var: int) -> int:
        return bits[var] if var >= 0 else 1 - bits[negate(var)]

    broken = [k for k, (terms, low, high) in enumerate(rows) if not low <= sum(c * value(v) for c, v in terms) <= high]
    violation = spec.check(values(*bits))
    assert (violation.row if violation else None) == (broken[0] if broken else None)
