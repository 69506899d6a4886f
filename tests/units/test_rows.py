"""Sums over the rows of tables."""

import numpy as np
import pytest

from kai_solver.units.rows import row_sums


@pytest.mark.parametrize("shape", [(0, 8), (3, 0), (1, 1), (5, 8), (40, 200)])
def test_rows_are_summed_as_numpy_does(shape: tuple[int, int]) -> None:
    table = np.random.default_rng(7).integers(-(10**12), 10**12, shape)
    before = table.copy()
    assert row_sums(table).tolist() == table.sum(axis=1).tolist()
    assert row_sums(table > 0).tolist() == np.count_nonzero(table > 0, axis=1).tolist()
    assert row_sums(np.asfortranarray(table)).tolist() == table.sum(axis=1).tolist()
    assert (table == before).all()
