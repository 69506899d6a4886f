"""A queue that was starved catches up: the division with its own outcome fed back, cycle by cycle."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kai_solver.domain import Policy, Queue
from kai_solver.fairness import QueueTree, UsageHistory, UsageParams, fair_share, past_usage

STEP_S = 60.0
START_S = 1_700_000_040.0
STARVED, FED = 0, 1
LONGER = 40
"""How many times as long as the starvation the catching up may take."""


class Cluster:
    """Two queues that always ask for everything, and what they held in every cycle."""

    def __init__(self, gpus: int, weights: tuple[int, int], k: float) -> None:
        self.gpus, self.weights, self.k = gpus, weights, k
        self.held: list[tuple[int, int]] = []

    def usage(self) -> list[float]:
        """Of each queue since the first cycle, by the module under test."""
        count = len(self.held)
        if not count:
            return [0.0, 0.0]
        times = START_S + STEP_S * np.arange(count, dtype=np.float64)
        allocated = np.zeros((count, 2, 3))
        allocated[:, :, 2] = np.array(self.held) * 1000
        capacity = np.tile([0.0, 0.0, self.gpus * 1000.0], (count, 1))
        history = UsageHistory(times, ("starved", "fed"), allocated, capacity)
        params = UsageParams(size_s=STEP_S * 100_000, resolution_s=STEP_S)
        found = past_usage(history, params, {"starved": "", "fed": ""}, float(times[-1]))
        return [found["starved"][2], found["fed"][2]]

    def cycle(self) -> tuple[int, int]:
        """Divide, and let both hold what they are due."""
        usage = self.usage()
        queues = [
            Queue(name, weight=(0, 0, weight), usage=(0, 0, used), uid=name)
            for name, weight, used in zip(("starved", "fed"), self.weights, usage, strict=True)
        ]
        tree = QueueTree.from_queues(queues, Policy())
        request = np.full((2, 3), self.gpus * 1000, dtype=np.int64)
        share = fair_share(tree, (0, 0, self.gpus * 1000), request, self.k)[:, 2] // 1000
        self.held.append((int(share[STARVED]), int(share[FED])))
        return self.held[-1]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(
    gpus=st.integers(1, 200),
    weights=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    k=st.sampled_from([0.1, 0.5, 1.0, 3.0, 50.0]),
    hungry_for=st.integers(1, 8),
)
@example(gpus=1, weights=(1, 2), k=0.1, hungry_for=1)
@example(gpus=200, weights=(1, 1), k=0.1, hungry_for=8)
def test_a_starved_queue_catches_up(gpus: int, weights: tuple[int, int], k: float, hungry_for: int) -> None:
    cluster = Cluster(gpus, weights, k)
    cluster.held = [(0, gpus)] * hungry_for
    part = Fraction(weights[STARVED], sum(weights))
    for _ in range(LONGER * hungry_for):
        behind = sum(starved for starved, _ in cluster.held) < part * gpus * len(cluster.held)
        starved, fed = cluster.cycle()
        assert starved + fed == gpus
        if behind:
            # Never less than its weight gives it, but for the rounding to whole GPUs.
            assert starved >= (part * gpus).__floor__()
    # Two scores that add up to 1 are rounded to the nearest GPU, so (1 + k) |usage - part| is at most half a GPU; and
    # what is left of the beginning has faded with the (1 + k)th power of time, by one cycle at a time.
    off = abs(cluster.usage()[STARVED] - float(part))
    assert off <= 0.5 / (gpus * (1 + k)) + LONGER ** -(1 + k) + 2 / len(cluster.held)


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(gpus=st.integers(20, 200), k=st.floats(0.2, 20))
def test_it_gets_more_than_its_part_until_it_has_caught_up(gpus: int, k: float) -> None:
    cluster = Cluster(gpus, (1, 1), k)
    cluster.held = [(0, gpus)] * 4
    shares = [cluster.cycle()[STARVED] for _ in range(60)]
    assert shares[0] > gpus / 2
    # It takes less and less, and never so much that the other one would be starved in turn.
    even = next((place for place in range(60) if shares[place] <= gpus / 2 + 1), 60)
    assert shares[:even] == sorted(shares[:even], reverse=True)


def test_without_k_what_was_lost_stays_lost() -> None:
    cluster = Cluster(10, (1, 1), 0.0)
    cluster.held = [(0, 10)] * 5
    assert {cluster.cycle() for _ in range(50)} == {(5, 5)}
    assert cluster.usage()[STARVED] == 250 / 550
