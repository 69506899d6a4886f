"""Workloads with a rule or a preference of how their pods lie, in the problem of a cycle."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Placement
from kai_solver.problem import Problem
from kai_solver.problem.capacity import MANY
from kai_solver.problem.rules import Spacing
from kai_solver.rules.workload_spread.words import say_most
from kai_solver.units import MILLI

IntArray = NDArray[np.int64]

NAME = "placement"
"""The rule, its family of rows, and the kind of its element."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload whose rule says how its pods lie on nodes, for the rows.

    Attributes
    ----------
    gangs
        Its gangs.
    fixed
        By node, pods of it that the model does not touch, and the thousandths of GPUs that they hold.
    """

    gangs: frozenset[int]
    rule: Placement
    fixed: Mapping[int, tuple[int, int]]


class PlacementSpacing(Spacing):
    """The same for counts."""

    kind = NAME

    def __init__(self, rule: Placement) -> None:
        self._rule = rule
        self.nodes = rule.min_nodes or 0
        self.says = say_most(rule)

    def most(self, problem: Problem, shape: int, /) -> IntArray:
        rule, most = self._rule, np.full(len(problem.nodes), MANY, dtype=np.int64)
        if rule.max_pods_per_node is not None:
            np.minimum(most, rule.max_pods_per_node, out=most)
        milli = problem.shapes.milli(shape) * problem.shapes.shapes[shape].gpu.devices
        if rule.max_gpus_per_node is not None:
            np.minimum(most, rule.max_gpus_per_node * MILLI // np.maximum(milli, 1), out=most, where=milli > 0)
        return most


def workloads(problem: Problem) -> dict[int, list[int]]:
    """Gangs by the number of their workload, where it matters which of its pods are beside which."""
    found: dict[int, list[int]] = {}
    for gang in problem.gangs:
        if gang.family >= 0:
            found.setdefault(gang.family, []).append(gang.index)
    return found


def gpu_milli(problem: Problem, pod: int, node: int) -> int:
    """GPUs (thousandths) that ``pod`` takes of ``node``."""
    shape = problem.pod_shape[pod]
    return problem.shapes.shapes[shape].gpu.devices * int(problem.shapes.milli(shape)[node])
