"""The page about limits has every constant of the module, with its value."""

import re
from pathlib import Path

from kai_solver.domain import object_limits

PAGE = Path(__file__).parents[2] / "docs" / "limits.md"


def test_the_page_lists_every_limit() -> None:
    rows = re.findall(r"^\| `([A-Z_]+)` \| ([\d,]+) \|", PAGE.read_text(), re.MULTILINE)
    stated = {name: int(number.replace(",", "")) for name, number in rows}
    assert stated == {name: value for name, value in vars(object_limits).items() if name.isupper()}
