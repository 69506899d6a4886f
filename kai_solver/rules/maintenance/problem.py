"""Which nodes are to be drained, and when; which of them are closed to a shape is said by its constraints.

What each pod says is written before there is a problem (`problem/maintenance.py`). KAI has no such rule;
docs/placement.md#maintenance.
"""

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

NAME = "maintenance"
"""The rule, its family of rows, and the kind of its element."""


class DrainTimes:
    """``at_s``: (N,) epoch seconds at which each node is drained; infinite for those that are not."""

    def __init__(self, problem: Problem, at_s: FloatArray) -> None:
        self.at_s = at_s
        self._shapes = problem.shapes.shapes
        self._closed: dict[float, BoolArray] = {}

    def closes(self, shape: int) -> bool:
        """Whether any node is closed to pods of ``shape``."""
        return self._shapes[shape].constraints.closed_until_s is not None

    def closed(self, shape: int) -> BoolArray | None:
        """(N,) nodes where no pod of ``shape`` may start; None: none."""
        until_s = self._shapes[shape].constraints.closed_until_s
        if until_s is None:
            return None
        if until_s not in self._closed:
            self._closed[until_s] = self.at_s <= until_s
        return self._closed[until_s]


def drain_times_of(problem: Problem) -> DrainTimes | None:
    """The drain times of the cycle's nodes; None where there are none."""
    said = [node.drain_at_s for node in problem.nodes]
    if all(moment_s is None for moment_s in said):
        return None
    return DrainTimes(problem, np.array([np.inf if s is None else s for s in said], dtype=np.float64))
