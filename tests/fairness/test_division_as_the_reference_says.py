"""The division, sentence by sentence as docs/kai-behaviour.md#fair-share has it, slowly, against ours on random trees
of queues."""

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from math import floor, inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, allocatable_share, fair_share, roll_up

Amount = Fraction
UNITS = (1, 1, 1000)
"""KAI's units: millicores, bytes, whole GPUs."""
NAMES = ("a", "b", "c", "d", "e", "f")


class Reference:
    """Reference 3.1 in KAI's units, -1 spelled as it is there."""

    def __init__(self, queues: list[Queue], resource: int, requests: dict[str, Amount], k: Fraction) -> None:
        unit = UNITS[resource]
        self.queues = {queue.name: queue for queue in queues}
        self.resource, self.k = resource, k if k > 0 else Fraction(0)
        self.deserved = {q.name: self.in_units(q.quota[resource], unit) for q in queues}
        self.max_allowed = {q.name: self.in_units(q.limit[resource], unit) for q in queues}
        self.request = dict.fromkeys(self.queues, Fraction(0))
        for name, amount in requests.items():
            # "All three are summed into every ancestor."
            while name:
                self.request[name] += amount
                name = self.queues[name].parent
        self.fair_share = dict.fromkeys(self.queues, Fraction(0))

    @staticmethod
    def in_units(amount: int, unit: int) -> Amount:
        return Fraction(-1) if amount == -1 else Fraction(amount, unit)

    def requestable(self, name: str) -> Amount:
        """Requestable = min(MaxAllowed (-1 = inf), Request)."""
        limit = self.max_allowed[name]
        return self.request[name] if limit == -1 else min(limit, self.request[name])

    def unsatisfied(self, name: str) -> bool:
        """Request > FairShare and (MaxAllowed = -1 or MaxAllowed > FairShare)."""
        share, limit = self.fair_share[name], self.max_allowed[name]
        return self.request[name] > share and (limit == -1 or limit > share)

    def divide(self, parent: str, total: Amount) -> None:
        """Root queues share the total; the children of each queue share that queue's fair share."""
        level = sorted(name for name, queue in self.queues.items() if queue.parent == parent)
        remaining = total
        for name in level:
            deserved = total if self.deserved[name] == -1 else self.deserved[name]
            amount = min(deserved, self.requestable(name))
            self.fair_share[name] += amount
            remaining -= amount
        if remaining > 0:
            self.over_quota(level, remaining)
        for name in level:
            self.divide(name, self.fair_share[name])

    def over_quota(self, level: list[str], remaining: Amount) -> None:
        recorded: dict[int, dict[str, Fraction]] = {}
        priorities = sorted({self.queues[name].priority for name in level}, reverse=True)
        for priority in priorities:
            stratum = [name for name in level if self.queues[name].priority == priority]
            recorded[priority] = {}
            remaining = self.rounds(stratum, remaining, recorded[priority])
        for priority in priorities:
            # "largest remainder; tie: oldest creationTimestamp; tie: UID"
            order = sorted(
                recorded[priority].items(),
                key=lambda entry: (-entry[1], self.queues[entry[0]].created_s, self.queues[entry[0]].uid),
            )
            for name, _ in order:
                if remaining > 0:
                    given = min(Fraction(1), remaining)
                    self.fair_share[name] += given
                    remaining -= given

    def rounds(self, stratum: list[str], remaining: Amount, recorded: dict[str, Fraction]) -> Amount:
        resource, again = self.resource, True
        while again and remaining != 0:
            again = False
            wanting = [name for name in stratum if self.requestable(name) - self.fair_share[name] > 0]
            weight_sum = sum(Fraction(self.queues[name].weight[resource]) for name in wanting)
            if weight_sum == 0:
                break
            scores = {}
            for name in stratum:
                if self.unsatisfied(name):
                    n = Fraction(self.queues[name].weight[resource]) / weight_sum
                    usage = Fraction(self.queues[name].usage[resource])
                    scores[name] = max(Fraction(0), n + self.k * (n - usage))
            if sum(scores.values()) == 0:
                break
            at_start, total = remaining, sum(scores.values())
            for name, score in scores.items():
                if self.queues[name].weight[resource] == 0 or remaining == 0:
                    continue
                fair = at_start * score / total
                remaining_requested = self.requestable(name) - self.fair_share[name]
                if remaining_requested <= fair:
                    given = remaining_requested
                    recorded.pop(name, None)
                    again = again or remaining_requested < fair
                else:
                    given = Fraction(floor(fair))
                    recorded[name] = fair - given
                self.fair_share[name] += given
                remaining -= given
        return remaining

    def allocatable(self, name: str) -> Amount:
        """MaxAllowed if deserved = -1, else min(MaxAllowed, max(deserved, FairShare))."""
        limit, deserved = self.max_allowed[name], self.deserved[name]
        if deserved == -1:
            return limit
        larger = max(deserved, self.fair_share[name])
        return larger if limit == -1 else min(limit, larger)


QUARTERS = st.integers(0, 40).map(lambda quarters: quarters * 250)
"""GPU thousandths, up to ten GPUs by quarters."""
FINE = st.integers(0, 30)
"""Millicores, bytes."""


def vectors(unlimited: bool = True) -> st.SearchStrategy[tuple[int, int, int]]:
    free = st.just(-1) if unlimited else st.nothing()
    return st.tuples(FINE | free, FINE | free, QUARTERS | free)


@st.composite
def trees(draw: st.DrawFn) -> list[Queue]:
    """Up to six queues, each under none or an earlier one; many alike, so that ties occur."""
    queues: list[Queue] = []
    for name in NAMES[: draw(st.integers(1, len(NAMES)))]:
        weight = draw(st.sampled_from([(1.0, 1.0, 1.0), (2.0, 0.0, 3.0), (0.5, 1.0, 0.0), (0.0, 7.0, 1.5)]))
        usage = draw(st.sampled_from([(0.0, 0.0, 0.0), (0.25, 0.5, 0.125), (1.0, 0.125, 0.75), (2.0, 9.0, 3.0)]))
        queues.append(
            Queue(
                name,
                draw(st.sampled_from(["", *(queue.name for queue in queues)])),
                priority=draw(st.sampled_from([100, 100, 200])),
                created_s=draw(st.sampled_from([0.0, 1.0])),
                quota=draw(st.just((0, 0, 0)) | vectors()),
                limit=draw(st.just((-1, -1, -1)) | vectors()),
                weight=weight,
                usage=usage,
                uid=draw(st.sampled_from(["x", "y"])) + name,
            )
        )
    return queues


KS = st.sampled_from([Fraction(0), Fraction(1), Fraction(1, 2), Fraction(10), Fraction(-1)])


@pytest.mark.slow
@settings(max_examples=250, deadline=None)
@given(
    trees(),
    st.lists(vectors(unlimited=False), min_size=len(NAMES), max_size=len(NAMES)),
    st.tuples(st.integers(0, 60), st.integers(0, 60), QUARTERS),
    KS,
)
def test_shares_are_those_of_the_reference(
    queues: list[Queue], requests: list[tuple[int, int, int]], total: tuple[int, int, int], k: Fraction
) -> None:
    tree = QueueTree.from_queues(queues, Policy())
    own = np.array([requests[i] if tree.is_leaf[i] else (0, 0, 0) for i in range(tree.size)], dtype=np.int64).reshape(
        -1, 3
    )
    share = fair_share(tree, total, roll_up(tree, own), float(k))
    bound = allocatable_share(tree, share)
    for resource, unit in enumerate(UNITS):
        asked = {name: Fraction(int(own[i, resource]), unit) for name, i in tree.index.items()}
        reference = Reference(queues, resource, asked, k)
        reference.divide("", Fraction(total[resource], unit))
        for name, i in tree.index.items():
            assert share[i, resource] == reference.fair_share[name] * unit
            expected = reference.allocatable(name)
            assert bound[i, resource] == (-1 if expected == -1 else expected * unit)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(trees(), st.permutations(NAMES), KS)
def test_the_names_order_decides_nothing(queues: list[Queue], order: list[str], k: Fraction) -> None:
    """KAI walks a Go map; ours gives the same whatever the order of the queues is."""
    place: Callable[[Queue], int] = lambda queue: order.index(queue.name)  # noqa: E731
    shares = []
    for arranged in (queues, sorted(queues, key=place)):
        tree = QueueTree.from_queues(arranged, Policy())
        own = np.array([[9, 9, 7250] if leaf else [0, 0, 0] for leaf in tree.is_leaf], dtype=np.int64)
        share = fair_share(tree, (20, 20, 20_500), roll_up(tree, own), float(k))
        shares.append({name: share[i].tolist() for name, i in tree.index.items()})
    assert shares[0] == shares[1]


def test_amounts_of_memory_stay_exact() -> None:
    """Bytes of a large cluster times thousands: doubles would lose some."""
    total = 2**56 + 1
    queues = [Queue(name, weight=(1, 1, 1), uid=name, created_s=float(i)) for i, name in enumerate("ab")]
    tree = QueueTree.from_queues(queues, Policy())
    share = fair_share(tree, (0, total, 0), np.full((2, 3), 2**60, dtype=np.int64), inf)
    assert share[:, 1].tolist() == [2**55 + 1, 2**55]
    heavier = QueueTree.from_queues([replace(queues[0], weight=(0, 2, 0)), queues[1]], Policy())
    share = fair_share(heavier, (0, 3 * total, 0), np.full((2, 3), 2**60, dtype=np.int64), 1.0)
    assert share[:, 1].tolist() == [2 * total, total]
