"""Nodes that domains keep free, while a plan is made: which are in use, and who may not take another one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.reduction import Problem, Spares

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_MOST_NAMED = 8
"""Domains that are named one by one where they keep nodes free."""
SPARE = "node(s) were spares of their domains"


class SpareLedger:
    """Nodes in use by domain, kept up to date."""

    def __init__(self, problem: Problem, spares: Spares) -> None:
        self._problem = problem
        self._spares = spares
        self._in_use = spares.in_use.copy()
        self._busy = [
            np.bincount(rule.domain_of[(rule.domain_of >= 0) & (self._in_use > 0)], minlength=len(rule.room))
            for rule in spares.rules
        ]

    def may_use(self, pod: int) -> bool:
        """Whether ``pod``, which waits, may take spare nodes."""
        shape = self._problem.pod_shape[pod]
        return self._problem.shapes.shapes[shape].constraints.may_use_spares

    def shift(self, pod: int, node: int, sign: int) -> None:
        """Count ``pod`` on ``node`` (+1), or no longer (-1)."""
        if self.may_use(pod) or not self._spares.counts(pod, self._problem.pods[pod]):
            return
        before = self._in_use[node]
        self._in_use[node] += sign
        if (before > 0) != (self._in_use[node] > 0):
            for rule, busy in zip(self._spares.rules, self._busy, strict=True):
                if rule.domain_of[node] >= 0:
                    busy[rule.domain_of[node]] += sign

    def open_to(self, pod: int) -> BoolArray | None:
        """(N,) nodes that ``pod`` may take: those in use, and those beyond what is kept; None: all."""
        if self.may_use(pod):
            return None
        found = np.ones(len(self._in_use), dtype=np.bool_)
        for rule, busy in zip(self._spares.rules, self._busy, strict=True):
            full = np.append(busy >= rule.room, False)
            found &= ~full[rule.domain_of] | (self._in_use > 0)
        return found

    def caps(self, room: IntArray, pod: int, domain_of: IntArray) -> Iterator[IntArray]:
        """(N,) ``room`` for pods like ``pod`` with no more free nodes than may be taken, those with the most room.

        One for each rule whose domains lie in those of ``domain_of`` (N,): by these, no sum of room is larger.
        """
        for rule, busy in zip(self._spares.rules, self._busy, strict=True):
            inside = rule.domain_of >= 0
            both = rule.domain_of[inside] * (len(domain_of) + 1) + domain_of[inside]
            if self.may_use(pod) or len(np.unique(both)) > len(np.unique(rule.domain_of[inside])):
                continue
            free = np.flatnonzero(inside & (self._in_use == 0))
            free = free[np.lexsort((-room[free], rule.domain_of[free]))]
            domain = rule.domain_of[free]
            place = np.arange(len(free)) - np.searchsorted(domain, domain)
            capped = room.copy()
            capped[free[place >= (rule.room - busy)[domain]]] = 0
            yield capped

    def holds(self) -> bool:
        """Whether every domain keeps what it has to keep."""
        pairs = zip(self._spares.rules, self._busy, strict=True)
        return not any(bool((busy > rule.room).any()) for rule, busy in pairs)

    def reasons(self, nodes: BoolArray) -> dict[str, int]:
        """For ``nodes`` (N,) that are kept free: how many for which domain, or in all where these are many."""
        found: dict[str, int] = {}
        for rule in self._spares.rules:
            for domain, count in zip(*np.unique(rule.domain_of[nodes], return_counts=True), strict=True):
                if domain >= 0:
                    kept = int(rule.kept[domain])
                    text = f"node(s) were spares: {rule.level} {rule.names[domain]} keeps {kept} free"
                    found[text] = found.get(text, 0) + int(count)
        return found if len(found) <= _MOST_NAMED else {SPARE: int(nodes.sum())}
