"""Disruption budgets by pod: how many of the pods under each may leave.

What the Eviction API does: a pod under several budgets is never evicted, one that has not begun to run always is, and
one that is not ready as its budget says (Kubernetes: ``registry/core/pod/storage/eviction.go``).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import DisruptionBudget, Pod, PodStatus, Snapshot
from kai_solver.predicates import labels_match
from kai_solver.problem import Problem
from kai_solver.problem.rules import ReleaseUse

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

NAME = "budgets"
"""The rule, and its family of rows."""

REFUSED = "an eviction that was refused lately"
"""In place of a budget's name, of pods that are not tried again yet."""


@dataclass(frozen=True, slots=True)
class Budgets:
    """Budgets that may bind; B of them, P pods. Others are left out.

    Attributes
    ----------
    names
        As told to people; pods that several budgets match have one of their own, which allows nothing.
    allowed, covered
        (B,) how many may leave, of how many.
    of_pod
        (P,) budget of each pod; -1 for those that may leave freely.
    """

    names: tuple[str, ...]
    allowed: IntArray
    covered: IntArray
    of_pod: IntArray

    def spent(self, is_gone: BoolArray) -> IntArray:
        """(B,) how many of the pods ``is_gone`` (P,) each budget counts."""
        under = self.of_pod[is_gone]
        return np.bincount(under[under >= 0], minlength=len(self.names)).astype(np.int64)

    def use(self, pods: Iterable[int]) -> ReleaseUse:
        """What it takes of the budgets when ``pods`` leave."""
        found: dict[int, int] = {}
        for pod in pods:
            budget = int(self.of_pod[pod])
            if budget >= 0:
                found[budget] = found.get(budget, 0) + 1
        return tuple(sorted(found.items()))


def budgets_of(problem: Problem) -> Budgets | None:
    """Budgets of the pods of gangs; None where none may bind."""
    snapshot, pods = problem.snapshot, problem.pods
    if not snapshot.budgets and not snapshot.refused:
        return None
    matcher = _Matcher(snapshot)
    gangs_end = len(pods) - len(snapshot.foreign)  # Pods of gangs come first.
    of_pod = np.full(len(pods), -1, dtype=np.int64)
    for number, pod in enumerate(pods[:gangs_end]):
        if pod.status is PodStatus.RUNNING:
            of_pod[number] = matcher.budget(pod)
    covered = np.bincount(of_pod[of_pod >= 0], minlength=len(matcher.names)).astype(np.int64)
    return _binding(Budgets(tuple(matcher.names), np.array(matcher.allowed, dtype=np.int64), covered, of_pod))


def _binding(every: Budgets) -> Budgets | None:
    """Without those that allow all of their pods to leave."""
    kept = np.flatnonzero(every.covered > every.allowed)
    if not len(kept):
        return None
    number = np.full(len(every.names) + 1, -1, dtype=np.int64)
    number[kept] = np.arange(len(kept))
    names = tuple(every.names[budget] for budget in kept.tolist())
    return Budgets(names, every.allowed[kept], every.covered[kept], number[every.of_pod])


class _Matcher:
    """Finds the budget of a pod; ``names`` and ``allowed`` grow where several match one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._budgets = sorted(snapshot.budgets, key=lambda budget: budget.key)
        self.names = [budget.key for budget in self._budgets]
        self.allowed = [max(0, budget.allowed) for budget in self._budgets]
        self._refused = snapshot.refused
        self._of_namespace: dict[str, list[int]] = {}
        for number, budget in enumerate(self._budgets):
            self._of_namespace.setdefault(budget.namespace, []).append(number)
        self._several: dict[str, int] = {}
        self._matched: dict[tuple[str, int], list[int]] = {}

    def budget(self, pod: Pod) -> int:
        """The budget that counts ``pod``; -1 where none does."""
        if pod.key in self._refused:
            return self._shut(REFUSED)
        mine = self._of_namespace.get(pod.namespace)
        matching = self._matching(pod, mine) if mine else []
        if len(matching) > 1:
            return self._shut(" and ".join(self._budgets[number].key for number in matching))
        if not matching or (not pod.ready and self._budgets[matching[0]].spares_unready):
            return -1
        return matching[0]

    def _matching(self, pod: Pod, numbers: Sequence[int]) -> list[int]:
        # Labels of one object are asked about once: the snapshot holds them, so that no other has their identity.
        key = pod.namespace, id(pod.labels)
        if key not in self._matched:
            self._matched[key] = [n for n in numbers if _matches(self._budgets[n], pod.labels)]
        return self._matched[key]

    def _shut(self, name: str) -> int:
        """A budget of this name that allows nothing."""
        if name not in self._several:
            self._several[name] = len(self.names)
            self.names.append(name)
            self.allowed.append(0)
        return self._several[name]


def _matches(budget: DisruptionBudget, labels: Mapping[str, str]) -> bool:
    return labels_match(budget.selector, labels)
