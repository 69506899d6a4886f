"""What holds for all tests: no test depends on chance, or on which others ran before it in its process.

Property tests draw the same examples in every run and on every machine. ``HYPOTHESIS_PROFILE=explore pytest ...`` draws
others; what it finds becomes a test of its own.
"""

import logging
import os
import threading
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("explore", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(autouse=True)
def logs_as_they_were() -> Iterator[None]:
    """Commands set up logs for their whole process: onto a stream, here, that is closed when their test ends."""
    root, hook = logging.getLogger(), threading.excepthook
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:], threading.excepthook = handlers, hook
    root.setLevel(level)
    structlog.reset_defaults()
