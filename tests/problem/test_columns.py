"""Columns say of each pod what the pod itself says."""

from random import Random

import numpy as np
import pytest

from kai_solver.problem import build_problem
from tests.problem.test_memo import a_cluster


@pytest.mark.parametrize("seed", range(30))
def test_a_column_says_what_each_pod_says(seed: int) -> None:
    problem = build_problem(a_cluster(Random(seed)))
    columns, pods = problem.columns, problem.pods
    assert columns.node.tolist() == problem.pod_node
    assert columns.shape.tolist() == problem.pod_shape
    assert columns.gang.tolist() == problem.pod_gang
    assert [tuple(row) for row in columns.charge.tolist()] == problem.charges
    assert columns.shares.tolist() == [pod.gpu.is_shared for pod in pods]
    assert columns.is_replaced.tolist() == [pod.is_replaced for pod in pods]
    assert columns.devices.tolist() == [len(problem.held_devices.get(pod, ())) for pod in range(len(pods))]


@pytest.mark.parametrize("seed", range(30))
def test_held_devices_come_pod_by_pod_with_their_parts(seed: int) -> None:
    problem = build_problem(a_cluster(Random(seed)))
    draw = np.random.default_rng(seed)
    chosen = draw.permutation(len(problem.pods))[: len(problem.pods) // 2]
    rows = problem.columns.held(chosen)
    wanted = [
        (at, device, int(problem.shapes.parts(problem.pod_shape[pod])[problem.pod_node[pod]]))
        for at, pod in enumerate(chosen.tolist())
        for device in problem.held_devices.get(pod, ())
    ]
    assert list(zip(*(row.tolist() for row in rows), strict=True)) == wanted
