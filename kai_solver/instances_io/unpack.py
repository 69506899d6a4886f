"""Bytes of a file, unpacked under a limit: plain, gzip, zstd or zip, told apart by their first bytes."""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import zstandard

from kai_solver.errors import InputError, LimitExceededError
from kai_solver.instances_io.limits import Limits

_GZIP, _ZSTD, _ZIP = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", (b"PK\x03\x04", b"PK\x05\x06")
_CHUNK = 1 << 20
_SUFFIXES = (".json", ".yaml", ".yml")


@dataclass(frozen=True, slots=True)
class Member:
    """One file, or one file inside a zip: a name for messages, and its bytes."""

    name: str
    data: bytes


def read_bytes(path: Path, limits: Limits) -> bytes:
    """Bytes of ``path`` as they lie on disk, at most ``limits.max_bytes``."""
    try:
        if path.stat().st_size > limits.max_bytes:
            raise _too_large(str(path), limits)
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(
            f"cannot be read: {reason}", file=str(path), cure="Check the path and its permissions"
        ) from None


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
        cure="If the file is what it should be, raise the limit of bytes",
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
    """Chunks of every gzip member of ``data``."""
    while data:
        stream = zlib.decompressobj(wbits=31)
        try:
            while not stream.eof and (chunk := stream.decompress(data, _CHUNK)):
                yield chunk
                data = stream.unconsumed_tail
        except zlib.error:
            raise _corrupt("gzip", file) from None
        if not stream.eof:
            raise _corrupt("gzip", file)
        data = stream.unused_data.lstrip(b"\0")


def _unzstd(data: bytes, file: str) -> Iterator[bytes]:
    """Chunks of the zstd frames of ``data``; fed in small pieces, so that no step unpacks without bound."""
    source = io.BytesIO(data)
    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(source, read_across_frames=True)
    try:
        while chunk := stream.read(_CHUNK):
            yield chunk
        if not _zstd_is_complete(data):
            raise _corrupt("zstd", file)
    except zstandard.ZstdError:
        raise _corrupt("zstd", file) from None


def _zstd_is_complete(data: bytes) -> bool:
    """Whether the last frame ends: ``stream_reader`` takes the end of its input for the end of the frame."""
    stream = zstandard.ZstdDecompressor(max_window_size=1 << 27).decompressobj()
    piece = 1 << 12
    for start in range(0, len(data), piece):
        stream.decompress(data[start : start + piece])
        if stream.eof:
            rest = stream.unused_data + data[start + piece :]
            return not rest.startswith(_ZSTD) or _zstd_is_complete(rest)
    return False


def _unzip(data: bytes, file: str, limits: Limits) -> list[Member]:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            names = sorted(n for n in archive.namelist() if n.endswith(_SUFFIXES) and not n.startswith("__MACOSX/"))
            left, members = limits.max_bytes, []
            for name in names:
                with archive.open(name) as stream:
                    content = _collect(iter(lambda s=stream: s.read(_CHUNK), b""), file, Limits(max_bytes=left))  # type: ignore[misc]
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
