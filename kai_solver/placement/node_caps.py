"""What the caps of a gang's queues leave for one pod whose price depends on the node (requests by GPU memory)."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.planstate.state import State
from kai_solver.units import GPU, UNLIMITED

BoolArray = NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class NodeCaps:
    """Of one pod: GPU milli that it costs on each node (N,), and what its queues may still pay."""

    costs: NDArray[np.int64]
    limit_left: int | None
    quota_left: int | None

    @classmethod
    def of(cls, state: State, pod: int) -> "NodeCaps":
        """The caps of every queue from the pod's own up to the root; quotas bind non-preemptible work alone."""
        problem = state.problem
        gang = problem.gangs[problem.pod_gang[pod]]
        tree = problem.queues
        costs = problem.shapes.milli(problem.pod_shape[pod]) * problem.pods[pod].gpu.devices
        path = tree.path[gang.queue]
        limits = [tree.limits[q][GPU] - state.allocated[q][GPU] for q in path if tree.limits[q][GPU] != UNLIMITED]
        quotas = [tree.quotas[q][GPU] - state.allocated_fixed[q][GPU] for q in path if tree.quotas[q][GPU] != UNLIMITED]
        fixed = quotas if not gang.gang.preemptible else []
        return cls(costs, min(limits, default=None), min(fixed, default=None))

    def affordable(self) -> BoolArray:
        """(N,) True where the pod stays within every cap."""
        mask = np.ones(len(self.costs), dtype=np.bool_)
        for left in (self.limit_left, self.quota_left):
            if left is not None:
                mask &= self.costs <= left
        return mask
