"""Queues of a loaded cluster: three levels, quotas that add up to the GPUs, and how much each leaf should hold."""

from dataclasses import dataclass, replace
from heapq import heapify, heapreplace
from typing import Any

import numpy as np
from numpy.random import Generator

from kai_solver.domain import Queue
from kai_solver.lab.generate.parts import queue
from kai_solver.units import MILLI, UNLIMITED

Ints = np.ndarray[Any, np.dtype[np.int64]]
Bools = np.ndarray[Any, np.dtype[np.bool_]]

UNDER = 0.45
"""What a leaf below its quota holds of it."""
_LIMITED, _LIMIT = 4, 1.6
"""Every fourth leaf has a limit, so many times its quota (or what it holds)."""


@dataclass(frozen=True, slots=True)
class Leaves:
    """L leaf queues: ``quota`` and ``target`` are GPUs (L,), ``over`` (L,): holds more than its quota."""

    names: tuple[str, ...]
    parents: tuple[str, ...]
    quota: Ints
    over: Bools
    target: Ints


def level_sizes(queues: int) -> tuple[int, int, int]:
    """Roots, middle queues and leaves of so many queues: 8, 32 and 160 of 200."""
    roots = max(2, round(0.04 * queues))
    middle = max(2 * roots, round(0.16 * queues))
    return roots, middle, max(2 * middle, queues - roots - middle)


def draw_leaves(queues: int, gpus: int, used: int, over: float, draw: Generator) -> Leaves:
    """Quotas add up to ``gpus``, targets to about ``used``; the share ``over`` of the leaves is above its quota.

    Leaves above quota are drawn among neighbours by quota, so that both sides weigh about the same.
    """
    _, middle, count = level_sizes(queues)
    quota = _divided(gpus, draw.lognormal(0.0, 0.5, count))
    rank = np.empty(count, dtype=np.int64)
    rank[np.argsort(quota, kind="stable")] = np.arange(count)
    flips = draw.random(count // 2 + 1)[rank // 2] < 0.5
    key = (rank // 2) * 2 + ((rank % 2) ^ flips)
    is_over = (np.floor((key + 1) * over) > np.floor(key * over)).astype(np.bool_)
    under = np.where(is_over, 0, np.floor(UNDER * quota)).astype(np.int64)
    weights = np.where(is_over, quota, 0) if is_over.any() else np.ones(count)
    target = under + _divided(used - int(under.sum()), weights.astype(np.float64))
    names = tuple(f"leaf-{i:04}" for i in range(count))
    parents = tuple(f"team-{i % middle:03}" for i in range(count))
    return Leaves(names, parents, quota, is_over, target)


def queues_of(queues: int, leaves: Leaves, held: Ints) -> tuple[Queue, ...]:
    """All queues; those above hold the sum of the quotas below."""
    roots, middle, _ = level_sizes(queues)
    team_quota = np.zeros(middle, dtype=np.int64)
    np.add.at(team_quota, np.arange(len(leaves.names)) % middle, leaves.quota)
    root_quota = np.zeros(roots, dtype=np.int64)
    np.add.at(root_quota, np.arange(middle) % roots, team_quota)
    above = [queue(f"org-{i:02}", i, int(q), weight=float(q)) for i, q in enumerate(root_quota)]
    above += [
        queue(f"team-{i:03}", roots + i, int(q), parent=f"org-{i % roots:02}", weight=float(q))
        for i, q in enumerate(team_quota)
    ]
    below = [
        queue(name, roots + middle + i, int(leaves.quota[i]), parent=leaves.parents[i], weight=float(leaves.quota[i]))
        for i, name in enumerate(leaves.names)
    ]
    return (*above, *(_limited(leaf, i, int(leaves.quota[i]), int(held[i])) for i, leaf in enumerate(below)))


def _limited(leaf: Queue, number: int, quota: int, held: int) -> Queue:
    if number % _LIMITED:
        return leaf
    return replace(leaf, limit=(UNLIMITED, UNLIMITED, max(round(_LIMIT * quota), held) * MILLI))


def shared_out(sizes: Ints, targets: Ints) -> Ints:
    """(G,) leaf of every gang: the largest first, each to the leaf that is furthest below its target."""
    heap = [(-int(target), leaf) for leaf, target in enumerate(targets.tolist())]
    heapify(heap)
    chosen = np.zeros(len(sizes), dtype=np.int64)
    for i in np.argsort(-sizes, kind="stable").tolist():
        missing, leaf = heap[0]
        chosen[i] = leaf
        heapreplace(heap, (missing + int(sizes[i]), leaf))
    return chosen


def _divided(total: int, weights: "np.ndarray[Any, np.dtype[np.float64]]") -> Ints:
    """(L,) whole numbers in proportion to ``weights`` that add up to ``total``."""
    exact = total * weights / weights.sum()
    whole: Ints = np.floor(exact).astype(np.int64)
    whole[np.argsort(whole - exact, kind="stable")[: total - int(whole.sum())]] += 1
    return whole
