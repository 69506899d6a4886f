"""Counting bounds: each one's yes and no; and none ever refutes what a search over all placements finds."""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.bounds import Relaxed, count_bound
from kai_solver.domain import (
    Blocker,
    Constraints,
    Gang,
    GpuRequest,
    Node,
    Pod,
    Queue,
    Requirement,
    Snapshot,
    flat_gang,
)
from kai_solver.planstate.state import State
from kai_solver.problem import Problem, build_problem
from kai_solver.units import MILLI, ResourceSchema

GIB = 2**30
BIG = Constraints(node_terms=(((Requirement("size", "In", ("big",)),),),))


def a_problem(gpus: Sequence[int], pods: Sequence[Pod], *, cpu: int = 4000, memory_mib: int = 100) -> Problem:
    """Nodes with these GPUs; those with three and more are ``big``."""
    nodes = tuple(
        Node(
            f"n{i}",
            (cpu, 8 * GIB, count * MILLI, 10),
            gpus=count,
            gpu_memory_mib=memory_mib,
            labels={"size": "big" if count > 2 else "small"},
        )
        for i, count in enumerate(gpus)
    )
    gang = Gang("ns", "g", "q", flat_gang(len(pods)), tuple(pods))
    return build_problem(Snapshot(0.0, ResourceSchema(), nodes, (Queue("q"),), (gang,)))


def a_pod(index: int, gpu: GpuRequest, *, cpu: int = 100, constraints: Constraints | None = None) -> Pod:
    more = constraints or Constraints()
    return Pod("ns", f"p{index}", (cpu, GIB, 0, 1), gpu, constraints=more, order=(0, float(index), ""))


def judged(
    problem: Problem, domains: Sequence[Sequence[int]] | None = None, first: int | None = None
) -> Blocker | None:
    """The bound on the first pods beside the others (all of them where ``first`` is None), in an empty cluster."""
    state = State(problem)
    shapes = problem.pod_shape
    masks = None
    if domains is not None:
        masks = [np.isin(np.arange(len(problem.nodes)), nodes) for nodes in domains]
    needed, beside = Counter(shapes[:first]), Counter(shapes[len(shapes) if first is None else first :])
    return count_bound(problem, Relaxed(state.future, state.device_future), needed, beside, masks)


def many(count: int, gpu: GpuRequest, **more: int) -> list[Pod]:
    return [a_pod(i, gpu, **more) for i in range(count)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("gpus", "pods", "kind"),
    [
        pytest.param([2, 2], many(2, GpuRequest(2)), None, id="two pods of two GPUs"),
        pytest.param([2, 1, 1], many(2, GpuRequest(2)), "resource", id="GPUs enough in all, but not on one node"),
        pytest.param([4], many(5, GpuRequest(0), cpu=1000), "resource", id="CPU"),
        pytest.param([4], many(4, GpuRequest(0), cpu=1000), None, id="CPU just enough"),
        pytest.param([1], many(2, GpuRequest(1, 500)), None, id="two halves"),
        pytest.param([1], many(3, GpuRequest(1, 500)), "resource", id="three halves of one"),
        pytest.param([2], many(2, GpuRequest(2, 500)), None, id="halves of two devices, twice"),
        pytest.param([1], many(1, GpuRequest(1, 0, 101)), "resource", id="more memory than a device has"),
        pytest.param([3, 1], [a_pod(0, GpuRequest(1), constraints=BIG)], None, id="a node that it selects"),
        pytest.param([2, 1], [a_pod(0, GpuRequest(1), constraints=BIG)], "resource", id="no node that it selects"),
    ],
)
def test_one_shape(gpus: Sequence[int], pods: Sequence[Pod], kind: str | None) -> None:
    found = judged(a_problem(gpus, pods))
    assert (found.kind if found is not None else None) == kind


def test_a_blocker_says_what_is_needed_and_what_there_is() -> None:
    assert judged(a_problem([2, 1], many(2, GpuRequest(2)))) == Blocker(
        "resource", "2 GPUs", "2 pods of 2 GPUs", "room for 1"
    )


def test_one_domain_must_hold_all() -> None:
    problem = a_problem([1, 1, 1, 1], many(3, GpuRequest(1)))
    assert judged(problem) is None
    found = judged(problem, domains=[[0, 1], [2, 3]])
    assert found == Blocker("domain", "one domain", "3 pods of 1 GPU in one domain", "room for 2")
    assert judged(problem, domains=[[0, 1, 2], [3]]) is None
    assert judged(problem, domains=[]) is not None


def test_slots_of_one_size_serve_the_larger_ones_too() -> None:
    """Two pods of two and one of three, on nodes of three and three: each fits alone, together they lack a slot."""
    pods = [a_pod(0, GpuRequest(2)), a_pod(1, GpuRequest(2)), a_pod(2, GpuRequest(3))]
    found = judged(a_problem([3, 3], pods))
    assert found == Blocker(
        "resource", "gpu", "3 sets of 2 GPUs, each on one node", "2 sets of 2 GPUs, each on one node"
    )
    assert judged(a_problem([3, 3, 2], pods)) is None


def test_what_runs_beside_counts_too() -> None:
    problem = a_problem([2, 2], many(3, GpuRequest(2)))
    assert judged(problem, first=2) is not None
    assert judged(a_problem([2, 2], many(2, GpuRequest(2))), first=1) is None


def test_totals_of_a_resource() -> None:
    pods = [a_pod(0, GpuRequest(0), cpu=2500), a_pod(1, GpuRequest(0), cpu=2000)]
    found = judged(a_problem([0], pods))
    assert found == Blocker("resource", "cpu", "4.5 CPU cores", "4 CPU cores")


# -- never a false no ----------------------------------------------------------------------------------------------


def can_place(rows: tuple[tuple[int, ...], ...], allowed: Mapping[int, frozenset[int]], pods: Sequence[Pod]) -> bool:
    """Is there a place for every pod? Rows are (free CPU, free milli by device) per node."""
    if not pods:
        return True
    pod = pods[0]
    for number in allowed[len(pods)]:
        row = rows[number]
        if row[0] < pod.request[0]:
            continue
        fitting = [d for d in range(1, len(row)) if row[d] >= pod.gpu.milli]
        for devices in combinations(fitting, pod.gpu.devices):
            left = tuple(x - pod.gpu.milli * (d in devices) if d else x - pod.request[0] for d, x in enumerate(row))
            if can_place((*rows[:number], left, *rows[number + 1 :]), allowed, pods[1:]):
                return True
    return False


@pytest.mark.slow
@given(
    gpus=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    requests=st.lists(
        st.tuples(
            st.sampled_from(
                [GpuRequest(0), GpuRequest(1), GpuRequest(2), GpuRequest(3), GpuRequest(1, 500), GpuRequest(2, 500)]
            ),
            st.sampled_from([100, 1500]),
            st.sampled_from([None, None, BIG]),
        ),
        min_size=1,
        max_size=4,
    ),
    first=st.integers(1, 4),
    split=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_a_bound_never_refutes_what_can_be_placed(
    gpus: list[int], requests: list[tuple[GpuRequest, int, Constraints | None]], first: int, split: bool
) -> None:
    pods = [a_pod(i, gpu, cpu=cpu, constraints=more) for i, (gpu, cpu, more) in enumerate(requests)]
    problem = a_problem(gpus, pods)
    first = min(first, len(pods))
    domains = [[n for n in range(len(gpus)) if n % 2 == side] for side in (0, 1)] if split else [list(range(len(gpus)))]
    rows = tuple((4000, *[MILLI] * count) for count in gpus)

    def allowed(domain: Sequence[int]) -> dict[int, frozenset[int]]:
        found = {}
        for index, (_, _, constraint) in enumerate(requests):
            inside = set(domain) if index < first else set(range(len(gpus)))
            found[len(pods) - index] = frozenset(n for n in inside if constraint is None or gpus[n] > 2)
        return found

    if any(can_place(rows, allowed(domain), pods) for domain in domains):
        assert judged(problem, domains if split else None, first) is None
