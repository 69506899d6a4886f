"""Bytes of a file, unpacked under a limit: plain, gzip, zstd or zip, told apart by their first bytes."""

import io
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import zstandard

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io.limits import Limits

_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06")
_ZSTD_SKIPPED = tuple(bytes((low, 0x2A, 0x4D, 0x18)) for low in range(0x50, 0x60))
"""Frames that contain only metadata of their writer."""
_CHUNK = 1 << 20
_PIECE = 1 << 10
"""Packed bytes that are fed at once: zstd unpacks them to at most 32 MiB (an RLE block is 4 bytes for 128 KiB), and
bytes after the end of a member or frame are copied once more."""
_NO_ZERO = re.compile(rb"[^\0]")
STANDARD_INPUT = Path("-")
_SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Member:
    """One file, or one file inside a zip: a name for messages, and its bytes."""

    name: str
    data: bytes


_noted: ContextVar[list[Path] | None] = ContextVar("noted", default=None)


@contextmanager
def noting_files() -> Iterator[list[Path]]:
    """All files that are read while the block runs, in order: what an instance or a scenario consists of."""
    files: list[Path] = []
    token = _noted.set(files)
    try:
        yield files
    finally:
        _noted.reset(token)


def read_bytes(path: Path, limits: Limits) -> bytes:
    """Bytes of ``path`` as they lie on disk, or of standard input for ``-``; at most ``limits.max_bytes``.

    Raises
    ------
    InputError, LimitExceededError
        It cannot be read, or is larger.
    """
    try:
        if path == STANDARD_INPUT:
            return _collect(_pieces(sys.stdin.buffer), "standard input", limits)
        if (noted := _noted.get()) is not None:
            noted.append(path)
        if path.stat().st_size > limits.max_bytes:
            raise _too_large(str(path), limits)
        with path.open("rb") as file:
            return _collect(_pieces(file), str(path), limits)
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot be read: {reason}", file=str(path), cure="Check the path and its permissions"
        ) from None


def _pieces(stream: IO[bytes]) -> Iterator[bytes]:
    """All that ``stream`` gives, in pieces: a pipe or a device does not say before how much that is."""
    return iter(lambda: stream.read(_CHUNK), b"")


def read_members(path: Path, limits: Limits) -> list[Member]:
    """Unpacked content of a file: one member, or as many as its zip archive has JSON and YAML files.

    Raises
    ------
    LimitExceededError
        More than ``limits.max_bytes`` when unpacked; it is never unpacked further than that.
    InputError
        Unreadable, truncated or corrupt.
    """
    return unpack(read_bytes(path, limits), str(path), limits)


def unpack(data: bytes, file: str, limits: Limits) -> list[Member]:
    """Members of ``data``, which was read from ``file``; see :func:`read_members`."""
    if data.startswith(_ZIP):
        return _unzip(data, file, limits)
    if data.startswith(_GZIP):
        return [Member(file, _collect(_gunzip(data, file), file, limits))]
    if data.startswith(_ZSTD):
        return [Member(file, _collect(_unzstd(data, file), file, limits))]
    return [Member(file, data)]


def _too_large(file: str, limits: Limits) -> LimitExceededError:
    return LimitExceededError(
        f"holds more than {limits.max_bytes:,} bytes unpacked",
        file=file,
        cure="If the file is correct, raise the limit: --input-limit bytes=8Gi",
    )


def _corrupt(kind: str, file: str) -> InputError:
    return InputError(f"is a truncated or corrupt {kind} file", file=file, cure="Export or download it again")


def _collect(chunks: Iterator[bytes], file: str, limits: Limits) -> bytes:
    buffer = io.BytesIO()
    for chunk in chunks:
        buffer.write(chunk)
        if buffer.tell() > limits.max_bytes:
            raise _too_large(file, limits)
    return buffer.getvalue()


def _gunzip(data: bytes, file: str) -> Iterator[bytes]:
    """Chunks of every gzip member of ``data``; each byte is copied a few times, however many members there are."""
    position = 0
    while position < len(data):
        stream = zlib.decompressobj(wbits=31)
        try:
            while not stream.eof and position < len(data):
                piece = data[position : position + _PIECE]
                position += len(piece)
                while chunk := stream.decompress(piece, _CHUNK):
                    yield chunk
                    piece = stream.unconsumed_tail
        except zlib.error:
            raise _corrupt("gzip", file) from None
        if not stream.eof:
            raise _corrupt("gzip", file)
        position = _after_zeros(data, position - len(stream.unused_data))


def _after_zeros(data: bytes, position: int) -> int:
    """The first position from ``position`` on that is not padding."""
    found = _NO_ZERO.search(data, position)
    return found.start() if found else len(data)


def _unzstd(data: bytes, file: str) -> Iterator[bytes]:
    """Chunks of the zstd frames of ``data``; fed in small pieces, so that no step unpacks without bound."""
    position = 0
    while position < len(data) and data.startswith((_ZSTD, *_ZSTD_SKIPPED), position):
        stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
        try:
            while not stream.eof and position < len(data):
                piece = data[position : position + _PIECE]
                position += len(piece)
                yield stream.decompress(piece)
        except zstandard.ZstdError:
            raise _corrupt("zstd", file) from None
        if not stream.eof:
            raise _corrupt("zstd", file)
        position -= len(stream.unused_data)


def _unzip(data: bytes, file: str, limits: Limits) -> list[Member]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = sorted(n for n in archive.namelist() if n.endswith(_SUFFIXES) and not n.startswith("__MACOSX/"))
            left, members = limits.max_bytes, []
            for name in names:
                with archive.open(name) as stream:
                    content = _collect(_pieces(stream), file, Limits(max_bytes=left))
                left -= len(content)
                members.append(Member(f"{file}!{name}", content))
    except LimitExceededError:
        raise _too_large(file, limits) from None
    except (
        *(zipfile.BadZipFile, zlib.error, EOFError, OSError, NotImplementedError, RuntimeError),
        *(ValueError, IndexError, OverflowError, struct.error),  # a directory that points outside of the file
    ):
        raise _corrupt("zip", file) from None
    if not members:
        raise InputError("holds no JSON or YAML file", file=file, cure="A KAI snapshot holds one snapshot.json")
    return members
