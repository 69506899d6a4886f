"""Warm engines, one per model and test session: a cycle on a small cluster then costs milliseconds."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kai_solver.engine import Engine
from tests.support.engines import patient_engine

START_S = 60.0
"""Longest start of the solver's process on a machine with much else to do."""


class Engines:
    """Engines by name of the model, started when first asked for."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._started: dict[str, Engine] = {}

    def __getitem__(self, model: str) -> Engine:
        if model not in self._started:
            engine = self._started[model] = self._stack.enter_context(patient_engine(model))
            assert engine.wait(START_S)
        return self._started[model]


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    with ExitStack() as stack:
        yield Engines(stack)


@pytest.fixture(scope="session")
def engine(engines: Engines) -> Engine:
    """A warm engine of the model ``default``."""
    return engines["default"]
