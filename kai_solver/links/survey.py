"""All nodes at once: what a pod's GPUs would be worth on each, and what they would cost.

One table for each kind of graph; a node is the number of its kind and a mask of free GPUs. Answers are looked up; only
a state of free GPUs that was not asked about before is computed, once.
"""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from kai_solver.links.choice import Choice, RowWish, best_masks, choose, weakest_pair
from kai_solver.links.classes import MOST_STATES
from kai_solver.links.graph import STEP, LinkGraph
from kai_solver.links.tables import FULL, LinkTable


@dataclass(frozen=True, slots=True, eq=False)
class Survey:
    """What ``count`` GPUs would be on each of N nodes.

    Attributes
    ----------
    grade
        Grade of the weakest link of the best set, shape (N,); -1 where so many are not free. Higher is better, and
        comparable between kinds of nodes.
    gb_s
        Its bandwidth in GB/s, shape (N,); -1 where so many are not free.
    loss
        Leftover of the node before less after, shape (N,): lower is better. One size of pods made impossible on the
        node is `FULL` times its weight.
    leftover
        Leftover after, shape (N,).
    share
        The grade as a part of the best that the kind of node has for so many GPUs, in thousandths, shape (N,).
    """

    grade: NDArray[np.int64]
    gb_s: NDArray[np.int64]
    loss: NDArray[np.int64]
    leftover: NDArray[np.int64]
    share: NDArray[np.int64]


@dataclass(slots=True)
class LinkTables:
    """Tables of the kinds of nodes of a cluster; graphs in which every choice is the same share one."""

    sizes: Mapping[int, int] | None = None
    most_states: int = MOST_STATES
    tables: list[LinkTable] = field(default_factory=list, init=False)
    _by_key: dict[bytes, int] = field(default_factory=dict, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _picked: dict[tuple[int, int, int, RowWish | None], int | None] = field(default_factory=dict, init=False)
    _lost: dict[tuple[int, int], int] = field(default_factory=dict, init=False)
    _prospects: dict[tuple[int, int, int], tuple[int, int]] = field(default_factory=dict, init=False)
    _weakest: dict[tuple[int, int], tuple[int, int] | None] = field(default_factory=dict, init=False)

    def add(self, graph: LinkGraph) -> int:
        """Number of the graph's kind. Thread-safe: cycles and explanations ask in threads of their own."""
        number = self._by_key.get(graph.key)
        if number is None:
            table = LinkTable.of(graph, self.sizes, self.most_states)  # may take long, so it is built without the lock
            with self._lock:
                number = self._by_key.get(graph.key, len(self.tables))
                if number == len(self.tables):
                    self.tables.append(table)
                    self._by_key[graph.key] = number
        return number

    def survey(
        self, kinds: NDArray[np.int64], free: NDArray[np.uint64], count: int, wish: RowWish | None = None
    ) -> Survey:
        """Best set of ``count`` GPUs on every node.

        Parameters
        ----------
        kinds
            Number of each node's kind (`add`), shape (N,); -1: a node without GPUs.
        free
            Masks of the free GPUs, shape (N,).
        wish
            GPUs in a row; each mask that was never asked about is looked at by itself.
        """
        grade, loss, leftover, share = np.full((4, len(kinds)), -1, dtype=np.int64)
        for kind in np.unique(kinds[kinds >= 0]).tolist():
            table, nodes = self.tables[kind], np.flatnonzero(kinds == kind)
            before = table.classes.state_of(free[nodes])
            chosen = table.chosen(before, count) if wish is None else self._in_rows(kind, free[nodes], count, wish)
            nodes, before, chosen = nodes[chosen >= 0], before[chosen >= 0], chosen[chosen >= 0]
            grade[nodes] = table.grade[chosen]
            leftover[nodes] = table.leftover[before - chosen]
            loss[nodes] = table.leftover[before] - leftover[nodes]
            share[nodes] = grade[nodes] * FULL // max(table.best_grade(count), 1) if table.best_grade(count) else FULL
        return Survey(grade, grade // STEP, loss, leftover, share)

    def prospect(self, kind: int, free: int, count: int) -> tuple[int, int]:
        """Share and loss of a `survey` of one node; remembered."""
        key = kind, free, count
        if key not in self._prospects:
            if len(self._prospects) >= _MOST_PICKED:
                self._prospects.clear()
            found = self.survey(np.array([kind]), np.array([free], dtype=np.uint64), count)
            self._prospects[key] = int(found.share[0]), int(found.loss[0])
        return self._prospects[key]

    def pick(self, kind: int, free: int, count: int, wish: RowWish | None = None) -> int | None:
        """GPUs of the best set on one node as a mask; None where there is none. Remembered."""
        key = kind, free, count, wish
        if key not in self._picked:
            if len(self._picked) >= _MOST_PICKED:
                self._picked.clear()
            self._picked[key] = next(iter(best_masks(self.tables[kind], free, count, wish=wish)), None)
        return self._picked[key]

    def choose(self, kind: int, free: int, count: int, wish: RowWish | None = None) -> Choice | None:
        """The same set with what there is to tell about it; ``wish``: GPUs in a row."""
        return choose(self.tables[kind], free, count, wish)

    def weakest(self, kind: int, graph: LinkGraph, mask: int) -> tuple[str, int]:
        """The weakest link of a set's best ring in the terms of ``graph``, and its GB/s; of one GPU nothing, and 0.

        Graphs of one kind have the same bandwidths, but not always the same names for them. Remembered.
        """
        key = kind, mask
        if key not in self._weakest:
            if len(self._weakest) >= _MOST_PICKED:
                self._weakest.clear()
            self._weakest[key] = weakest_pair(self.tables[kind], mask)
        pair = self._weakest[key]
        return ("", 0) if pair is None else (graph.kind(*pair), int(graph.gb_s[pair]))

    def loss(self, kind: int, mask: int) -> int:
        """What a set lacks of the best that so many GPUs of its kind have, in thousandths; remembered."""
        key = kind, mask
        if key not in self._lost:
            if len(self._lost) >= _MOST_PICKED:
                self._lost.clear()
            table, most = self.tables[kind], self.tables[kind].best_grade(mask.bit_count())
            self._lost[key] = FULL - int(table.grade[table.classes.state_of_one(mask)]) * FULL // most if most else 0
        return self._lost[key]

    def best(self, preferred: NDArray[np.int64], found: Survey) -> int | None:
        """The node with the best set, then the least loss, then first in ``preferred``; None: nowhere is room."""
        nodes = preferred[found.grade[preferred] >= 0]
        if not len(nodes):
            return None
        order = np.lexsort((np.arange(len(nodes)), found.loss[nodes], -found.grade[nodes]))
        return int(nodes[order[0]])

    def _in_rows(self, kind: int, free: NDArray[np.uint64], count: int, wish: RowWish) -> NDArray[np.int64]:
        """States of the best sets, shape (N,); -1: none."""
        masks, back = np.unique(free, return_inverse=True)
        classes = self.tables[kind].classes
        picked = [self.pick(kind, mask, count, wish) for mask in masks.tolist()]
        states = [-1 if mask is None else classes.state_of_one(mask) for mask in picked]
        found: NDArray[np.int64] = np.array(states, dtype=np.int64)[back]
        return found


_MOST_PICKED = 1 << 18
