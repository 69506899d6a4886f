"""The examples of the page for Python users print what the page shows."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
SESSION = re.compile(r"^```pycon\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.slow
def test_examples_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    text = "\n".join(SESSION.findall(PAGE.read_text()))
    session = doctest.DocTestParser().get_doctest(text, {"folder": str(tmp_path)}, PAGE.name, str(PAGE), 0)
    said: list[str] = []
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    results = doctest.DocTestRunner(optionflags=flags).run(session, out=said.append)
    assert results.attempted > 20
    assert not results.failed, "".join(said)
