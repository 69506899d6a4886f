"""JSON under limits: depth and number are counted before anything is built, and no key may repeat.

``orjson`` is fast, refuses NaN and Infinity, and keeps the last of duplicate keys in silence; so the colons outside
strings are counted (numpy) and compared with the keys that were built.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import orjson

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io.limits import Limits

_CHUNK = 1 << 24
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_STEP = np.zeros(256, dtype=np.int8)
_STEP[[ord("{"), ord("[")]] = 1
_STEP[[ord("}"), ord("]")]] = -1


@dataclass(slots=True)
class _Count:
    depth: int = 0
    deepest: int = 0
    objects: int = 0
    values: int = 0
    keys: int = 0
    inside: int = 0
    """1 while the text read so far ends inside a string."""


def parse_json(data: bytes, file: str, limits: Limits) -> Any:
    """Value of the JSON text ``data``.

    Raises
    ------
    LimitExceededError
        Deeper or more numerous than ``limits`` allow.
    InputError
        Not JSON, or a key repeats in one object.
    """
    count = _count(data)
    check_counts(file, limits, depth=count.deepest, objects=count.objects, values=count.values)
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error}", file=file, cure=_cure(data)) from None
    if _keys(value) != count.keys:
        _refuse_duplicate(data, file)
    return value


def check_counts(file: str, limits: Limits, *, depth: int, objects: int, values: int) -> None:
    """Raise :class:`LimitExceededError` where a count is over its limit."""
    cure = "If the file is what it should be, raise the limit"
    if depth > limits.max_depth:
        raise LimitExceededError(f"is nested deeper than {limits.max_depth} levels", file=file, cure=cure)
    if objects > limits.max_objects:
        raise LimitExceededError(f"holds more than {limits.max_objects:,} objects", file=file, cure=cure)
    if values > limits.max_values:
        raise LimitExceededError(f"holds more than {limits.max_values:,} values", file=file, cure=cure)


def _cure(data: bytes) -> str:
    if b"NaN" in data or b"Infinity" in data:
        return "JSON has no NaN and no Infinity; write -1 or the word unlimited where that is meant"
    return "Check the file near that place; it may be cut off"


def _chunks(data: bytes) -> Iterator[bytes]:
    """Pieces of ``data`` that do not end in a backslash, so that no escape is cut."""
    start = 0
    while start < len(data):
        end = min(start + _CHUNK, len(data))
        while end < len(data) and data[end - 1] == _BACKSLASH:
            end += 1
        yield data[start:end]
        start = end


def _count(data: bytes) -> _Count:
    count = _Count()
    for chunk in _chunks(data):
        _count_chunk(np.frombuffer(chunk, dtype=np.uint8), count)
    return count


def _count_chunk(text: np.ndarray[Any, np.dtype[np.uint8]], count: _Count) -> None:
    quotes = text == _QUOTE
    if (text == _BACKSLASH).any():
        quotes &= ~_escaped(text)
    inside = np.bitwise_xor.accumulate(quotes.view(np.uint8)) ^ count.inside
    outside = text[inside == 0]
    count.inside = int(inside[-1])
    steps = _STEP[outside]
    depths = np.cumsum(steps, dtype=np.int64) + count.depth
    if depths.size:
        count.depth, count.deepest = int(depths[-1]), max(count.deepest, int(depths.max()))
    count.objects += int(np.count_nonzero(outside == ord("{")))
    count.values += int(np.count_nonzero(outside == ord(","))) + int(np.count_nonzero(steps > 0))
    count.keys += int(np.count_nonzero(outside == ord(":")))


def _escaped(text: np.ndarray[Any, np.dtype[np.uint8]]) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """True where a character follows an odd run of backslashes."""
    places = np.arange(text.size, dtype=np.int64)
    last_other = np.maximum.accumulate(np.where(text != _BACKSLASH, places, -1))
    before = np.concatenate(([np.int64(-1)], last_other[:-1]))
    odd: np.ndarray[Any, np.dtype[np.bool_]] = (places - 1 - before) % 2 == 1
    return odd


def _keys(value: Any) -> int:
    """Number of keys in all objects of ``value``."""
    total, stack = 0, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            total += len(item)
            stack.extend(v for v in item.values() if isinstance(v, dict | list))
        elif isinstance(item, list):
            stack.extend(v for v in item if isinstance(v, dict | list))
    return total


def _refuse_duplicate(data: bytes, file: str) -> None:
    """Raise for the first object with a repeated key (slow; only run where the count says there is one)."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in items:
            if key in seen:
                raise InputError(f"the key {key!r} stands twice in one object", file=file, cure="Keep one of them")
            seen[key] = value
        return seen

    json.loads(data, object_pairs_hook=pairs)
