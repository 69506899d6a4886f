"""Nodes that domains keep free, while a plan is made: which are in use, and who may not take another one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem, SpareRule, Spares

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]

_MOST_NAMED = 8
"""Domains that are named one by one where they keep nodes free."""
SPARE = "node(s) were spares of their domains"


class SpareLedger:
    """Nodes in use by domain, kept up to date.

    A node that victims leave is free from then on if they may use spares, whatever is placed there. Otherwise such a
    gang would be evicted from a spare node for a gang that may not use it.
    """

    def __init__(self, problem: Problem, spares: Spares) -> None:
        self._problem = problem
        self._spares = spares
        self._in_use = spares.in_use.copy()
        self._not_lent = spares.in_use.copy()
        self._busy = [_by_domain(rule, self._in_use) for rule in spares.rules]
        self._busy_not_lent = [busy.copy() for busy in self._busy]

    def may_use(self, pod: int) -> bool:
        """Whether ``pod``, which waits, may take spare nodes."""
        shape = self._problem.pod_shape[pod]
        return self._problem.shapes.shapes[shape].constraints.may_use_spares

    def shift(self, pod: int, node: int, sign: int, *, now: bool) -> None:
        """Count ``pod`` on ``node`` (+1), or no longer (-1). ``now``: it runs there, or starts there at once."""
        if self.may_use(pod) or not self._spares.counts(pod, self._problem.pods[pod]):
            return
        self._count(self._in_use, self._busy, node, sign)
        runs = self._problem.pod_node[pod] >= 0
        gang = self._problem.gangs[self._problem.pod_gang[pod]].gang
        if now and (not runs or gang.may_use_spares):
            self._count(self._not_lent, self._busy_not_lent, node, sign)

    def _count(self, users: IntArray, busy: list[IntArray], node: int, sign: int) -> None:
        before = users[node]
        users[node] += sign
        if (before > 0) != (users[node] > 0):
            for rule, of_rule in zip(self._spares.rules, busy, strict=True):
                if rule.domain_of[node] >= 0:
                    of_rule[rule.domain_of[node]] += sign

    def _rooms(self) -> Iterator[tuple[SpareRule, IntArray, IntArray]]:
        """By rule, (D,) nodes in use, and most that may be."""
        for rule, busy, not_lent in zip(self._spares.rules, self._busy, self._busy_not_lent, strict=True):
            total = rule.room + rule.kept
            yield rule, busy, total - np.maximum(rule.kept, np.minimum(total - not_lent, rule.asked))

    def open_to(self, pod: int) -> BoolArray | None:
        """(N,) nodes that ``pod`` may take: those in use, and those beyond what is kept; None: all."""
        if self.may_use(pod):
            return None
        found = np.ones(len(self._in_use), dtype=np.bool_)
        for rule, busy, room in self._rooms():
            full = np.append(busy >= room, False)
            found &= ~full[rule.domain_of] | (self._in_use > 0)
        return found

    def caps(self, room: IntArray, pod: int, domain_of: IntArray) -> Iterator[IntArray]:
        """(N,) ``room`` for pods like ``pod`` with no more free nodes than may be taken, those with the most room.

        One for each rule whose domains lie in those of ``domain_of`` (N,): by these, no sum of room is larger.
        """
        for rule, busy, most in self._rooms():
            inside = rule.domain_of >= 0
            both = rule.domain_of[inside] * (len(domain_of) + 1) + domain_of[inside]
            if self.may_use(pod) or len(np.unique(both)) > len(np.unique(rule.domain_of[inside])):
                continue
            free = np.flatnonzero(inside & (self._in_use == 0))
            free = free[np.lexsort((-room[free], rule.domain_of[free]))]
            domain = rule.domain_of[free]
            place = np.arange(len(free)) - np.searchsorted(domain, domain)
            capped = room.copy()
            capped[free[place >= (most - busy)[domain]]] = 0
            yield capped

    def holds(self) -> bool:
        """Whether every domain keeps what it has to keep."""
        return not any(bool((busy > room).any()) for _, busy, room in self._rooms())

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


def _by_domain(rule: SpareRule, users: IntArray) -> IntArray:
    """(D,) nodes with ``users`` (N,)."""
    return np.bincount(rule.domain_of[(rule.domain_of >= 0) & (users > 0)], minlength=len(rule.room))
