"""Everything at once for ``KAI_SOLVER_SOAK_MINUTES``: ``make soak``."""

import os
import random

import pytest

from tests.cluster.plane.conftest import Make
from tests.cluster.plane.soak import Soak

MINUTES = float(os.environ.get("KAI_SOLVER_SOAK_MINUTES", "10"))
GROWTH = 1.15, 25.0
"""How much more memory a replica may hold at the end than in the second quarter of its life: factor, MiB."""

SLOPE = 0.05
"""MiB a minute by which it may grow once it has settled; measured in soaks of half an hour and more."""


# Python leaves a socket open that is reset before its TLS handshake, and says so when it is collected.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.timeout(60 * MINUTES + 480, func_only=True)
def test_everything_at_once_for_a_while(make_cluster: Make) -> None:
    """No pod twice, no GPU twice, no gang in part for long, no eviction without its cause, all placed, memory flat."""
    cluster = make_cluster(may_leave=lambda found: True, partly_s=90)
    soak = Soak(cluster, 60 * MINUTES, random.Random(5))
    soak.run()
    print(f"{soak.work.arrived} gangs, {len(soak.faults)} faults, {len(cluster.checker.evicted)} evictions")
    print(f"memory in MiB, early and at the end: {soak.growth()}")
    print(f"growth in MiB a minute, settled: {soak.slopes()}")
    print(*soak.by_minute(), sep="\n")
    assert soak.work.done == soak.work.arrived > 20 * MINUTES
    assert soak.growth(), "no replica lived long enough to be measured"
    factor, more = GROWTH
    for early, late in soak.growth():
        assert late < factor * early + more
    assert all(slope <= SLOPE for slope in soak.slopes())
