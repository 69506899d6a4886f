"""KAI's own decisions for the tests of this folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kai.oracle import Kai
from tests.support.gotools import KAI, ToolMissingError, go_module


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """All of these need KAI, which Go builds."""
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def kai(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kai]:
    try:
        folder = go_module(KAI)
    except ToolMissingError as error:
        pytest.skip(f"NOT TESTED against KAI itself: {error}")
    with Kai(folder / "kai-decides", tmp_path_factory.mktemp("kai")) as found:
        yield found
