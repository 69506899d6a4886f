"""Nodes that domains keep free: how many of those that nobody is left on may be taken at the most."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem, Spares

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

SPARES = "spares"
"""The rule, where a bound or the model is asked without it, and the kind of its element."""


class FreeNodes:
    """``free``: (N,) nodes that nobody is left on."""

    def __init__(self, spares: Spares, free: BoolArray) -> None:
        self._limits: list[list[tuple[IntArray, int]]] = []
        for rule in spares.rules:
            limits: list[tuple[IntArray, int]] = []
            for domain, room in enumerate(rule.room.tolist()):
                inside = rule.domain_of == domain
                nodes = np.flatnonzero(inside & free)
                most = max(0, room - int((inside & ~free).sum()))
                if most < len(nodes):
                    limits.append((nodes, most))
            self._limits.append(limits)

    def most(self, fit: IntArray) -> int:
        """Most of ``fit`` (N,) that there is with no more free nodes in use than may be; by one rule, the strictest.

        A node may be in domains of several topologies, so what each of them takes away is not added up.
        """

        def lost(limits: list[tuple[IntArray, int]]) -> int:
            return sum(int(np.sort(fit[nodes])[: len(nodes) - most].sum()) for nodes, most in limits)

        return int(fit.sum()) - max((lost(limits) for limits in self._limits), default=0)


def free_nodes(problem: Problem, gone: IntArray) -> FreeNodes | None:
    """The same once the pods ``gone`` have left; None where no node is kept free."""
    spares = problem.spares
    if spares is None:
        return None
    users = spares.in_use.copy()
    nodes = np.array(problem.pod_node, dtype=np.int64)[gone]
    np.subtract.at(users, nodes, 1)
    return FreeNodes(spares, users == 0)
