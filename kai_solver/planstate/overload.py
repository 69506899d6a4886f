"""Nodes that held more than they have when the cycle began, as when one shrank: pods that run there may stay.

As long as no pod comes that asks for more of it (`check.capacity`), so much may be held as was held before.
"""

from collections.abc import Collection, Mapping
from typing import Protocol

import numpy as np

from kai_solver.problem import Problem

NOTHING: frozenset[int] = frozenset()


class Seat(Protocol):
    """A place as far as it matters here."""

    @property
    def node(self) -> int:
        """The node."""
        ...


class Overload:
    """``nodes``: by node, the resources of which it held more than it has."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        over = problem.held - problem.releasing > problem.capacity
        chosen = np.flatnonzero(over.any(axis=0)).tolist()
        self.nodes = {node: frozenset(np.flatnonzero(over[:, node]).tolist()) for node in chosen}

    def excused(self, node: int, places: Mapping[int, Seat]) -> Collection[int]:
        """Resources of ``node`` that need no room for pods that ran there: no pod with a place there asks for them."""
        over = self.nodes.get(node)
        if over is None:
            return NOTHING
        shapes, shape_of = self._problem.shapes.shapes, self._problem.pod_shape
        requests = [shapes[shape_of[pod]].request for pod, seat in places.items() if seat.node == node]
        return [resource for resource in over if not any(request[resource] for request in requests)]
