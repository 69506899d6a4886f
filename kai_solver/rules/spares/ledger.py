"""Nodes that domains keep free, while a plan is made: which are in use, and which pods may not take another one."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from kai_solver.problem import Problem
from kai_solver.problem.rules import Ledger
from kai_solver.rules.spares.problem import NAME, SpareRule, Spares
from kai_solver.rules.spares.words import reasons

IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class SpareLedger(Ledger):
    """Nodes in use by domain, kept up to date.

    A node that victims leave is free from then on if they may use spares, whatever is placed there. Otherwise such a
    gang would be evicted from a spare node for a gang that may not use it.
    """

    kind = NAME

    def __init__(self, problem: Problem, spares: Spares) -> None:
        self._problem = problem
        self._spares = spares
        self._in_use = spares.in_use.copy()
        self._not_lent = spares.in_use.copy()
        self._busy = [_by_domain(rule, self._in_use) for rule in spares.rules]
        self._busy_not_lent = [busy.copy() for busy in self._busy]

    def is_plain(self, shape: int, /) -> bool:
        """True for pods that wait and may take spare nodes."""
        return self._problem.shapes.shapes[shape].constraints.may_use_spares

    def place(self, shape: int, pod: int, node: int, count: int, sign: int, *, now: bool) -> None:
        """Pods that may use spares do not put a node in use."""
        if self.is_plain(shape) or not self._spares.counts(pod, self._problem.pods[pod]):
            return
        self._count(self._in_use, self._busy, node, sign * count)
        runs = self._problem.pod_node[pod] >= 0
        gang = self._problem.gangs[self._problem.pod_gang[pod]].gang
        if now and (not runs or gang.may_use_spares):
            self._count(self._not_lent, self._busy_not_lent, node, sign * count)

    def leave(self, shape: int, pod: int, node: int, count: int, sign: int, /) -> None:
        """A node without its pods is free."""
        self.place(shape, pod, node, count, -sign, now=True)

    def _count(self, users: IntArray, busy: list[IntArray], node: int, change: int) -> None:
        before = users[node]
        users[node] += change
        if (before > 0) != (users[node] > 0):
            for rule, of_rule in zip(self._spares.rules, busy, strict=True):
                if rule.domain_of[node] >= 0:
                    of_rule[rule.domain_of[node]] += 1 if change > 0 else -1

    def _rooms(self) -> Iterator[tuple[SpareRule, IntArray, IntArray]]:
        """By rule, (D,) nodes in use, and most that may be."""
        for rule, busy, not_lent in zip(self._spares.rules, self._busy, self._busy_not_lent, strict=True):
            total = rule.room + rule.kept
            yield rule, busy, total - np.maximum(rule.kept, np.minimum(total - not_lent, rule.asked))

    def mask(self, shape: int, pod: int, /) -> BoolArray | None:
        """(N,) nodes in use, and those beyond what is kept; None: all."""
        if self.is_plain(shape):
            return None
        found = np.ones(len(self._in_use), dtype=np.bool_)
        for rule, busy, room in self._rooms():
            full = np.append(busy >= room, False)
            found &= ~full[rule.domain_of] | (self._in_use > 0)
        return found

    def room(self, room: IntArray, shape: int, domain_of: IntArray, /) -> Iterator[IntArray]:
        """(N,) ``room`` with no more free nodes than may be taken, those with the most room.

        One for each rule whose domains lie in those of ``domain_of`` (N,): by these, no sum of room is larger.
        """
        for rule, busy, most in self._rooms():
            inside = rule.domain_of >= 0
            both = rule.domain_of[inside] * (len(domain_of) + 1) + domain_of[inside]
            if self.is_plain(shape) or len(np.unique(both)) > len(np.unique(rule.domain_of[inside])):
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

    def reasons(self, shape: int, pod: int, nodes: BoolArray, /) -> dict[str, int]:
        """How many nodes are kept free for which domain, or in all where these are many."""
        return reasons(self._spares, nodes)


def _by_domain(rule: SpareRule, users: IntArray) -> IntArray:
    """(D,) nodes with ``users`` (N,)."""
    return np.bincount(rule.domain_of[(rule.domain_of >= 0) & (users > 0)], minlength=len(rule.room))
