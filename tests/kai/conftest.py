"""KAI's own decisions for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kai.oracle import Oracle, kais_programs


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these need KAI, which Go builds."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def kai(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    with Oracle(kais_programs() / "kai-decides", tmp_path_factory.mktemp("kai")) as found:
        yield found
