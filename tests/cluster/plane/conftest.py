"""A control plane for all tests of this folder that one process runs, and a clean cluster with its checker for each.

Most of their time is waiting: for leases that end, for retries, for the Job controller. So the tests run with more
processes than there are cores (``make test-cluster``), and those that wait the longest begin.
"""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kai_solver.cluster.api import Object
from tests.cluster.plane.cluster import Cluster, checker_of, grant, install
from tests.cluster.plane.plane import Plane
from tests.cluster.plane.warm import Warm
from tests.support.gotools import KUBERNETES, KWOK, ToolMissingError, go_module

TEST_S = 300
LONGEST = ("guards", "outages", "faults", "faults_nodes", "faults_solver", "binding", "hostile", "faults_moves")
"""Files, as ``test_<name>.py``, in the order in which they begin; a process runs a file as a whole."""

Make = Callable[..., Cluster]

collect_ignore = [] if "KAI_SOLVER_SOAK_MINUTES" in os.environ else ["test_soak.py"]
"""The soak is a target of its own, ``make soak``."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these are slow; the longest files begin, so that no process waits for another at the end."""
    here, ranks = Path(__file__).parent, {f"test_{name}": rank for rank, name in enumerate(LONGEST)}
    items.sort(key=lambda item: ranks.get(item.path.stem, len(ranks)) if item.path.parent == here else len(ranks))
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(TEST_S, func_only=True))


@pytest.fixture(scope="session")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Plane]:
    try:
        programs = go_module(KUBERNETES), go_module(KWOK)
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED against a real control plane: {error}")
    found = Plane(programs, tmp_path_factory.mktemp("plane"))
    signal.signal(signal.SIGTERM, lambda *_: pytest.exit("told to end", 143))  # and not leave a control plane behind
    try:
        found.warm = Warm()
        found.start()
        install(found)
        yield found
    finally:
        found.stop()


@pytest.fixture
def make_cluster(plane: Plane, tmp_path: Path) -> Iterator[Make]:
    """Make the test's cluster; what its checker objects to fails the test."""
    made: list[Cluster] = []

    def make(
        may_leave: Callable[[Object], bool] = lambda pod: False,
        partly_s: float = 15.0,
        rate: tuple[int, float] | None = None,
    ) -> Cluster:
        checker = checker_of(plane, may_leave, partly_s, rate)
        cluster = Cluster(plane, tmp_path, checker)
        made.append(cluster)
        checker.start()
        return cluster

    yield make
    for cluster in made:
        cluster.end()
        assert cluster.complaints() == [], f"the checker objects; logs: {tmp_path}"


@pytest.fixture
def requesting(plane: Plane) -> None:
    """The right to write BindRequests, which the chart grants where a shard asks KAI's binder."""
    grant(plane, "request")
