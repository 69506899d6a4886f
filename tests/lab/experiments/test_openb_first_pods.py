"""The value of nodes with little CPU: the best first pod that fits, and the rest in fractions."""

import numpy as np
import pytest

from kai_solver.lab.experiments.first_pods import FirstPods
from kai_solver.lab.experiments.trace import Ints
from kai_solver.leftover import Demand, ValueTable

CPU = 11_000, 4_000, 8_000
"""Of a pod of one GPU, of one of half a GPU, and of one without."""


def demand(gpus: tuple[int, ...] = (1, 1, 0), milli: tuple[int, ...] = (1000, 500, 0)) -> Demand:
    allowed = np.ones((3, 1), dtype=np.bool_)
    return Demand(np.array(CPU)[:, None], np.array(gpus), np.array(milli), allowed)


def value(
    cpu: int, free: list[int], worth: tuple[float, ...] = (1000.0, 500.0, 100.0), **kinds: tuple[int, ...]
) -> float:
    asked = demand(**kinds)
    table = ValueTable.of(asked, np.array(worth), len(free))
    first = FirstPods.of(asked, np.array(worth), np.array([3.0, 2.0, 1.0]))
    return float(first.value(table, *state(cpu, free))[0])


def state(cpu: int, free: list[int]) -> tuple[Ints, Ints, Ints]:
    return np.array([cpu]), np.array([free]), np.zeros(1, dtype=np.int64)


def test_a_free_gpu_is_worth_the_pod_that_its_cpu_lets_in() -> None:
    alone, both = (1000.0, 0.0, 0.0), (1000.0, 500.0, 0.0)
    assert value(11_000, [1000], alone) == pytest.approx(1000.0)
    assert value(10_999, [1000], alone) == 0.0
    assert value(7_000, [1000], both) == pytest.approx(500.0 + 500.0 * 3 / 4, rel=0.05)
    assert value(3_999, [1000], both) == 0.0


def test_a_node_that_no_usual_pod_fits_is_worth_nothing() -> None:
    assert value(3_999, [1000]) == 0.0
    assert value(7_999, [0]) == 0.0


def test_it_is_worth_no_less_than_a_packing_and_no_more_than_fractions() -> None:
    asked = demand()
    table = ValueTable.of(asked, np.array([1000.0, 500.0, 100.0]), 2)
    for cpu in range(0, 31_000, 1_000):
        found = value(cpu, [1000, 500])
        packed = max(
            (1000 * whole + 500 * halves + 100 * none)
            for whole in (0, 1)
            for halves in range(4 - 2 * whole)
            for none in range(4)
            if 11_000 * whole + 4_000 * halves + 8_000 * none <= cpu
        )
        assert packed - 1e-6 <= found
        assert found <= float(table.of_nodes(*state(cpu, [1000, 500]))[0]) * 1.02  # Prices of CPU are a grid.


def test_pods_of_several_gpus_take_whole_ones() -> None:
    kinds = {"gpus": (2, 1, 0), "milli": (1000, 500, 0)}
    worth = (2000.0, 0.0, 0.0)
    assert value(11_000, [1000, 1000, 300], worth, **kinds) == pytest.approx(2000.0)
    assert value(11_000, [1000, 900, 900], worth, **kinds) == 0.0


def test_a_share_goes_to_the_fullest_gpu_that_takes_it() -> None:
    """Only the share may come first: a whole GPU stays free beside it."""
    asked, worth = demand(milli=(1000, 400, 0)), np.array([1000.0, 400.0, 0.0])
    table, first = ValueTable.of(asked, worth, 2), FirstPods(asked, (1,), worth)
    assert float(first.value(table, *state(15_000, [1000, 400]))[0]) == pytest.approx(1400.0)
    assert float(first.value(table, *state(15_000, [1000, 300]))[0]) < 1000.0


def test_only_nodes_with_free_gpus_and_little_cpu_are_looked_at_so() -> None:
    cpu = np.array([10_000, 10_000, 20_000, 39_000, 41_000])
    free = np.array([[1000, 0, 0, 0], [0, 0, 0, 0], [1000, 0, 0, 0], [1000] * 4, [1000] * 4])
    assert FirstPods.are_tight(cpu, free).tolist() == [0, 3]
