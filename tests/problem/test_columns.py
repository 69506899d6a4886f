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
def test_a_column_says_what_each_gang_says(seed: int) -> None:
    problem = build_problem(a_cluster(Random(seed)))
    columns, shapes = problem.gang_columns, [*problem.gangs]
    gangs, nodes = [shape.gang for shape in shapes], problem.pod_node
    for gang, first in zip(gangs, columns.first.tolist(), strict=True):
        assert problem.pods[first : first + len(gang.pods)] == gang.pods
    assert columns.queue.tolist() == [shape.queue for shape in shapes]
    assert columns.priority.tolist() == [gang.priority for gang in gangs]
    assert columns.preemptible.tolist() == [gang.preemptible for gang in gangs]
    assert columns.minimum.tolist() == [sum(leaf.min_member for leaf in shape.leaves) for shape in shapes]
    assert columns.active.tolist() == [len(shape.active) for shape in shapes]
    assert columns.is_flat.tolist() == [shape.is_flat for shape in shapes]
    assert columns.waiting == [shape.index for shape in shapes if shape.waits]
    assert columns.pending == [shape.index for shape in shapes if shape.pending]
    assert columns.stale == [i for i, gang in enumerate(gangs) if gang.stale_since_s is not None]
    assert columns.with_leaves == [shape.index for shape in shapes if len(shape.leaves) != 1]
    assert columns.has_families == any(shape.family >= 0 for shape in shapes)
    starts_s = [gang.created_s if gang.last_start_s is None else gang.last_start_s for gang in gangs]
    assert columns.start_s.tolist() == starts_s
    pods, owner = columns.active_pods
    assert list(zip(pods.tolist(), owner.tolist(), strict=True)) == [(p, s.index) for s in shapes for p in s.active]
    lies = [bool(shape.active) and all(nodes[pod] >= 0 for pod in shape.active) for shape in shapes]
    assert columns.lies.tolist() == lies


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
