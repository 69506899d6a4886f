"""Which pods are beside which while a plan is made, as far as rules and wishes between pods require it."""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import PodStatus
from kai_solver.planstate.state import State
from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger, Weight
from kai_solver.rules.pod_relations.index import PodAffinityIndex
from kai_solver.rules.pod_relations.wishes import affinity_score, spread_score

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NAME = "affinity"
"""The rule, its first family of rows, and the kind of its ledger."""


class PodRelations(Ledger):
    """Three views, kept up to date. Only pods are counted that such rules or wishes are about (`Problem.counted`).

    ``_later``: after the plan has been carried out. ``_now``: now, including leaving pods, and all new pods.
    ``_certain``: pods that run and stay, or start now: pods that start may rely on these. None if no pod requires
    others. All begin with the ``running`` pods, which are those of `running_pods`.
    """

    kind = NAME

    def __init__(self, state: State, running: PodAffinityIndex) -> None:
        problem = self._problem = state.problem
        self._counted, self._ruled = problem.counted, problem.ruled
        self._places = state.places
        self._later = running.copy()
        self._now = with_leaving(problem, running.copy())
        requires = any(shape.constraints.affinity for shape in problem.shapes.shapes)
        self._certain = running.copy() if requires else None
        self._samples = {problem.pod_shape[pod]: problem.pods[pod] for pod in problem.ruled}

    def counts_alike(self, shape: int, /) -> bool:
        """True: pods of which this is not so are related, and related pods are placed one by one."""
        return True

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes where the pods placed so far let ``pod`` in; None for a pod that no rule is about."""
        return self._later.mask(self._problem.pods[pod]) if pod in self._ruled else None

    def preferences(self, shape: int, pod: int, candidates: BoolArray, /) -> Iterator[tuple[Weight, IntArray]]:
        """Scores of kube-scheduler's plugins; that of spread counts twice, as there."""
        if pod not in self._counted:
            return
        one = self._problem.pods[pod]
        if one.constraints.preferred_spread:
            yield Weight.NODES, spread_score(self._later, one, candidates) * 2
        yield Weight.NEIGHBOURS, affinity_score(self._later, one, candidates)

    # -- steps -------------------------------------------------------------------------------------------------------

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """Related pods come one by one."""
        if pod not in self._counted:
            return
        one = self._problem.pods[pod]
        certain = self._certain if now else None
        if sign > 0:
            self._later.place(one, node, new=True)
            self._now.place(one, node)
            if certain is not None:
                certain.place(one, node)
        else:
            self._later.remove(one, node)
            self._now.remove(one, node)
            if certain is not None:
                certain.remove(one, node)

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """Until a pod has left, pods that start now have it beside them."""
        if pod not in self._counted:
            return
        one = self._problem.pods[pod]
        for index in (self._later, self._certain):
            if index is not None and sign > 0:
                index.remove(one, node)
            elif index is not None:
                index.place(one, node)

    def may_start(self, shape: int, pod: int, node: int, /) -> bool:
        """True where the pods that ``pod`` forbids have left, and those that it requires are there."""
        if pod not in self._counted:
            return True
        one = self._problem.pods[pod]
        if not self._now.clear(one)[node]:
            return False
        return self._certain is None or not one.constraints.affinity or self._certain.is_near(one, node)

    def expect(self, pod: int, node: int, sign: int, /) -> None:
        """Pods that start may rely on it."""
        if self._certain is None or pod not in self._counted:
            return
        change = self._certain.place if sign > 0 else self._certain.remove
        change(self._problem.pods[pod], node)

    def may_rely(self, pod: int, node: int, /) -> bool:
        """True where the pods that ``pod`` requires run, or start as well."""
        one = self._problem.pods[pod]
        if self._certain is None or not one.constraints.affinity:
            return True
        self._certain.remove(one, node)
        is_near = self._certain.is_near(one, node)
        self._certain.place(one, node)
        return is_near

    def may_return(self, pod: int, /) -> bool:
        """True if even a new pod like it could come, and no pod requires it elsewhere."""
        if pod not in self._ruled:
            return True
        one, origin = self._problem.pods[pod], self._problem.pod_node[pod]
        return not self._later.is_sought(one) and bool(self._later.mask(one)[origin])

    def holds(self) -> bool:
        """Whether every pod that was given a place could be there beside all others."""
        placed = self._ruled & self._places.keys()
        return all(self._later.agrees(self._problem.pods[pod], self._places[pod].node) for pod in placed)

    def room(self, room: IntArray, shape: int, domain_of: IntArray, /) -> Iterator[IntArray]:
        """Only nodes have room where ``shape`` conflicts with no pod by anti-affinity."""
        sample = self._samples.get(shape)
        if sample is not None:
            yield np.where(self._later.clear(sample), room, 0)

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> Mapping[str, int]:
        """Kubernetes' text for the first rule of each node."""
        return self._later.reasons(self._problem.pods[pod], nodes)


def running_pods(problem: Problem) -> PodAffinityIndex:
    """Running pods that rules or wishes are about, without those that leave."""
    index = PodAffinityIndex(problem.nodes, problem.predicates)
    for number in sorted(problem.counted):
        status = problem.pods[number].status
        if problem.pod_node[number] >= 0 and status.holds_resources and status is not PodStatus.RELEASING:
            index.place(problem.pods[number], problem.pod_node[number])
    return index


def with_leaving(problem: Problem, index: PodAffinityIndex) -> PodAffinityIndex:
    """``index`` with pods that leave."""
    for number in sorted(problem.counted):
        if problem.pod_node[number] >= 0 and problem.pods[number].status is PodStatus.RELEASING:
            index.place(problem.pods[number], problem.pod_node[number])
    return index
