"""Which pods are beside which while a plan is made, as far as rules and wishes between pods require it."""

from kai_solver.domain import PodStatus
from kai_solver.predicates import PodAffinityIndex
from kai_solver.problem import Problem


class Neighbours:
    """Three views of rules and wishes between pods, kept up to date. Only pods that such are about are looked at.

    Attributes
    ----------
    affinity
        After the plan has been carried out; None if no pod has any rule or wish.
    present
        Now, including leaving pods, and all new pods; None as ``affinity``.
    certain
        Pods that run and stay, or start now: pods that start may rely on these. None if no pod requires others.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._related = problem.related
        shapes = problem.shapes.shapes
        speaks = bool(problem.related)
        requires = any(shape.constraints.affinity for shape in shapes)
        self.affinity = running_pods(problem, leaving=False) if speaks else None
        self.present = running_pods(problem, leaving=True) if speaks else None
        self.certain = running_pods(problem, leaving=False) if requires else None

    def may_start(self, pod: int, node: int) -> bool:
        """Whether ``pod`` may start on ``node`` now: pods that it forbids have left, and required pods are there."""
        if pod not in self._related:
            return True
        one = self._problem.pods[pod]
        if self.present is not None and not self.present.clear(one)[node]:
            return False
        return self.certain is None or not one.constraints.affinity or self.certain.is_near(one, node)

    def come(self, pod: int, node: int, *, now: bool) -> None:
        """``pod`` gets a place on ``node``."""
        if pod not in self._related:
            return
        one = self._problem.pods[pod]
        if self.affinity is not None:
            self.affinity.place(one, node, new=True)
        if self.present is not None:
            self.present.place(one, node)
        if self.certain is not None and now:
            self.certain.place(one, node)

    def do_not_come(self, pod: int, node: int, *, now: bool) -> None:
        """Undo ``come``."""
        if pod not in self._related:
            return
        one = self._problem.pods[pod]
        if self.affinity is not None:
            self.affinity.remove(one, node)
        if self.present is not None:
            self.present.remove(one, node)
        if self.certain is not None and now:
            self.certain.remove(one, node)

    def leave(self, pod: int) -> None:
        """``pod``, which runs, will leave."""
        if pod not in self._related:
            return
        for index in (self.affinity, self.certain):
            if index is not None:
                index.remove(self._problem.pods[pod], self._problem.pod_node[pod])

    def stay(self, pod: int) -> None:
        """Undo ``leave``."""
        if pod not in self._related:
            return
        for index in (self.affinity, self.certain):
            if index is not None:
                index.place(self._problem.pods[pod], self._problem.pod_node[pod])


def running_pods(problem: Problem, *, leaving: bool) -> PodAffinityIndex:
    """Running pods that rules or wishes are about. ``leaving``: include those that leave."""
    index = PodAffinityIndex(problem.nodes, problem.predicates)
    for number in sorted(problem.related):
        pod = problem.pods[number]
        stays = leaving or pod.status is not PodStatus.RELEASING
        if problem.pod_node[number] >= 0 and pod.status.holds_resources and stays:
            index.place(pod, problem.pod_node[number])
    return index
