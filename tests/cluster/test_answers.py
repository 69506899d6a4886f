"""JSON that is too deep, and lines without an end."""

import json
from typing import Any

import orjson
import pytest

from kai_solver.cluster import answers
from kai_solver.cluster.answers import DEEPEST, LineTooLongError, lines, parsed


def nested(depth: int, opening: str = '{"a":', closing: str = "}") -> str:
    return opening * depth + "1" + closing * depth


@pytest.mark.parametrize(("opening", "closing"), [('{"a":', "}"), ("[", "]"), ('{"a":[', "]}")])
@pytest.mark.parametrize("depth", [1_100, 10_000, 100_000])
def test_an_object_that_is_too_deep_spoils_no_list(depth: int, opening: str, closing: str) -> None:
    before, after = {"name": 'a "quoted\\" [{', "x": [1, {"y": None}]}, {"name": "]}\\\\"}
    deep = f'{{"deep": {nested(depth, opening, closing)}, "b": 2}}'
    text = f'{{"items": [{json.dumps(before)}, {deep}, {json.dumps(after)}]}}'
    found: Any = parsed(text.encode())
    assert (found["items"][0], found["items"][2], found["items"][1]["b"]) == (before, after, 2)
    levels, value = 0, found["items"][1]["deep"]
    while isinstance(value, dict | list):
        levels, value = levels + 1, next(iter(value.values())) if isinstance(value, dict) else value[0]
    assert (levels, value) == (DEEPEST - 3, None)


@pytest.mark.parametrize(
    "text", [b"", b"{", b"[" * 5_000, b"]" * 5_000, b'"' + b"[" * 5_000, b"[1" + b"{" * 500 + b"]"]
)
def test_what_is_no_json_stays_none(text: bytes) -> None:
    with pytest.raises(orjson.JSONDecodeError):
        parsed(text)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_lines_are_put_together_from_chunks(size: int) -> None:
    data = b'{"a": 1}\n\n  \n{"b": 2}\n{"c"'
    assert list(lines(data[at : at + size] for at in range(0, len(data), size))) == [b'{"a": 1}', b'{"b": 2}']


def test_a_line_that_does_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "LONGEST_LINE", 1_000)
    found = lines(iter([b"a\n", *[b"x" * 100] * 20]))
    assert next(found) == b"a"
    with pytest.raises(LineTooLongError):
        next(found)
