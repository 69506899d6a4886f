"""Where the pods of workloads are while a plan is made, as far as it matters which of them share a node."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Placement, Reason
from kai_solver.model.joint import Arrival, Mover
from kai_solver.planstate.state import State
from kai_solver.problem.rules import Ledger, Refused, Weight
from kai_solver.rules.workload_spread import words
from kai_solver.rules.workload_spread.problem import NAME, PlacementSpacing, Workload, gpu_milli, workloads
from kai_solver.units import MILLI

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

MOST_TOLD_APART = 1 << 12
"""Pods of a workload on a node up to which nodes are told apart."""


class WorkloadPods:
    """(N,) pods of one workload per node, and thousandths of GPUs that they hold there."""

    __slots__ = ("milli", "pods")

    def __init__(self, nodes: int) -> None:
        self.pods: IntArray = np.zeros(nodes, dtype=np.int64)
        self.milli: IntArray = np.zeros(nodes, dtype=np.int64)


class WorkloadLedger(Ledger):
    """Pods by workload (`GangShape.family`)."""

    kind = NAME

    def __init__(self, state: State) -> None:
        problem = self._problem = state.problem
        self._state = state
        self._members = workloads(problem)
        self._of = {family: WorkloadPods(len(problem.nodes)) for family in self._members}
        for pod in (pod for gangs in self._members.values() for gang in gangs for pod in problem.gangs[gang].active):
            if problem.pod_node[pod] >= 0:
                self._shift(pod, problem.pod_node[pod], +1)

    def counts_alike(self, shape: int, /) -> bool:
        """True: pods of workloads that the rule is about are placed one by one, whatever their shape."""
        return True

    # -- steps -------------------------------------------------------------------------------------------------------

    def _shift(self, pod: int, node: int, count: int) -> None:
        family = self._problem.gangs[self._problem.pod_gang[pod]].family
        if family >= 0:
            found = self._of[family]
            found.pods[node] += count
            found.milli[node] += count * gpu_milli(self._problem, pod, node)

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        self._shift(pod, node, sign * count)

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        self._shift(pod, node, -sign * count)

    # -- nodes -------------------------------------------------------------------------------------------------------

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes where ``pod`` may join the others of its workload; None where no rule says so."""
        gang = self._problem.gangs[self._problem.pod_gang[pod]]
        rule = gang.placement
        if not rule.is_rule:
            return None
        there = self._of[gang.family]
        mask: BoolArray = np.ones(len(there.pods), dtype=np.bool_)
        if rule.max_pods_per_node is not None:
            mask &= there.pods < rule.max_pods_per_node
        devices = self._problem.shapes.shapes[shape].gpu.devices
        if rule.max_gpus_per_node is not None and devices:
            mask &= there.milli + devices * self._problem.shapes.milli(shape) <= rule.max_gpus_per_node * MILLI
        if rule.min_nodes and np.count_nonzero(there.pods) < rule.min_nodes:
            mask &= there.pods == 0
        return mask

    def closed(self, shape: int, pod: int, nodes: BoolArray, /) -> None:
        """None: `in_the_way` words it for the gang."""

    def preferences(self, shape: int, pod: int, candidates: BoolArray, /) -> Iterator[tuple[Weight, IntArray]]:
        """Nodes with the fewest pods of the workload, where these are spread."""
        gang = self._problem.gangs[self._problem.pod_gang[pod]]
        if gang.placement.nodes == "spread":
            yield Weight.WORKLOAD, -np.minimum(self._of[gang.family].pods, MOST_TOLD_APART)

    def may_return(self, pod: int, /) -> bool:
        """True: `keeps_spacing` is asked of its gang."""
        return True

    # -- gangs -------------------------------------------------------------------------------------------------------

    def keeps_spacing(self, gang: int, /) -> bool:
        """True where the workload of ``gang`` lies as its rule asks."""
        problem, places, rule = self._problem, self._state.places, self._problem.gangs[gang].placement
        if not rule.is_rule:
            return True
        family = problem.gangs[gang].family
        pods = [pod for member in self._members[family] for leaf in self._state.gangs[member].active for pod in leaf]
        come = {pod: places[pod].node for pod in pods if pod in places}
        if not come:
            return True
        there, targets = self._of[family], {*come.values()}
        if rule.max_pods_per_node is not None and any(there.pods[node] > rule.max_pods_per_node for node in targets):
            return False
        with_gpus = {node for pod, node in come.items() if problem.pods[pod].gpu.devices}
        most = rule.max_gpus_per_node
        if most is not None and any(there.milli[node] > most * MILLI for node in with_gpus):
            return False
        stay = {problem.pod_node[pod] for pod in pods if pod not in come}
        return len(stay | targets) >= min(rule.min_nodes or 0, len(stay) + len(come))

    def has_company(self, gang: int, /) -> bool:
        """Whether a pod of the workload is, or is to be, on some node."""
        shape = self._problem.gangs[gang]
        return shape.placement.is_rule and bool(self._of[shape.family].pods.any())

    def spacing(self, gang: int, /) -> PlacementSpacing | None:
        """Its least number of nodes only where the workload is nowhere yet."""
        gangs = self._problem.gangs
        rule, family = gangs[gang].placement, gangs[gang].family
        if not rule.is_rule:
            return None
        is_somewhere = self.has_company(gang) or any(gangs[member].active for member in self._members[family])
        return PlacementSpacing(replace(rule, min_nodes=None) if is_somewhere else rule)

    def in_the_way(self, gang: int, pods: Sequence[int], placed: int, /) -> Refused | None:
        rule: Placement = self._problem.gangs[gang].placement
        if not rule.is_rule:
            return None
        return Refused(Reason.PLACEMENT, words.message(rule), words.refused(rule, len(pods), placed))

    def for_rows(self, arrivals: Sequence[Arrival], movers: Sequence[Mover], /) -> tuple[Workload, ...]:
        """Workloads of ``arrivals`` and ``movers`` that have a rule, and where their pods are that stay in any case."""
        problem, gangs, state = self._problem, self._problem.gangs, self._state
        touched = {a.gang for a in arrivals} | {m.gang for m in movers}
        ruled = {gang for gang in touched if gangs[gang].placement.is_rule}
        free = {p for m in movers if m.gang in ruled for piece in m.pieces for p in piece.pods}
        found = []
        for family in sorted({gangs[gang].family for gang in ruled}):
            members = self._members[family]
            fixed: dict[int, tuple[int, int]] = {}
            for pod in (p for gang in members for p in gangs[gang].active):
                node = problem.pod_node[pod]
                if node >= 0 and pod not in free and pod not in state.gone:
                    count, milli = fixed.get(node, (0, 0))
                    fixed[node] = (count + 1, milli + gpu_milli(problem, pod, node))
            found.append(Workload(frozenset(members), gangs[members[0]].placement, fixed))
        return tuple(found)
