"""What holds for all tests: no test depends on chance, or on which others ran before it in its process.

Property tests draw the same examples in every run and on every machine. ``HYPOTHESIS_PROFILE=explore pytest ...`` draws
others; what it finds becomes a test of its own.
"""

import logging
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace

import pytest
import structlog
from hypothesis import settings

from kai_solver.cluster import identity
from kai_solver.errors.barrier import listening

SLOW_S = 1800
"""A time-out is for what hangs, not for what a busy machine takes long over."""

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have time even where the machine has much else to do."""
    for item in items:
        marks = {mark.name for mark in item.iter_markers()}
        if marks & {"slow", "campaign"} and "timeout" not in marks:
            item.add_marker(pytest.mark.timeout(SLOW_S))


@dataclass(frozen=True)
class Caught:
    """What a barrier stopped."""

    where: str
    what: str
    error: Exception


@pytest.fixture(autouse=True)
def stopped(request: pytest.FixtureRequest) -> Iterator[list[Caught]]:
    """A barrier must hide no fault from a test: what one stops fails the test, unless it asks for ``faults``."""
    found: list[Caught] = []
    with listening(lambda where, what, error: found.append(Caught(where, what, error))):
        yield found
    assert "faults" in request.fixturenames or not found, f"barriers stopped errors: {found}"


@pytest.fixture
def faults(stopped: list[Caught]) -> list[Caught]:
    """What barriers stopped so far, in tests that throw errors or read hostile objects."""
    return stopped


@pytest.fixture(autouse=True)
def names_of_its_own(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates for a Lease have their names from a folder of the test, as in a pod, and leave no files behind."""
    folder = cache(lambda: str(tmp_path_factory.mktemp("holders")))
    monkeypatch.setattr(identity, "tempfile", SimpleNamespace(gettempdir=folder))


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands set up logs for their whole process: onto a stream, here, that is closed when their test ends."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], threading.excepthook = handlers, hook
    root.setLevel(level)
    structlog.reset_defaults()
