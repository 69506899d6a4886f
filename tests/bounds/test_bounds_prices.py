"""Worths of pods from a linear programme: by hand on tiny clusters."""

import numpy as np
import pytest

from kai_solver.bounds.prices import Groups, Pricing
from kai_solver.leftover import Demand, Floats, ValueTable


def demand_of(*kinds: tuple[int, int, int, tuple[bool, ...]]) -> Demand:
    numbers = np.array([kind[:3] for kind in kinds], dtype=np.int64)
    allowed = np.array([kind[3] for kind in kinds])
    cpu = np.repeat(numbers[:, :1], allowed.shape[1], axis=1)
    return Demand(cpu, numbers[:, 1], numbers[:, 2], allowed)


def price(
    demand: Demand, expected: list[float], nodes: list[tuple[int, int, tuple[int, ...]]]
) -> tuple[Floats, Pricing]:
    """Worths on nodes (type, free CPU, free GPUs)."""
    kind = np.array([node[0] for node in nodes])
    cpu = np.array([node[1] for node in nodes])
    free = np.array([node[2] for node in nodes])
    pricing = Pricing(demand, demand.total_milli.astype(np.float64))
    return pricing.worth(Groups.of(demand, cpu, free, kind), np.array(expected)), pricing


ANY = (True,)


def test_where_all_fit_nothing_is_worth_anything() -> None:
    worth, pricing = price(demand_of((1, 1, 500, ANY)), [1.0], [(0, 9, (1000, 1000))])
    assert worth == pytest.approx([0.0])
    assert pricing.packed == pytest.approx([1.0])


def test_what_is_expected_in_plenty_is_worth_its_profit() -> None:
    worth, pricing = price(demand_of((1, 1, 500, ANY)), [9.0], [(0, 9, (1000, 1000))])
    assert worth == pytest.approx([500.0])
    assert pricing.packed == pytest.approx([4.0])


def test_a_filler_that_is_seldom_takes_no_capacity_worth_paying_for() -> None:
    # One GPU, pods of 800 in plenty, one of 200: it goes where 800 leaves 200, which nobody else can use.
    worth, _ = price(demand_of((1, 1, 800, ANY), (1, 1, 200, ANY)), [9.0, 1.0], [(0, 99, (1000, 1000, 1000))])
    assert worth == pytest.approx([800.0, 0.0])


def test_a_pattern_of_several_pods_is_found() -> None:
    demand = demand_of((1, 1, 600, ANY), (1, 1, 400, ANY), (1, 1, 500, ANY))
    worth, pricing = price(demand, [5.0, 5.0, 1.0], [(0, 99, (1000,) * 5)])
    assert pricing.packed @ demand.total_milli == pytest.approx(5000.0)
    assert worth[0] + worth[1] >= 999.0


def test_cpu_makes_light_pods_worth_less() -> None:
    # CPU for one heavy pod or ten light ones; GPUs are in plenty, so a light pod only costs its CPU.
    worth, pricing = price(demand_of((10, 1, 1000, ANY), (1, 1, 1000, ANY)), [9.0, 3.0], [(0, 13, (1000,) * 8)])
    assert pricing.packed == pytest.approx([1.0, 3.0])
    assert worth == pytest.approx([1000.0, 100.0])


def test_a_scarce_model_is_dearer() -> None:
    demand = demand_of((1, 1, 1000, (True, True)), (1, 1, 1000, (False, True)))
    worth, _ = price(demand, [2.0, 9.0], [(0, 99, (1000,) * 4), (1, 99, (1000, 1000, 0, 0))])
    assert worth == pytest.approx([0.0, 1000.0])
    table = ValueTable.of(demand, worth, 4)
    free = np.array([[1000, 0, 0, 0]] * 2)
    assert table.of_nodes(np.array([99, 99]), free, np.array([0, 1])) == pytest.approx([0.0, 1000.0])


def test_pods_of_several_gpus_need_them_on_one_node() -> None:
    demand = demand_of((1, 2, 1000, ANY))
    _, pricing = price(demand, [9.0], [(0, 99, (1000, 500)), (0, 99, (1000, 500)), (0, 99, (1000, 1000))])
    assert pricing.packed == pytest.approx([1.0])


def test_patterns_that_are_kept_change_no_prices() -> None:
    demand = demand_of((4, 1, 600, ANY), (2, 1, 400, ANY), (3, 1, 1000, ANY), (1, 1, 200, ANY))
    pricing = Pricing(demand, demand.total_milli.astype(np.float64))
    random = np.random.default_rng(3)
    for _ in range(6):
        cpu, free = random.integers(5, 40, size=12), random.choice([0, 200, 400, 1000], size=(12, 4))
        groups, expected = Groups.of(demand, cpu, free, np.zeros(12, dtype=np.int64)), random.uniform(0, 20, size=4)
        fresh = Pricing(demand, pricing.profit)
        pricing.worth(groups, expected)
        fresh.worth(groups, expected)
        assert pricing.packed @ pricing.profit == pytest.approx(fresh.packed @ pricing.profit, rel=0.01)
