"""Which nodes are to be drained, and when; which of them are closed to a shape is said by its constraints.

What each pod says is written before there is a problem (`problem/maintenance.py`). KAI has no such rule;
docs/operating.md#maintenance.
"""

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Pod
from kai_solver.domain.moving import SUFFIX
from kai_solver.problem import Problem
from kai_solver.problem.maintenance import lead_s

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


def must_leave(problem: Problem, times: DrainTimes) -> list[tuple[int, BoolArray]]:
    """Running pods that are to be gone from their nodes soon, and the (N,) nodes where each may go.

    One of unknown run time goes where nothing is to be drained, so that no node after the other sends it away.
    """
    now_s, policy = problem.snapshot.now_s, problem.policy
    longest_s = max((pod.grace_s for pod in problem.pods), default=0.0)
    if not (times.at_s < now_s + policy.drain_lead_s + longest_s).any():
        return []
    never, found = np.isinf(times.at_s), []
    everywhere = np.ones(len(never), dtype=np.bool_)
    for number, (pod, node) in enumerate(zip(problem.pods, problem.pod_node, strict=True)):
        at_s = times.at_s[node] if node >= 0 else np.inf
        if at_s >= now_s + lead_s(policy, pod) or not pod.status.is_active or pod.name.endswith(SUFFIX):
            continue
        end_s = ends_s(pod, now_s)
        if end_s is None:
            found.append((number, never))
        elif end_s > at_s:
            closed = times.closed(problem.pod_shape[number])
            found.append((number, everywhere if closed is None else ~closed))
    return found


def ends_s(pod: Pod, now_s: float) -> float | None:
    """Epoch seconds at which a running ``pod`` ends at the latest; None: not known, or past, so that it is wrong."""
    if pod.run_time_s is None:
        return None
    end_s = (now_s if pod.started_s is None else pod.started_s) + pod.run_time_s
    return end_s if end_s > now_s else None


def drain_times_of(problem: Problem) -> DrainTimes | None:
    """The drain times of the cycle's nodes; None where there are none."""
    said = [node.drain_at_s for node in problem.nodes]
    if all(moment_s is None for moment_s in said):
        return None
    return DrainTimes(problem, np.array([np.inf if s is None else s for s in said], dtype=np.float64))
