"""What holds for all tests that fuzz."""

import logging
from collections.abc import Iterator

import pytest
import structlog

from tests.fuzz.amounts import SHOWN


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """What is set aside is logged, hundreds of objects at a time."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    yield
    structlog.reset_defaults()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """How much was shown, where the tests ran in this process."""
    if SHOWN:
        terminalreporter.write_line("fuzz: " + ", ".join(f"{count:,} {what}" for what, count in sorted(SHOWN.items())))
