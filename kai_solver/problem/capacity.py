"""How many pods of a shape a node takes, resource by resource: the count that bounds, models and fits share."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem.problem import Problem
from kai_solver.units import GPU, Vector
from kai_solver.units.rows import row_sums
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.int64]

NODE_RULES = "node-rules"
"""What pods and nodes ask of each other beside resources, where a count is asked without it."""
NOTHING: frozenset[str] = frozenset()
ENDLESS = 1 << 60
"""Room of a resource that a count is asked without."""
MANY = 1 << 20
"""Pods that no node takes: stands for "as many as you like" of a shape that asks for nothing."""


def fitting(
    problem: Problem,
    free: IntArray,
    device_free: IntArray,
    shape: int,
    admits: BoolArray | None = None,
    dropped: frozenset[str] = NOTHING,
) -> IntArray:
    """(N,) how many pods of ``shape`` fit each node alone, given (R, N) and (N, D) what is free.

    Exact but for shapes that share several devices at once, or that need NUMA zones, where it is an upper bound.
    ``admits``: nodes (N,) that take the shape at all; by default those that its mask names. ``dropped``: kinds of
    optional rules that do not bind.
    """
    spec = problem.shapes.shapes[shape]
    count = fitting_beside_gpus(spec.request, free, problem.shapes.mask(shape) if admits is None else admits)
    np.minimum(count, fitting_on_devices(problem, device_free, shape), out=count)
    return np.maximum(limited_by_rules(problem, count, device_free, shape, dropped), 0)


def fitting_on_devices(problem: Problem, device_free: IntArray, shape: int) -> IntArray:
    """(N,) for how many pods of ``shape`` the devices of each node suffice, given (N, D) what is free of them.

    An upper bound for shapes that share several devices at once; exact for others.
    """
    gpu = problem.shapes.shapes[shape].gpu
    if not gpu.devices:
        return np.full(len(device_free), MANY, dtype=np.int64)
    if gpu.is_whole:
        return row_sums(device_free >= WHOLE) // gpu.devices
    parts = np.maximum(problem.shapes.parts(shape), 1)[:, None]
    return row_sums(np.maximum(device_free, 0) // parts) // gpu.devices


def limited_by_rules(
    problem: Problem, count: IntArray, device_free: IntArray, shape: int, dropped: frozenset[str] = NOTHING
) -> IntArray:
    """``count`` (N,), lowered to the pods of ``shape`` that each node takes by the optional rules that bind."""
    for facts in problem.rules:
        if facts.kind not in dropped:
            facts.limit(problem, shape, count, device_free)
    return count


def fitting_beside_gpus(request: Vector, free: IntArray, admits: BoolArray) -> IntArray:
    """(N,) how many times ``request`` fits what is ``free`` (R, N), GPUs aside, on the nodes that ``admits`` names.

    Negative where a node is over-committed.
    """
    count = np.where(admits, MANY, 0).astype(np.int64)
    for resource, amount in enumerate(request):
        if amount and resource != GPU:
            np.minimum(count, free[resource] // amount, out=count)
    return count
