"""A control plane for all tests of this folder that one process runs, and a clean cluster with its checker for each."""

import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kai_solver.cluster.api import Object
from tests.cluster.plane.cluster import Cluster, checker_of, grant, install
from tests.cluster.plane.plane import Plane
from tests.support.gotools import KUBERNETES, KWOK, ToolMissingError, go_module

TEST_S = 300
Make = Callable[..., Cluster]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these are slow; the soak begins, so that nobody waits for it alone in the end."""
    here = Path(__file__).parent
    items.sort(key=lambda item: item.path != here / "test_soak.py")
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
        assert cluster.complaints() == [], f"logs: {tmp_path}"


@pytest.fixture
def requesting(plane: Plane) -> None:
    """The right to write BindRequests, which the chart grants where a shard asks KAI's binder."""
    grant(plane, "request")
