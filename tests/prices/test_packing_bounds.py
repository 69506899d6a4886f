"""Bounds of the linear programme: never above what a search over all placements and all that may leave finds."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import Constraints, GpuRequest, Pod
from kai_solver.planstate.state import State
from kai_solver.prices import Packing, Unit, glop, least_waiting, programme_of
from kai_solver.prices.glop import all_patterns, best_pattern
from kai_solver.prices.programme import Cost, Programme
from kai_solver.problem import Problem
from kai_solver.units import MILLI
from tests.bounds.test_counting_bounds import BIG, a_pod, a_problem, can_place

KINDS = st.tuples(
    st.sampled_from([GpuRequest(0), GpuRequest(1), GpuRequest(2), GpuRequest(1, 500), GpuRequest(1, 300)]),
    st.sampled_from([100, 700, 1500]),
    st.sampled_from([None, None, BIG]),
)


def a_packing(
    problem: Problem, staying: int, works: Sequence[int], *, racks: Sequence[int] = (), pairs: bool = False
) -> Packing:
    """The first pods must have places; each of the others may leave at the cost of its work.

    ``pairs``: two pods of one shape, side by side among those that stay, lie in one of ``racks`` (by node).
    """
    state, shapes = State(problem), problem.pod_shape
    units = [Unit(((shape, 1),)) for shape in shapes[staying:]]
    blocks = {(shapes[0], 2, 0): 1} if pairs else {}
    partitions = [np.array(racks, dtype=np.int64)] if racks else []
    costs = [("evicted-work/50", list(works))]
    return Packing(
        problem, state.future, state.device_future, Counter(shapes[:staying]), units, blocks, partitions, (), costs
    )


def bound_of(packing: Packing) -> int | None:
    """The proven bound; None where the solver says that there is no solution."""
    programme = programme_of(packing)
    found = programme.solve(60.0)
    return programme.bound(found[0], ()) if found else None


def least_work(gpus: Sequence[int], pods: Sequence[Pod], staying: int, works: Sequence[int]) -> int | None:
    """The least work that must leave, by trying all; None where no choice leaves places for the rest."""
    rows = tuple((4000, *[MILLI] * count) for count in gpus)
    best: int | None = None
    for leaves in product((False, True), repeat=len(works)):
        cost = sum(work for work, gone in zip(works, leaves, strict=True) if gone)
        kept = [*pods[:staying], *(pod for pod, gone in zip(pods[staying:], leaves, strict=True) if not gone)]
        is_big = [pod.constraints.node_terms == BIG.node_terms for pod in kept]
        allowed = {
            len(kept) - i: frozenset(n for n in range(len(gpus)) if not big or gpus[n] > 2)
            for i, big in enumerate(is_big)
        }
        if (best is None or cost < best) and can_place(rows, allowed, kept):
            best = cost
    return best


def test_of_three_pods_on_two_gpus_the_cheapest_leaves() -> None:
    problem = a_problem([2], [a_pod(i, GpuRequest(1)) for i in range(4)])
    assert bound_of(a_packing(problem, 1, [7, 5, 9])) == 12
    assert bound_of(a_packing(problem, 2, [7, 5])) == 12


def test_shares_of_one_device_are_no_sum() -> None:
    """Two devices take four pods of 400 thousandths, though five of them are two devices in sum."""
    problem = a_problem([2], [a_pod(i, GpuRequest(1, 400)) for i in range(5)])
    assert bound_of(a_packing(problem, 0, [10, 20, 30, 40, 50])) == 10


@pytest.mark.parametrize("patterns", [0, 2])
def test_patterns_that_pay_are_made_where_all_are_too_many(monkeypatch: pytest.MonkeyPatch, patterns: int) -> None:
    pods = [a_pod(i, GpuRequest(1, (300, 500, 200, 700)[i % 4])) for i in range(12)]
    packing = a_packing(a_problem([2, 1], pods), 3, [7, 5, 9, 4, 3, 8, 6, 2, 5])
    whole = bound_of(packing)
    monkeypatch.setattr(glop, "MOST_PATTERNS", patterns)
    assert bound_of(packing) == whole


def test_the_last_round_of_patterns_has_a_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    """Patterns that would pay still are not added after it: then the solver would forget what it found."""
    pods = [a_pod(i, GpuRequest(1, (300, 500, 200, 700)[i % 4])) for i in range(12)]
    packing = a_packing(a_problem([2, 1], pods), 3, [7, 5, 9, 4, 3, 8, 6, 2, 5])
    whole = programme_of(packing).solve(60.0)[-1].cost
    monkeypatch.setattr(glop, "MOST_PATTERNS", 0)
    monkeypatch.setattr(glop, "ROUNDS", 1)
    first = programme_of(packing).solve(60.0)[-1]
    assert first.cost > whole  # Some shares are without a device, at their penalty.
    assert first.duals.any()
    assert first.out.any()


def test_a_column_counts_as_often_as_a_row_names_it() -> None:
    """As a unit with two equal blocks of pods, each in one rack."""
    programme = Programme()
    columns = programme.add_columns([4])
    programme.add_row([0, 0], [1, 1], low=4)
    programme.costs.append(Cost("evicted-work/50", np.array(columns), np.array([3])))
    (found,) = programme.solve(60.0)
    assert found.cost == pytest.approx(6)
    assert programme.bound(found, ()) == 6


def test_pods_of_one_rack_lie_in_one_rack() -> None:
    """Two racks of one GPU each never hold a pair, so the programme has no solution; one rack of two does."""
    pods = [a_pod(i, GpuRequest(1)) for i in range(2)]
    assert bound_of(a_packing(a_problem([1, 1], pods), 2, [], racks=[0, 1], pairs=True)) is None
    assert bound_of(a_packing(a_problem([1, 1], pods), 2, [], racks=[0, 0], pairs=True)) == 0


def test_of_four_that_want_three_places_one_waits() -> None:
    problem = a_problem([2, 2], [a_pod(i, GpuRequest(1)) for i in range(5)])
    packing = a_packing(problem, 1, [0, 0, 0, 0])
    shape = (problem.pod_shape[0], 1)
    asked = Packing(problem, packing.free, packing.device_free, {shape[0]: 1}, ())
    assert least_waiting(asked, [Unit((shape,), copies=3)]) == 0
    assert least_waiting(asked, [Unit((shape,), copies=4)]) == 1
    assert least_waiting(asked, [Unit((shape,), copies=2), Unit((shape,), copies=3)]) == 2


def test_any_prices_prove_a_bound_and_none_too_high() -> None:
    pods = [a_pod(i, GpuRequest(1, 400 if i % 2 else 600), cpu=700) for i in range(8)]
    programme = programme_of(a_packing(a_problem([2, 1], pods), 2, [7, 5, 9, 4, 3, 8]))
    [found] = programme.solve(60.0)
    best = programme.bound(found, ())
    draw = np.random.default_rng(0)
    for _ in range(200):
        prices = found.duals * draw.uniform(-1, 2, size=len(found.duals)) + draw.normal(size=len(found.duals))
        assert programme.bound(replace(found, duals=prices), ()) <= best
    assert best == least_work([2, 1], pods, 2, [7, 5, 9, 4, 3, 8])


@given(
    level=st.integers(1, 12),
    sizes=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 3), st.integers(0, 9)), max_size=4),
)
def test_the_best_pattern_is_the_best_of_all(level: int, sizes: list[tuple[int, int, int]]) -> None:
    kinds, prices = [(size, most) for size, most, _ in sizes], [price for _, _, price in sizes]
    value, copies = best_pattern(level, kinds, prices)
    every = [
        counts
        for counts in product(*(range(most + 1) for _, most in kinds))
        if sum(size * count for (size, _), count in zip(kinds, counts, strict=True)) <= level
    ]
    worth = [sum(price * count for price, count in zip(prices, counts, strict=True)) for counts in every]
    assert value == max(worth)
    assert copies in every
    assert worth[every.index(copies)] == value
    assert max(worth) == max(
        sum(price * count for price, count in zip(prices, counts, strict=True)) for counts in all_patterns(level, kinds)
    )


@pytest.mark.slow
@given(
    gpus=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    staying=st.lists(KINDS, max_size=2),
    leaving=st.lists(st.tuples(KINDS, st.integers(1, 9)), min_size=1, max_size=5),
)
@settings(max_examples=300, deadline=None)
def test_no_bound_is_above_the_least(
    gpus: list[int],
    staying: list[tuple[GpuRequest, int, Constraints | None]],
    leaving: list[tuple[tuple[GpuRequest, int, Constraints | None], int]],
) -> None:
    kinds = [*staying, *(kind for kind, _ in leaving)]
    pods = [a_pod(i, gpu, cpu=cpu, constraints=more) for i, (gpu, cpu, more) in enumerate(kinds)]
    works = [work for _, work in leaving]
    packing = a_packing(a_problem(gpus, pods), len(staying), works)
    least, bound = least_work(gpus, pods, len(staying), works), bound_of(packing)
    if least is not None:
        assert bound is not None
        assert bound <= least
    waiting = [Unit(unit.pods) for unit in packing.units]
    most_served = least_work(gpus, pods, len(staying), [1] * len(works))
    alone = Packing(packing.problem, packing.free, packing.device_free, packing.asked, ())
    if most_served is not None:
        assert least_waiting(alone, waiting) <= most_served


def a_cover(least: int, holds: Sequence[int], works: Sequence[int]) -> Programme:
    """Units that hold so much leave until they give ``least``."""
    programme = Programme()
    columns = programme.add_columns([1] * len(holds))
    programme.add_row(columns, holds, low=least)
    programme.costs.append(Cost("evicted-work/50", np.array(columns), np.array(works)))
    return programme


@pytest.mark.parametrize(
    ("least", "works", "out", "bound"),
    [
        (1, [8, 3, 4], [0, 1, 0], 2),  # A quarter of the large unit is the cheapest; all of it is not.
        (3, [8, 3, 4], [1, 0, 0], 6),  # The small ones do not give enough.
        (5, [8, 3, 4], [1, 1, 0], 11),  # Whole as it is.
    ],
)
def test_parts_of_large_units_do_not_leave(least: int, works: list[int], out: list[int], bound: int) -> None:
    programme = a_cover(least, [4, 1, 1], works)
    (found,) = programme.solve(60.0)
    assert found.out.round(6).tolist() == out
    assert programme.bound(found, ()) == bound


def test_a_copy_with_more_rows_leaves_the_programme_as_it_is() -> None:
    programme = a_cover(1, [4, 1, 1], [8, 3, 4])
    (found,) = programme.with_rows([([1], [1], 0)]).solve(60.0)
    assert found.out.round(6).tolist() == [0, 0, 1]
    assert programme.solve(60.0)[0].out.round(6).tolist() == [0, 1, 0]


def test_more_rows_take_the_place_of_those_before() -> None:
    simplex = glop.Simplex(a_cover(1, [4, 1, 1], [8, 3, 4]).question({}))
    assert simplex.solve(60.0)[0]["out"] == pytest.approx([0, 1, 0])
    for rows, out in (([([1], [1], 0)], [0, 0, 1]), ([([2], [1], 0)], [0, 1, 0]), ([], [0, 1, 0])):
        (found,) = simplex.solve_with(rows, 60.0)
        assert found["out"] == pytest.approx(out)
    assert simplex.solve_with([([0, 1, 2], [1, 1, 1], 0)], 60.0) == []  # Nothing serves what comes.
    (found,) = simplex.solve_with([([0], [1], 0)], 60.0)
    assert (found["out"], found["cost"]) == (pytest.approx([0, 1, 0]), pytest.approx(3))
