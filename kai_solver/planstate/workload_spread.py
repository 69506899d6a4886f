"""How the pods of one workload lie: at most so many of them (or of their GPUs) on a node, on at least so many nodes.

A workload that comes (or moves) takes a node of its own for every pod until it is on ``min_nodes`` nodes: with the
pods that stay on S nodes and a pods that come, they finally are on at least ``min(min_nodes, S + a)``. Nodes that
hold too much already (a rule that came later) get nothing more; pods that run there may stay.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import GangShape, Problem
from kai_solver.units import MILLI

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(slots=True)
class PlacementTerms:
    """(N,) pods of one workload per node, and thousandths of GPUs that they hold there."""

    pods: IntArray
    milli: IntArray

    @classmethod
    def empty(cls, nodes: int) -> "PlacementTerms":
        """No pods anywhere."""
        return cls(np.zeros(nodes, dtype=np.int64), np.zeros(nodes, dtype=np.int64))


class WorkloadSpread:
    """Where the pods of those workloads are that mind how they lie, kept up to date.

    ``members``: the gangs of each workload, by its number; ``of``: where its pods are.
    """

    def __init__(self, problem: Problem) -> None:
        self.members = families(problem)
        self.of = {family: PlacementTerms.empty(len(problem.nodes)) for family in self.members}
        self._problem = problem
        for gangs in self.members.values():
            for pod in (pod for gang in gangs for pod in problem.gangs[gang].active):
                if problem.pod_node[pod] >= 0:
                    self.shift(pod, problem.pod_node[pod], +1)

    def shift(self, pod: int, node: int, sign: int) -> None:
        """Count ``pod`` on ``node`` (+1), or no longer (-1)."""
        family = self._problem.gangs[self._problem.pod_gang[pod]].family
        if family >= 0:
            crowd = self.of[family]
            crowd.pods[node] += sign
            crowd.milli[node] += sign * gpu_milli(self._problem, pod, node)

    def has_any(self, family: int) -> bool:
        """True where a pod of the workload is, or is to be, on some node."""
        return bool(self.of[family].pods.any())


def gpu_milli(problem: Problem, pod: int, node: int) -> int:
    """GPUs (thousandths) that ``pod`` takes of ``node``."""
    shape = problem.pod_shape[pod]
    return problem.shapes.shapes[shape].gpu.devices * int(problem.shapes.milli(shape)[node])


def admitting(problem: Problem, gang: GangShape, pod: int, crowd: PlacementTerms) -> BoolArray:
    """(N,) nodes where ``pod`` may join the others of its workload."""
    rule, shape = gang.placement, problem.pod_shape[pod]
    mask: BoolArray = np.ones(len(crowd.pods), dtype=np.bool_)
    if rule.max_pods_per_node is not None:
        mask &= crowd.pods < rule.max_pods_per_node
    devices = problem.shapes.shapes[shape].gpu.devices
    if rule.max_gpus_per_node is not None and devices:
        mask &= crowd.milli + devices * problem.shapes.milli(shape) <= rule.max_gpus_per_node * MILLI
    if rule.min_nodes and np.count_nonzero(crowd.pods) < rule.min_nodes:
        mask &= crowd.pods == 0
    return mask


def families(problem: Problem) -> dict[int, list[int]]:
    """Gangs by the number of their workload, if it matters which pods are beside which."""
    found: dict[int, list[int]] = {}
    for gang in problem.gangs:
        if gang.family >= 0:
            found.setdefault(gang.family, []).append(gang.index)
    return found


def is_kept(
    problem: Problem, gang: GangShape, active: Sequence[Iterable[int]], places: Mapping[int, int], crowd: PlacementTerms
) -> bool:
    """True where the workload of ``gang`` lies as its rule asks.

    ``active``: its pods that run or will, by gang; ``places``: node of those that got one in this cycle.
    """
    rule = gang.placement
    pods = [pod for found in active for pod in found]
    come = [pod for pod in pods if pod in places]
    if not rule.is_rule or not come:
        return True
    targets = {places[pod] for pod in come}
    if rule.max_pods_per_node is not None and any(crowd.pods[n] > rule.max_pods_per_node for n in targets):
        return False
    with_gpus = {places[pod] for pod in come if problem.pods[pod].gpu.devices}
    if rule.max_gpus_per_node is not None and any(crowd.milli[n] > rule.max_gpus_per_node * MILLI for n in with_gpus):
        return False
    stay = {problem.pod_node[pod] for pod in pods if pod not in places}
    return len(stay | targets) >= min(rule.min_nodes or 0, len(stay) + len(come))
