"""Parses the JSON that an API server sends. One bad object must not make the other objects unreadable."""

import re
from collections.abc import Iterable, Iterator

import orjson

LONGEST_LINE = 64 << 20
"""Bytes of one event of a watch. etcd keeps no object of more than 1.5 MiB; as JSON it may be six times as long."""

DEEPEST = 200
"""Levels that are kept of JSON which is nested too deep to be read. Fields that are read are 15 levels deep at most."""

_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{}]', re.DOTALL)


class LineTooLongError(ValueError):
    """A line of a watch is too long."""


def parsed(data: bytes) -> object:
    """The value of a JSON text.

    An API server takes objects of 10,000 levels where a field may hold anything, and orjson reads 1,024. Parts that are
    deeper than `DEEPEST` are null then. Otherwise one object of a user could make a whole list unreadable.

    Raises
    ------
    orjson.JSONDecodeError
        The text is not JSON.
    """
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as error:
        flat = _flat(data)
        if flat is None:
            raise error from None
        return orjson.loads(flat)


def _flat(data: bytes) -> bytes | None:
    """The text without what is too deep; None where nothing is."""
    depth, kept_from = 0, 0
    parts: list[bytes] = []
    for token in _TOKEN.finditer(data):
        sign = token[0]
        if sign in (b"[", b"{"):
            depth += 1
            if depth == DEEPEST + 1:
                parts += (data[kept_from : token.start()], b"null")
        elif sign in (b"]", b"}"):
            if depth == DEEPEST + 1:
                kept_from = token.end()
            depth -= 1
    return b"".join((*parts, data[kept_from:])) if parts and depth == 0 else None


def lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of a stream that are not empty; what comes after the last end of a line is dropped.

    Raises
    ------
    LineTooLongError
        A line is longer than `LONGEST_LINE`.
    """
    begun: list[bytes] = []
    length = 0
    for chunk in chunks:
        *ended, rest = chunk.split(b"\n")
        for end in ended:
            line = b"".join((*begun, end))
            begun, length = [], 0
            if line.strip():
                yield line
        begun.append(rest)
        length += len(rest)
        if length > LONGEST_LINE:
            raise LineTooLongError(f"more than {LONGEST_LINE:,} bytes without an end")
