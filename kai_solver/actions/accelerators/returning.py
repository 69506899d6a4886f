"""Units that might return to where they ran, by sums: most cannot, and then nothing has to be tried."""

from collections.abc import Sequence

import numpy as np

from kai_solver.planstate.state import State


def could_return(state: State, pods: Sequence[int]) -> list[bool]:
    """False for those of the evicted ``pods`` of which sums say that they do not fit where they ran."""
    if not pods:
        return []
    problem, table = state.problem, state.problem.shapes.shapes
    shapes, nodes = [problem.pod_shape[pod] for pod in pods], [problem.pod_node[pod] for pod in pods]
    asked = problem.shapes.requests[shapes]
    fits = np.logical_or(asked <= state.future[:, nodes].T, asked <= 0).all(axis=1)
    fits |= np.array([node in state.overload.nodes for node in nodes])
    asks_gpu = np.array([shape.gpu.devices > 0 for shape in table], dtype=np.bool_)[shapes]
    able: list[bool] = (fits & (~asks_gpu | (state.gpu_free[nodes] > 0))).tolist()
    return able
