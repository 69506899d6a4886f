"""The examples in Python print what the pages show."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = {"python.md": 20, "history.md": 3}
"""Pages, and the least number of examples that each has."""
SESSION = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_examples_of_a_page(page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = "\n".join(SESSION.findall((ROOT / "docs" / page).read_text()))
    session = doctest.DocTestParser().get_doctest(text, {"folder": str(tmp_path)}, page, page, 0)
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.DocTestRunner(optionflags=flags).run(session, out=said.append)
    assert results.attempted >= PAGES[page]
    assert not results.failed, "".join(said)
