"""On which nodes it is known which GPUs are free, while pods come and go: rows are promised only there."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.reduction import Problem
from kai_solver.reduction.gpurows import needs_row

if TYPE_CHECKING:
    from kai_solver.greedy.state import Place

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_NEVER = 1 << 30
"""Strangers of a node of which some devices may not be had, and nobody says which."""


class StrangerLedger:
    """Strangers by node: pods that stay whose GPUs nobody can name, and those that start among them.

    Who waits until strangers have left is no stranger: then it is known what is free.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._staying: IntArray = np.where(problem.gpus == problem.devices, 0, _NEVER)
        self._is_met: BoolArray = np.zeros(len(problem.nodes), dtype=np.bool_)
        for pod in problem.strangers:
            node = problem.pod_node[pod]
            self._is_met[node] = True
            self._staying[node] += problem.pods[pod].status is not PodStatus.RELEASING

    @property
    def known_now(self) -> BoolArray:
        """(N,) where it is known which GPUs are free at once."""
        return self._problem.is_told

    @property
    def known_later(self) -> BoolArray:
        """(N,) where it is known which are free once all have left who are leaving."""
        found: BoolArray = self._staying == 0
        return found

    def staying(self, node: int) -> int:
        """Strangers of ``node`` that stay there."""
        return int(self._staying[node])

    def ran(self, pod: int, sign: int) -> None:
        """A running pod leaves (+1), or stays after all (-1)."""
        if pod in self._problem.strangers:
            self._staying[self._problem.pod_node[pod]] -= sign

    def placed(self, place: "Place", sign: int) -> None:
        """A pod is put on a node (-1), or taken from there (+1)."""
        if place.now and place.devices and self._is_met[place.node]:
            self._staying[place.node] -= sign

    def bar(self, pod: int, places: Mapping[int, "Place"]) -> bool:
        """True for a stranger who left a node where somebody was promised a row since."""
        problem = self._problem
        if pod not in problem.strangers:
            return False
        node, shapes = problem.pod_node[pod], problem.shapes.shapes
        return any(p.node == node and needs_row(shapes[problem.pod_shape[who]].gpu) for who, p in places.items())
