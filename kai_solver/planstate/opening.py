"""Wholly free GPU nodes, and which of them a plan opens: what the stage ``preference`` minimises."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.units.shares import WHOLE

BoolArray = NDArray[np.bool_]


def wholly_free(problem: Problem) -> BoolArray:
    """(N,) nodes with GPUs of which no device is in use once those that are leaving have left."""
    whole = ((problem.device_free + problem.device_releasing) >= WHOLE).sum(axis=1)
    free: BoolArray = (problem.gpus > 0) & (whole == problem.gpus)
    return free


def opened_nodes(state: State) -> frozenset[int]:
    """Wholly free nodes that get a pod with GPUs that is to be packed; pods that are to spread may open any."""
    is_free = wholly_free(state.problem).tolist()
    packs, shape_of = [shape.nodes == "binpack" for shape in state.problem.shapes.shapes], state.problem.pod_shape
    return frozenset(
        place.node
        for pod, place in state.places.items()
        if place.devices and is_free[place.node] and packs[shape_of[pod]]
    )
