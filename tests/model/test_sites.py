"""Sites: what a fold of nodes says must hold for every way to fill them."""

from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kai_solver.domain import Gang as DomainGang
from kai_solver.domain import GpuRequest, Node, Pod, Queue, Snapshot, flat_gang
from kai_solver.model.sites import IntArray, Sites, _functions, fold
from kai_solver.problem import Problem, build_problem
from kai_solver.units import MILLI, UNLIMITED, ResourceSchema

ENDLESS = (UNLIMITED, UNLIMITED, UNLIMITED)
GIB = 2**30


def a_problem(cores: list[int], gpus: int, *requests: GpuRequest) -> Problem:
    """Empty nodes, and one waiting gang a request."""
    nodes = tuple(
        Node(
            f"n{i}", (c * 1000, 64 * GIB, gpus * MILLI, 30), gpus=gpus, gpu_memory_mib=100, labels={"rack": f"r{i % 2}"}
        )
        for i, c in enumerate(cores)
    )
    gangs = tuple(
        DomainGang("ns", f"w{i}", "q", flat_gang(1), (Pod("ns", f"w{i}", (1000, GIB, 0, 1), gpu),))
        for i, gpu in enumerate(requests)
    )
    return build_problem(Snapshot(0.0, ResourceSchema(), nodes, (Queue("q", quota=ENDLESS, limit=ENDLESS),), gangs))


def a_fold(problem: Problem, most_places: int = 1000) -> tuple[list[int], Sites]:
    shapes = sorted(set(problem.pod_shape))
    sites = fold(problem, problem.capacity, problem.device_free, shapes, [], most_places)
    return [problem.pod_shape[i] for i in range(len(problem.gangs))], sites


@given(shares=st.lists(st.integers(1, 999), min_size=1, max_size=6), sizes=st.lists(st.integers(1, MILLI), max_size=8))
def test_no_set_of_shares_that_fits_a_device_breaks_a_row(shares: list[int], sizes: list[int]) -> None:
    """Superadditive: what several take in a row's measure is at most the measure of what they take together."""
    for f in _functions(np.array(shares)):
        for room in (MILLI, sum(sizes[:3]), 700):
            packed: list[int] = []
            for size in sizes:
                if sum(packed) + size <= min(room, MILLI):
                    packed.append(size)
            assert f(np.array(packed, dtype=np.int64)).sum() <= f(np.array([min(room, MILLI)]))[0]


def test_more_than_half_of_a_device_takes_a_device() -> None:
    problem = a_problem([16, 16], 2, GpuRequest(1, 600), GpuRequest(1, 300))
    (large, small), sites = a_fold(problem)
    asked = {count: _has_places(sites, {large: count}) for count in (4, 5)}
    assert asked == {4: True, 5: False}
    assert _has_places(sites, {large: 4, small: 4})
    assert not _has_places(sites, {large: 4, small: 6}), "0.4 of a device takes one 0.3, not two"


@pytest.mark.parametrize(("fours", "threes", "fits"), [(2, 0, True), (1, 1, True), (0, 2, True), (2, 1, False)])
def test_slots_of_whole_devices(fours: int, threes: int, fits: bool) -> None:
    problem = a_problem([16, 16], 4, GpuRequest(4), GpuRequest(3))
    (four, three), sites = a_fold(problem)
    assert _has_places(sites, {four: fours, three: threes}) is fits


@pytest.mark.parametrize("most_places", [1000, 0])
def test_nodes_that_differ_only_in_what_is_free_may_share_a_site(most_places: int) -> None:
    problem = a_problem([1, 2, 4, 4], 2, GpuRequest(1))
    (shape,), sites = a_fold(problem, most_places)
    assert sites.most.shape[1] == (3 if most_places else 1)
    assert int(sites.most.sum()) == 1 + 2 + 2 + 2
    assert _has_places(sites, {shape: 7})
    assert not _has_places(sites, {shape: 8})


def _has_places(sites: Sites, crowd: dict[int, int]) -> bool:
    """Whether some way to share out the pods of ``crowd`` among the (few) sites keeps every row."""
    count = sites.most.shape[1]

    def ways(row: int, pods: int) -> list[IntArray]:
        picks = combinations_with_replacement(range(count), pods)
        found = [np.bincount(np.array(pick, dtype=np.int64), minlength=count) for pick in picks]
        return [way for way in found if (way <= sites.most[row]).all()]

    each = [ways(row, crowd.get(shape, 0)) for row, shape in enumerate(sites.shapes)]
    return any(
        all(((row.weight * np.array(pods)).sum(axis=0) <= row.capacity).all() for row in sites.rows)
        for pods in product(*each)
    )
