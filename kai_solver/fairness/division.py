"""Division of a cluster into fair shares (reference 3.1; KAI: ``resource_division.go``).

Exact: weights, usage and k are scaled to integers, so no share depends on the order of additions. Where KAI takes the
order of a Go map, ties here go by age and UID.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import floor, isfinite, lcm

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
    requests = request.tolist()
    for resource in range(len(QUEUE_RESOURCES)):
        level = _Level(tree, resource, [row[resource] for row in requests], _exact(max(0.0, k_value)))
        pending = [(tree.roots, max(0, int(total[resource])))]
        while pending:
            queues, amount = pending.pop()
            for queue, given in level.divide(queues, amount).items():
                share[queue, resource] = given
                if tree.children[queue]:
                    pending.append((tree.children[queue], given))
    return share


def allocatable_share(tree: QueueTree, share: IntArray) -> IntArray:
    """How much each queue may hold before others may take from it, (Q, 3); -1 unlimited.

    The limit where the quota is unlimited, else the larger of quota and fair share, cut at the limit.
    """
    entitled = np.maximum(tree.quota, share)
    capped = np.where(tree.limit == UNLIMITED, entitled, np.minimum(tree.limit, entitled))
    return np.where(tree.quota == UNLIMITED, tree.limit, capped)


def _exact(value: float) -> Fraction:
    """The decimal number that people wrote, not its binary neighbour; no number counts as 0."""
    return Fraction(str(value)) if isfinite(value) else Fraction(0)


@dataclass(slots=True)
class _Level:
    """Division of one resource among siblings."""

    tree: QueueTree
    resource: int
    request: list[int]
    k: Fraction

    def divide(self, queues: tuple[int, ...], total: int) -> dict[int, int]:
        """Shares of the siblings ``queues`` of ``total``."""
        wanted = {queue: self._requestable(queue) for queue in queues}
        share = {queue: min(self._deserved(queue, total), wanted[queue]) for queue in queues}
        surplus = total - sum(share.values())
        if surplus <= 0:
            return share
        by_priority: dict[int, list[int]] = {}
        for queue in queues:
            by_priority.setdefault(self.tree.priority[queue], []).append(queue)
        strata = [by_priority[priority] for priority in sorted(by_priority, reverse=True)]
        remainders: list[dict[int, Fraction]] = []
        for stratum in strata:
            weights, usage = self._integers(stratum)
            surplus, remainder = self._share_out(stratum, weights, usage, wanted, share, surplus)
            remainders.append(remainder)
        for remainder in remainders:
            surplus = self._round_up(remainder, share, surplus)
        return share

    def _requestable(self, queue: int) -> int:
        limit = self.tree.limits[queue][self.resource]
        return self.request[queue] if limit == UNLIMITED else min(limit, self.request[queue])

    def _deserved(self, queue: int, total: int) -> int:
        quota = self.tree.quotas[queue][self.resource]
        return total if quota == UNLIMITED else quota

    def _integers(self, stratum: list[int]) -> tuple[dict[int, int], dict[int, Fraction]]:
        """Weights scaled to integers, and k times past usage."""
        exact = {queue: _exact(float(self.tree.weight[queue, self.resource])) for queue in stratum}
        scale = lcm(*(weight.denominator for weight in exact.values()))
        usage = {queue: self.k * _exact(float(self.tree.usage[queue, self.resource])) for queue in stratum}
        return {queue: int(weight * scale) for queue, weight in exact.items()}, usage

    def _scores(self, hungry: list[int], weights: dict[int, int], usage: dict[int, Fraction]) -> dict[int, Fraction]:
        """``max(0, n + k (n - usage))`` where n is the weight's part of the weights of the ``hungry``."""
        whole = sum(weights[queue] for queue in hungry)
        if whole == 0:
            return {}
        scores = {q: max(Fraction(0), Fraction(weights[q], whole) * (1 + self.k) - usage[q]) for q in hungry}
        return scores if sum(scores.values()) else {}

    def _share_out(
        self,
        stratum: list[int],
        weights: dict[int, int],
        usage: dict[int, Fraction],
        wanted: dict[int, int],
        share: dict[int, int],
        surplus: int,
    ) -> tuple[int, dict[int, Fraction]]:
        """Rounds of division by weight until nobody is filled up; whole units, the rest of each is its remainder."""
        unit = WHOLE[self.resource]
        remainder: dict[int, Fraction] = {}
        again = True
        while again and surplus > 0:
            again = False
            hungry = [queue for queue in stratum if wanted[queue] > share[queue]]
            scores = self._scores(hungry, weights, usage)
            whole, at_start = sum(scores.values()), surplus
            for queue in scores:
                if weights[queue] == 0:
                    continue
                fair = at_start * scores[queue] / whole
                missing = wanted[queue] - share[queue]
                if missing <= fair:
                    remainder.pop(queue, None)
                    again = again or missing < fair
                    given = missing
                else:
                    units = floor(fair / unit)
                    given = units * unit
                    remainder[queue] = fair / unit - units
                share[queue] += given
                surplus -= given
        return surplus, remainder

    def _round_up(self, remainder: dict[int, Fraction], share: dict[int, int], surplus: int) -> int:
        """One unit each by largest remainder, oldest, UID, while there is any."""
        queues = self.tree.queues
        order = sorted(remainder, key=lambda q: (-remainder[q], queues[q].created_s, queues[q].uid, queues[q].name))
        for queue in order:
            given = min(WHOLE[self.resource], surplus)
            share[queue] += given
            surplus -= given
        return surplus
