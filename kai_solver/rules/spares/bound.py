"""Nodes that domains keep free: how many of the nodes without users may be taken at most."""

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem
from kai_solver.problem.rules import RuleBound
from kai_solver.rules.spares.problem import NAME, Spares

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class FreeNodes(RuleBound):
    """``free``: (N,) nodes without a user."""

    kind = NAME
    spans = True

    def __init__(self, problem: Problem, spares: Spares, free: BoolArray) -> None:
        self._shapes = problem.shapes.shapes
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

    def most(self, shape: int, fit: IntArray, /) -> int:
        """Most of ``fit`` (N,) that there is with no more free nodes in use than may be; by one rule, the strictest.

        A node may be in domains of several topologies, so what each of them takes away is not added up.
        """
        if self._shapes[shape].constraints.may_use_spares:
            return int(fit.sum())

        def lost(limits: list[tuple[IntArray, int]]) -> int:
            return sum(int(np.sort(fit[nodes])[: len(nodes) - most].sum()) for nodes, most in limits)

        return int(fit.sum()) - max((lost(limits) for limits in self._limits), default=0)


def free_nodes(problem: Problem, spares: Spares, gone: IntArray) -> FreeNodes:
    """The nodes without a user once the pods ``gone`` have left."""
    users = spares.in_use.copy()
    nodes = problem.columns.node[gone]
    np.subtract.at(users, nodes, 1)
    return FreeNodes(problem, spares, users == 0)
