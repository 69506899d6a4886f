"""JSON under limits: depth and number are counted before anything is built, and no key may repeat.

``orjson`` is fast, refuses NaN and Infinity, and keeps the last of duplicate keys in silence. So commas and containers
outside strings are counted (numpy), and compared with what was built, written one member a line.

A large text is built object by object, and each is made lighter at once (`kubeobjects.trim`): a cluster's export of
170 MiB is 1.1 GiB of Python objects else.
"""

import json
import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io.limits import Limits
from kai_solver.kubeobjects.trim import lighter

_CHUNK = 1 << 24
_IN_PARTS_FROM = 1 << 20
"""Bytes from which on a text is built object by object."""
_PART_DEPTH = 4
"""The deepest level of objects that are built by themselves: elements of ``rawObjects.pods`` in a KAI snapshot."""
_DEEPEST = 250
"""Levels that ``orjson`` writes at most."""

_QUOTE, _OBJECT, _LIST, _OBJECT_END, _LIST_END, _COMMA = range(1, 7)
_CODE = np.zeros(256, dtype=np.uint8)
for _code, _character in enumerate(b'"{[}],', start=1):
    _CODE[_character] = _code
_STEP = np.array([0, 0, 1, 1, -1, -1, 0], dtype=np.int8)
"""What a character outside strings does to the depth, by its code."""
_BACKSLASH = ord("\\")
_LONGEST_RUN = 16

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]


class _Part(NamedTuple):
    """An object that is built by itself: its place in the text, and how many lines it has where each member is one."""

    start: int
    end: int
    lines: int


@dataclass(slots=True)
class _Survey:
    """What is counted of a text, up to some chunk.

    Attributes
    ----------
    lines
        Line ends of the text written with one member a line: one for each comma, two for each container that is not
        empty.
    inside
        1 while the text read so far ends inside a string.
    last
        Code of the last character that has one.
    opened
        Where the last container begins if nothing of it was seen yet, else -1.
    part_depth, part_start, part_lines
        Of the part that is open: its level (0: none is), its place, and ``lines`` before it.
    """

    depth: int = 0
    deepest: int = 0
    objects: int = 0
    values: int = 0
    lines: int = 0
    inside: int = 0
    last: int = 0
    opened: int = -1
    part_depth: int = 0
    part_start: int = 0
    part_lines: int = 0
    parts: list[_Part] = field(default_factory=list)


def parse_json(data: bytes, file: str, limits: Limits) -> Any:
    """Value of the JSON text ``data``.

    Raises
    ------
    LimitExceededError
        Deeper or more numerous than ``limits`` allow.
    InputError
        Not JSON, or a key repeats in one object.
    """
    survey = _Survey()
    for start, chunk in _chunks(data):
        _count_chunk(data, start, np.frombuffer(chunk, dtype=np.uint8), survey)
        if survey.deepest > _DEEPEST:
            raise _too_deep(file, min(limits.max_depth, _DEEPEST))
        objects, values = survey.objects, survey.values
        check_counts(
            file, limits, depth=survey.deepest, objects=objects, values=values, most_objects=limits.max_json_objects
        )
    try:
        return _built(data, file, survey)
    except orjson.JSONDecodeError as error:
        raise InputError(f"is not JSON: {error}", file=file, cure=_cure(data)) from None


def check_counts(
    file: str, limits: Limits, *, depth: int, objects: int, values: int, most_objects: int | None = None
) -> None:
    """Raise :class:`LimitExceededError` where a count is over its limit; ``most_objects``: in place of the usual."""
    most_objects = limits.max_objects if most_objects is None else most_objects
    if depth > limits.max_depth:
        raise _too_deep(file, limits.max_depth)
    if objects > most_objects:
        raise _too_many(file, f"{most_objects:,} objects")
    if values > limits.max_values:
        raise _too_many(file, f"{limits.max_values:,} values")


_RAISE = "If the file is correct, raise the limit with --input-limit"


def _too_deep(file: str, most: int) -> LimitExceededError:
    return LimitExceededError(f"is nested deeper than {most} levels", file=file, cure=_RAISE)


def _too_many(file: str, most: str) -> LimitExceededError:
    return LimitExceededError(f"holds more than {most}", file=file, cure=_RAISE)


def _cure(data: bytes) -> str:
    if b"NaN" in data or b"Infinity" in data:
        return "JSON has no NaN and no Infinity; write -1 or the word unlimited where that is meant"
    return "Check the file near that place; it may be cut off"


# -- building ----------------------------------------------------------------------------------------------------------


def _built(data: bytes, file: str, survey: _Survey) -> Any:
    """The value; raises ``orjson.JSONDecodeError`` where there is none, with its place in the whole text."""
    if len(data) < _IN_PARTS_FROM or not survey.parts:
        return _loaded(data, file, survey.lines)
    try:
        return _joined(data, file, survey)
    except orjson.JSONDecodeError:
        orjson.loads(data)
        raise


def _joined(data: bytes, file: str, survey: _Survey) -> Any:
    """Every part by itself, and what is around them with a mark for each, which no text can have foreseen."""
    view, mark = memoryview(data), secrets.token_hex(16)
    around: list[bytes | memoryview] = []
    built: dict[str, Any] = {}
    lines, end = survey.lines, 0
    for part in survey.parts:
        name = f"{mark}{len(built)}"
        built[name] = lighter(_loaded(view[part.start : part.end], file, part.lines))
        around += (view[end : part.start], f'"{name}"'.encode())
        lines, end = lines - part.lines, part.end
    around.append(view[end:])
    value = _loaded(b"".join(around), file, lines)
    containers = [value]
    while containers:
        here = containers.pop()
        for key, inner in here.items() if isinstance(here, dict) else enumerate(here):
            if isinstance(inner, str):
                here[key] = built.get(inner, inner)
            elif isinstance(inner, dict | list):
                containers.append(inner)
    return value


def _loaded(text: bytes | memoryview, file: str, lines: int) -> Any:
    value = orjson.loads(text)
    if orjson.dumps(value, option=orjson.OPT_INDENT_2).count(b"\n") != lines:
        _refuse_duplicate(bytes(text), file)
    return value


def _refuse_duplicate(data: bytes, file: str) -> None:
    """Raise for the first object with a repeated key (slow; only run where the count says there is one)."""

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        seen: dict[str, Any] = {}
        for key, value in items:
            if key in seen:
                raise InputError(f"the key {key!r} occurs twice in one object", file=file, cure="Keep one of them")
            seen[key] = value
        return seen

    json.loads(data, object_pairs_hook=pairs)


# -- counting ----------------------------------------------------------------------------------------------------------


def _chunks(data: bytes) -> Iterator[tuple[int, memoryview]]:
    """Pieces of ``data`` with their places; none ends in a backslash, so that no escape is cut."""
    view, start = memoryview(data), 0
    while start < len(data):
        end = min(start + _CHUNK, len(data))
        while end < len(data) and data[end - 1] == _BACKSLASH:
            end += 1
        yield start, view[start:end]
        start = end


def _count_chunk(data: bytes, start: int, text: Bytes, survey: _Survey) -> None:
    """Add what stands in ``text``, which begins at ``start`` of ``data``."""
    codes = _CODE[text]
    at = np.flatnonzero(codes != 0)  # five times as fast as without the comparison
    code = codes[at]
    escaped = _escaped_quotes(text, at[code == _QUOTE])
    if escaped.size:
        kept = ~np.isin(at, escaped)
        at, code = at[kept], code[kept]
    if not at.size:
        return
    is_quote = code == _QUOTE
    inside = (np.cumsum(is_quote, dtype=np.int64) + survey.inside) & 1
    survey.inside = int(inside[-1])
    outside = np.flatnonzero((inside == 0) & ~is_quote)
    before = np.concatenate(([np.uint8(survey.last)], code[:-1]))[outside]
    if survey.opened >= 0:
        survey.lines += 2 * (not _is_empty(data, survey.opened, start + int(at[0]), int(code[0])))
    survey.opened = start + int(at[-1]) if outside.size and outside[-1] == at.size - 1 and _is_opening(code[-1]) else -1
    survey.last = int(code[-1])
    where, kind = at[outside] + start, code[outside]
    step = _STEP[kind]
    depth = np.cumsum(step, dtype=np.int64) + survey.depth
    lines = (kind == _COMMA) + 2 * _have_members(data, start, at, code, outside)
    ends = np.cumsum(lines, dtype=np.int64) + survey.lines
    _note_parts(where, kind, before, depth, ends, lines, survey)
    if outside.size:
        survey.depth, survey.deepest = int(depth[-1]), max(survey.deepest, int(depth.max()))
        survey.lines = int(ends[-1])
    survey.objects += int(np.count_nonzero(kind == _OBJECT))
    survey.values += int(np.count_nonzero(kind == _COMMA)) + int(np.count_nonzero(step > 0))


def _is_opening(code: np.uint8) -> bool:
    return code in (_OBJECT, _LIST)


def _have_members(data: bytes, start: int, at: Ints, code: Bytes, outside: Ints) -> Mask:
    """By character outside strings, whether it begins a container with members; False for the last of the chunk."""
    following = np.minimum(outside + 1, len(code) - 1)
    kind, after = code[outside], code[following]
    found: Mask = ((kind == _OBJECT) & (after != _OBJECT_END)) | ((kind == _LIST) & (after != _LIST_END))
    found &= outside != len(code) - 1
    # Between a bracket and the next one there may be a number.
    for index in np.flatnonzero((kind == _LIST) & (after == _LIST_END) & (at[following] > at[outside] + 1)).tolist():
        begins, ends = start + int(at[outside[index]]), start + int(at[following[index]])
        found[index] = not _is_empty(data, begins, ends, _LIST_END)
    return found


def _is_empty(data: bytes, begins: int, ends: int, code: int) -> bool:
    """Whether the container that begins at ``begins`` has nothing before the character ``code`` at ``ends``."""
    return code in (_OBJECT_END, _LIST_END) and not data[begins + 1 : ends].strip()


def _note_parts(where: Ints, kind: Bytes, before: Bytes, depth: Ints, ends: Ints, lines: Ints, survey: _Survey) -> None:
    """Note the outermost objects that are elements of lists, down to `_PART_DEPTH`."""
    begins = (kind == _OBJECT) & (depth <= _PART_DEPTH) & ((before == _LIST) | (before == _COMMA))
    found = np.flatnonzero(begins | ((kind == _OBJECT_END) & (depth < _PART_DEPTH)))
    opening = begins[found].tolist()
    places, levels = where[found].tolist(), depth[found].tolist()
    until, own = ends[found].tolist(), lines[found].tolist()
    for begin, place, level, end, line in zip(opening, places, levels, until, own, strict=True):
        if begin and not survey.part_depth:
            survey.part_depth, survey.part_start, survey.part_lines = level, place, end - line
        elif not begin and level == survey.part_depth - 1:
            survey.parts.append(_Part(survey.part_start, place + 1, end - survey.part_lines))
            survey.part_depth = 0


def _escaped_quotes(text: Bytes, quotes: Ints) -> Ints:
    """Those of ``quotes`` that follow an odd run of backslashes."""
    after = quotes[(quotes > 0) & (text[quotes - 1] == _BACKSLASH)]
    run, open_ = np.ones(after.size, dtype=np.int64), np.arange(after.size)
    for length in range(1, _LONGEST_RUN):
        place = after[open_] - 1 - length
        open_ = open_[(place >= 0) & (text[place] == _BACKSLASH)]
        if not open_.size:
            break
        run[open_] += 1
    else:
        places = np.arange(text.size, dtype=np.int64)
        last_other = np.maximum.accumulate(np.where(text != _BACKSLASH, places, -1))
        run = after - 1 - last_other[after - 1]
    escaped: Ints = after[run % 2 == 1]
    return escaped
