"""Division of a cluster into fair shares (docs/kai-behaviour.md#fair-share; KAI: ``resource_division.go``).

Exact: weights, usage and k are fractions, so no share depends on the order of additions. Where KAI takes the
order of a Go map, ties here go by age and UID.
"""

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from math import floor, isfinite

import numpy as np
from numpy.typing import NDArray

from kai_solver.fairness.tree import QueueTree
from kai_solver.units import MILLI, QUEUE_RESOURCES, UNLIMITED

IntArray = NDArray[np.int64]

WHOLE = (1, 1, MILLI)
"""What the surplus is handed out in, per resource: 1 millicore, 1 byte, 1 GPU (KAI floors whole units)."""


def fair_share(tree: QueueTree, total: Sequence[int], request: IntArray, k_value: float) -> IntArray:
    """Fair share of every queue, (Q, 3).

    Parameters
    ----------
    total
        (3,) what is divided: cpu milli, memory bytes, gpu milli.
    request
        (Q, 3) allocated plus pending, summed into every ancestor (``roll_up``).
    k_value
        Weight of past usage in the division of the surplus; negative is 0.

    Notes
    -----
    The children of a queue divide that queue's own share; what they leave is not given to their cousins. Quotas are
    granted before anything else and are not cut where they add up to more than there is.
    """
    share = np.zeros((tree.size, 3), dtype=np.int64)
    asked = request.tolist()
    for resource in range(len(QUEUE_RESOURCES)):
        levels = [(tree.roots, max(0, int(total[resource])))]
        while levels:
            queues, amount = levels.pop()
            division = _Division(tree, resource, {q: asked[q][resource] for q in queues}, amount, _exact(k_value))
            for queue, given in division.shares().items():
                share[queue, resource] = given
                if tree.children[queue]:
                    levels.append((tree.children[queue], given))
    return share


def allocatable_share(tree: QueueTree, share: IntArray) -> IntArray:
    """How much each queue may hold before others may take from it, (Q, 3); -1 unlimited.

    The limit where the quota is unlimited, else the larger of quota and fair share, cut at the limit.
    """
    entitled = np.maximum(tree.quota, share)
    capped = np.where(tree.limit == UNLIMITED, entitled, np.minimum(tree.limit, entitled))
    return np.where(tree.quota == UNLIMITED, tree.limit, capped)


class _Division:
    """Division of ``total`` of one resource among siblings, which ask for ``request``."""

    def __init__(self, tree: QueueTree, resource: int, request: dict[int, int], total: int, k: Fraction) -> None:
        self._tree = tree
        self._resource = resource
        self._k = max(Fraction(0), k)
        self._wanted = {queue: _capped(asked, tree.limits[queue][resource]) for queue, asked in request.items()}
        self._share = {
            queue: min(wanted, total if (quota := tree.quotas[queue][resource]) == UNLIMITED else quota)
            for queue, wanted in self._wanted.items()
        }
        self._surplus = total - sum(self._share.values())

    def shares(self) -> dict[int, int]:
        """Quotas, then the surplus by weight down the priorities, then what rounding left, down them again."""
        strata: dict[int, list[int]] = {}
        for queue in self._share if self._surplus > 0 else ():
            strata.setdefault(self._tree.priority[queue], []).append(queue)
        remainders = [self._share_out(strata[priority]) for priority in sorted(strata, reverse=True)]
        for remainder in remainders:
            self._round_up(remainder)
        return self._share

    def _share_out(self, stratum: list[int]) -> dict[int, Fraction]:
        """Rounds of division by weight until no queue is filled up; whole units, the rest of each is its remainder."""
        unit = WHOLE[self._resource]
        weights = {queue: _exact(float(self._tree.weight[queue, self._resource])) for queue in stratum}
        remainder: dict[int, Fraction] = {}
        again = True
        while again and self._surplus > 0:
            again = False
            parts = self._parts([q for q in stratum if self._wanted[q] > self._share[q]], weights)
            at_start = self._surplus
            for queue, part in parts.items():
                fair = at_start * part
                missing = self._wanted[queue] - self._share[queue]
                if missing <= fair:
                    remainder.pop(queue, None)
                    again = again or missing < fair
                    self._give(queue, missing)
                else:
                    remainder[queue] = fair / unit % 1
                    self._give(queue, floor(fair / unit) * unit)
        return remainder

    def _parts(self, hungry: list[int], weights: dict[int, Fraction]) -> dict[int, Fraction]:
        """Part of the surplus for each of the ``hungry`` that has a weight; empty if none may have any.

        In proportion to ``max(0, n + k (n - usage))``, where n is the queue's part of all their weights.
        """
        whole = sum(weights[queue] for queue in hungry)
        if whole == 0:
            return {}
        scores = {}
        for queue in hungry:
            part = weights[queue] / whole
            usage = _exact(float(self._tree.usage[queue, self._resource]))
            scores[queue] = max(Fraction(0), part + self._k * (part - usage))
        total = sum(scores.values())
        return {queue: scores[queue] / total for queue in hungry if weights[queue]} if total else {}

    def _round_up(self, remainder: dict[int, Fraction]) -> None:
        """One unit each by largest remainder, oldest, UID, while there is any."""
        queues = self._tree.queues
        for queue in sorted(
            remainder, key=lambda q: (-remainder[q], queues[q].created_s, queues[q].uid, queues[q].name)
        ):
            self._give(queue, min(WHOLE[self._resource], self._surplus))

    def _give(self, queue: int, amount: int) -> None:
        self._share[queue] += amount
        self._surplus -= amount


def _capped(amount: int, cap: int) -> int:
    return amount if cap == UNLIMITED else min(cap, amount)


@lru_cache(maxsize=1024)
def _exact(value: float) -> Fraction:
    """The decimal number that people wrote, not its binary neighbour; no number counts as 0."""
    return Fraction(str(value)) if isfinite(value) else Fraction(0)
