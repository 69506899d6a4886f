"""Costs by stratum as one integer."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.chains.arrays import LARGEST_COST, scaled

GROUPS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(0, 2)), min_size=1, max_size=8)


@given(GROUPS, st.integers(0, 2**8 - 1), st.integers(0, 2**8 - 1))
def test_sums_of_costs_are_ordered_as_sums_by_stratum_highest_first(
    groups: list[tuple[int, int]], left: int, right: int
) -> None:
    work, stratum = (np.array(column, dtype=np.int64) for column in zip(*groups, strict=True))
    cost = scaled(work, stratum)

    def by_stratum(chosen: int) -> list[int]:
        return [sum(w for i, (w, s) in enumerate(groups) if chosen >> i & 1 and s == at) for at in (2, 1, 0)]

    def total(chosen: int) -> int:
        return sum(int(c) for i, c in enumerate(cost) if chosen >> i & 1)

    assert (total(left) < total(right)) == (by_stratum(left) < by_stratum(right))


def test_where_bits_do_not_suffice_the_higher_stratum_still_decides() -> None:
    work = np.array([10**9, 10**9, 10**9, 1, 1], dtype=np.int64)
    cost = scaled(work, np.array([0, 1, 2, 3, 3], dtype=np.int64))
    assert cost[3] == cost[4] > cost[:3].sum()
    assert cost[2] > cost[:2].sum()
    assert cost[1] > cost[0]
    assert cost.sum() < LARGEST_COST
