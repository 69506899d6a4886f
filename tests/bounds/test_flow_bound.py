"""Flow: sees what counts of single shapes cannot, and never refutes what a search over all placements finds."""

from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.bounds import Relaxed, count_bound
from kai_solver.bounds.flow import flow_shortfall
from kai_solver.domain import Constraints, GpuRequest, Pod
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.units import MILLI
from tests.bounds.test_counting_bounds import BIG, a_pod, a_problem, can_place


def room_for(
    problem: Problem, *, dropped: frozenset[str] = frozenset(), nodes: Sequence[int] | None = None
) -> int | None:
    """Most pods that flow leaves room for; None where it sees room for all."""
    state = State(problem)
    relaxed = Relaxed(state.future, state.device_future)
    inside = None if nodes is None else np.isin(np.arange(len(problem.nodes)), nodes)
    found = flow_shortfall(problem, relaxed, Counter(problem.pod_shape), {}, inside, dropped)
    return None if found is None else found.have


def crowd() -> list[Pod]:
    """Six pods of one GPU of which two kinds, two each, are for large nodes alone."""
    kinds = [(100, BIG), (200, BIG), (100, None)]
    return [a_pod(i, GpuRequest(1), cpu=cpu, constraints=more) for i, (cpu, more) in enumerate(kinds * 2)]


def test_two_kinds_share_the_few_nodes_that_take_them() -> None:
    problem = a_problem([3, 2, 2], crowd())
    state = State(problem)
    needed = Counter(problem.pod_shape)
    assert count_bound(problem, Relaxed(state.future, state.device_future), needed, {}, None) is None
    assert room_for(problem) == 5
    assert room_for(a_problem([4, 2, 2], crowd())) is None


def test_what_is_dropped_does_not_bind() -> None:
    problem = a_problem([3, 2, 2], crowd())
    assert room_for(problem, dropped=frozenset(["gpu"])) is None
    assert room_for(problem, dropped=frozenset(["node-rules"])) is None
    assert room_for(problem, dropped=frozenset(["cpu", "memory", "pods"])) == 5


def test_in_one_domain() -> None:
    assert room_for(a_problem([4, 2, 2], crowd()), nodes=[0, 1]) is None
    assert room_for(a_problem([4, 2, 2], crowd()), nodes=[0]) == 4


@pytest.mark.slow
@given(
    gpus=st.lists(st.integers(0, 4), min_size=1, max_size=3),
    requests=st.lists(
        st.tuples(
            st.sampled_from([GpuRequest(0), GpuRequest(1), GpuRequest(2), GpuRequest(1, 500), GpuRequest(2, 500)]),
            st.sampled_from([100, 700, 1500]),
            st.sampled_from([None, None, BIG]),
        ),
        min_size=2,
        max_size=5,
    ),
)
@settings(max_examples=200, deadline=None)
def test_flow_never_refutes_what_can_be_placed(
    gpus: list[int], requests: list[tuple[GpuRequest, int, Constraints | None]]
) -> None:
    pods = [a_pod(i, gpu, cpu=cpu, constraints=more) for i, (gpu, cpu, more) in enumerate(requests)]
    allowed = {
        len(pods) - i: frozenset(n for n in range(len(gpus)) if more is None or gpus[n] > 2)
        for i, (_, _, more) in enumerate(requests)
    }
    if can_place(tuple((4000, *[MILLI] * count) for count in gpus), allowed, pods):
        assert room_for(a_problem(gpus, pods)) is None
