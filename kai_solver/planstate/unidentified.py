"""On which nodes it is known which GPUs are free, while pods come and go: rows are promised only there.

A pod that comes to a node with unidentified devices where a row was promised waits until those pods have left, or its
devices would be unidentified, too.
"""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.problem import Problem
from kai_solver.problem.gpurows import needs_row

if TYPE_CHECKING:
    from kai_solver.planstate.state import Place

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_NEVER = 1 << 30
"""Pods on a node of which some devices may not be had, and it is not stated which."""


class UnidentifiedLedger:
    """Pods with unidentified devices by node: those that stay, and those that start among them.

    A pod that waits until they have left is none of them: then it is known what is free.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._staying: IntArray = np.where(problem.gpus == problem.devices, 0, _NEVER)
        self._is_met: BoolArray = np.zeros(len(problem.nodes), dtype=np.bool_)
        self._rows: Counter[int] = Counter()
        for pod in problem.unidentified:
            node = problem.pod_node[pod]
            self._is_met[node] = True
            self._staying[node] += problem.pods[pod].status is not PodStatus.RELEASING

    @property
    def known_now(self) -> BoolArray:
        """(N,) where it is known which GPUs are free at once."""
        return self._problem.devices_known

    @property
    def known_later(self) -> BoolArray:
        """(N,) where it is known which are free once all leaving pods have left."""
        found: BoolArray = self._staying == 0
        return found

    def staying(self, node: int) -> int:
        """Pods with unidentified devices that stay on ``node``."""
        return int(self._staying[node])

    def ran(self, pod: int, sign: int) -> None:
        """A running pod leaves (+1), or stays after all (-1)."""
        if pod in self._problem.unidentified:
            self._staying[self._problem.pod_node[pod]] -= sign

    def placed(self, pod: int, place: "Place", sign: int) -> None:
        """``pod`` is put on a node (-1), or taken from there (+1); an unidentified pod that returns is still one."""
        if not place.devices or not self._is_met[place.node]:
            return
        is_back = pod in self._problem.unidentified and place.node == self._problem.pod_node[pod]
        if place.now or is_back:
            self._staying[place.node] -= sign
        if needs_row(self._problem.pods[pod].gpu):
            self._rows[place.node] -= sign

    def has_row(self, node: int) -> bool:
        """Whether a row was promised on ``node`` for when its unidentified pods have left."""
        return self._rows[node] > 0

    def bar(self, pod: int) -> bool:
        """True for an unidentified pod that left a node where a row was promised since."""
        return pod in self._problem.unidentified and self.has_row(self._problem.pod_node[pod])
