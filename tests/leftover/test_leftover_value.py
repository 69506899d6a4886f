"""Values of free capacity: by hand, against exhaustive packing, and monotone in capacity."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.leftover import Demand, Floats, ValueTable, pack_device


def demand_of(*kinds: tuple[int, int, int], types: int = 1) -> Demand:
    """Kinds (CPU, GPUs, thousandths of each) that may run on every type of node."""
    cpu, gpus, milli = np.array(kinds, dtype=np.int64).T
    return Demand(np.repeat(cpu[:, None], types, axis=1), gpus, milli, np.ones((len(kinds), types), dtype=np.bool_))


def worth_of(demand: Demand) -> Floats:
    return demand.total_milli.astype(np.float64)


def value(table: ValueTable, cpu: int, *free: int, kind: int = 0) -> float:
    return float(table.of_nodes(np.array([cpu]), np.array([free]), np.array([kind]))[0])


def test_one_gpu_is_packed_by_size() -> None:
    demand = demand_of((0, 1, 600), (0, 1, 300), (0, 1, 1000))
    packed = pack_device(demand, np.array([[600.0, 290.0, 850.0]]))
    assert packed.value[0, -1] == 890.0
    assert packed.pattern(0, demand.levels, demand) == (0, 1)
    assert packed.value[0, 5] == 290.0
    assert packed.pattern(0, 2, demand) == ()


def test_a_rest_that_nothing_asks_for_is_worth_nothing() -> None:
    demand = demand_of((1000, 1, 810), (1000, 1, 1000))
    table = ValueTable.of(demand, worth_of(demand), 2)
    assert value(table, 90_000, 190, 1000) == pytest.approx(1000.0)


def test_cpu_limits_what_gpus_are_worth() -> None:
    demand = demand_of((10_000, 1, 1000))
    table = ValueTable.of(demand, worth_of(demand), 4)
    assert value(table, 40_000, 1000, 1000, 1000, 1000) == pytest.approx(4000.0)
    assert value(table, 20_000, 1000, 1000, 1000, 1000) == pytest.approx(2000.0, rel=0.15)  # the grid of prices
    assert value(table, 0, 1000, 1000, 1000, 1000) == 0.0


def test_a_pod_of_all_gpus_needs_all_its_cpu() -> None:
    demand = demand_of((80_000, 8, 1000))
    table = ValueTable.of(demand, worth_of(demand), 8)
    assert value(table, 80_000, *[1000] * 8) == 8000.0
    assert value(table, 79_999, *[1000] * 8) == 0.0
    assert value(table, 90_000, *[1000] * 7, 990) == 0.0


def test_a_type_that_more_worth_is_bound_to_is_worth_more() -> None:
    base = demand_of((1000, 1, 1000), (1000, 1, 1000), types=2)
    allowed = np.array([[True, True], [False, True]])
    demand = Demand(base.cpu, base.gpus, base.milli, allowed)
    table = ValueTable.of(demand, np.array([400.0, 900.0]), 2)
    assert value(table, 9000, 1000, 1000, kind=1) > value(table, 9000, 1000, 1000, kind=0)


def test_cpu_that_gpus_do_not_need_goes_to_pods_without() -> None:
    demand = demand_of((1000, 1, 1000), (10_000, 0, 0))
    table = ValueTable.of(demand, np.array([1000.0, 500.0]), 1)
    assert value(table, 11_000, 1000) == pytest.approx(1500.0, rel=0.01)
    assert value(table, 10_000, 0) == pytest.approx(500.0)


KINDS = [(3, 1, 400), (5, 1, 600), (7, 1, 1000), (9, 2, 1000), (4, 0, 0)]


def exhaustive(demand: Demand, worth: Floats, cpu: int, free: tuple[int, ...]) -> float:
    """Best worth of whole pods, tried one by one."""
    best = 0.0
    for kind in range(len(worth)):
        if demand.cpu[kind, 0] > cpu:
            continue
        fit = [device for device, milli in enumerate(free) if milli >= demand.milli[kind]]
        for devices in itertools.combinations(fit, int(demand.gpus[kind])):
            after = tuple(milli - int(demand.milli[kind]) * (device in devices) for device, milli in enumerate(free))
            rest = exhaustive(demand, worth, cpu - int(demand.cpu[kind, 0]), after)
            best = max(best, float(worth[kind]) + rest)
    return best


WORTHS = st.lists(st.integers(1, 1000), min_size=5, max_size=5)
FREE = st.lists(st.sampled_from([0, 200, 400, 600, 800, 1000]), min_size=3, max_size=3)


@pytest.mark.slow
@given(WORTHS, st.integers(0, 25), FREE)
def test_the_value_is_no_less_than_any_packing(worths: list[int], cpu: int, free: list[int]) -> None:
    demand, worth = demand_of(*KINDS), np.array(worths, dtype=np.float64)
    table = ValueTable.of(demand, worth, 3)
    assert value(table, cpu, *free) >= exhaustive(demand, worth, cpu, tuple(free)) - 1e-6


@pytest.mark.slow
@given(WORTHS, st.integers(0, 40), st.integers(0, 20), FREE, st.integers(0, 2), st.sampled_from([0, 200, 400]))
def test_more_capacity_is_never_worth_less(
    worths: list[int], cpu: int, more_cpu: int, free: list[int], device: int, more: int
) -> None:
    demand = demand_of(*KINDS, (20, 3, 1000))
    table = ValueTable.of(demand, np.array([*worths, 2500], dtype=np.float64), 3)
    larger = list(free)
    larger[device] = min(larger[device] + more, 1000)
    assert value(table, cpu + more_cpu, *larger) >= value(table, cpu, *free) - 1e-6
