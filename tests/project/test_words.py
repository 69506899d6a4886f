"""The prose of the code (docstrings and comments) uses the words of the field: pods and gangs are things."""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "kai_solver"

ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file())

OF_PERSONS = r"who|whom|(?-i:Whose)|whoever|whomever|\w+body|someone|everyone|anyone|no one|he|him|his|himself|she|her"
HOME_MADE = r"anew|lest|at the most|for \w+ sakes?|in the end|told of|aggressors?|strangers|rungs?|alike"
WORDS = re.compile(rf"\b(?:{OF_PERSONS}|{HOME_MADE})\b", re.IGNORECASE)


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Line number and text of every docstring, of attributes too, and of every comment; code in backticks left out."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            text = re.sub(r"`+[^`]*`+", "``", node.value.value)
            yield from enumerate(text.split("\n"), node.lineno)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], re.sub(r"`+[^`]*`+", "``", token.string)


def found_in(folder: Path) -> list[str]:
    """``file:line: word`` for every word to be replaced."""
    return [
        f"{path.relative_to(PACKAGE)}:{number}: {match[0]}"
        for path in sorted(folder.rglob("*.py"))
        for number, line in prose(path.read_text())
        for match in WORDS.finditer(line)
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_the_prose_of_a_room_has_no_words_to_replace(room: str) -> None:
    assert found_in(PACKAGE / room) == []


def test_such_words_are_found() -> None:
    source = '"""Pods that nobody keeps."""\n\nA = 1  # Whose?\n"""Of `who` anew."""\n'
    assert [WORDS.findall(line) for _, line in prose(source)] == [["nobody"], ["anew"], ["Whose"]]
