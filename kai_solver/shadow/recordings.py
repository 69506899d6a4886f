"""Recordings: stored by a controller, read by a report, and made of two snapshots."""

import logging
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from logging.handlers import RotatingFileHandler
from pathlib import Path
from typing import Any, BinaryIO

import structlog

from kai_solver.domain import Plan, Snapshot
from kai_solver.errors import InputError
from kai_solver.shadow.deciding import decisions_of
from kai_solver.shadow.lines import Begin, Line, Look, read_lines, text_of
from kai_solver.shadow.observing import Observer

_LOG = structlog.get_logger(__name__)

FILE = "decisions.jsonl"
"""The file that is written; older ones are ``decisions.jsonl.1``, ``.2`` and so on."""

_MIB = 1 << 20

PIECE = 64 << 10
"""The most bytes that are read at a time."""


class _File(RotatingFileHandler):
    """Errors are the writer's."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802 - the library's signature
        raise


class Recorder:
    """Appends lines to the newest file of a folder; the oldest file goes when there are too many.

    A folder that cannot be written to stops nothing: a log line says so once, until writing works again. Then a line
    that was cut short, by a full disk or a kill, is taken away, so that the rest can be read.

    Parameters
    ----------
    folder
        Created where it does not exist.
    file_mib, files
        The most of one file, and the most files, the newest included.
    """

    def __init__(self, folder: Path, file_mib: int, files: int) -> None:
        self._folder, self._file_bytes, self._files = folder, file_mib * _MIB, files
        self._handler: _File | None = None
        self._is_failing = False
        self._lock = threading.Lock()

    def write(self, lines: Iterable[Line]) -> bool:
        """Append lines, together; False where they are not stored."""
        text = "\n".join(text_of(line) for line in lines)
        if not text:
            return True
        with self._lock:
            try:
                self._open().emit(logging.LogRecord("", logging.INFO, "", 0, text, None, None))
            except OSError as error:
                if not self._is_failing:
                    _LOG.error("decisions cannot be stored", folder=str(self._folder), error=str(error))
                self._is_failing = True
                self._close()
            else:
                self._is_failing = False
            return not self._is_failing

    def _open(self) -> _File:
        if self._handler is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            _end_with_a_line(self._folder / FILE)
            self._handler = _File(
                self._folder / FILE, maxBytes=self._file_bytes, backupCount=self._files - 1, encoding="utf-8"
            )
        return self._handler

    def _close(self) -> None:
        handler, self._handler = self._handler, None
        if handler is not None:
            with suppress(OSError):  # what could not be written cannot be written at the end, either
                handler.close()

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._close()

    def content(self) -> "Stored":
        """All that is stored now."""
        with self._lock, ExitStack() as opened:
            files = [opened.enter_context(path.open("rb")) for path in files_of(self._folder)]
            sizes = [os.fstat(file.fileno()).st_size for file in files]
            opened.pop_all()
        return Stored(tuple(zip(files, sizes, strict=True)))


@dataclass(slots=True)
class Stored:
    """What a recording held at a moment, to be read once, piece by piece: it may be larger than the memory.

    Files that are renamed or deleted meanwhile are read all the same; what is appended later is not.
    """

    _files: tuple[tuple[BinaryIO, int], ...]

    @property
    def size(self) -> int:
        """Bytes in all."""
        return sum(size for _, size in self._files)

    def __iter__(self) -> Iterator[bytes]:
        """The pieces, the oldest first."""
        for file, size in self._files:
            left = size
            with file:
                while left and (piece := file.read(min(left, PIECE))):
                    left -= len(piece)
                    yield piece

    def close(self) -> None:
        """Close the files; what was not read yet is lost."""
        for file, _ in self._files:
            file.close()

    def __del__(self) -> None:
        """A client that went away reads no further."""
        self.close()


def _end_with_a_line(path: Path) -> None:
    """Take away what follows the last end of a line in a file, where there is one."""
    if not path.is_file():
        return
    with path.open("rb+") as file:
        end = file.seek(0, os.SEEK_END)
        while end:
            begin = max(0, end - _MIB)
            file.seek(begin)
            found = file.read(end - begin).rfind(b"\n")
            if found >= 0:
                end = begin + found + 1
                break
            end = begin
        file.truncate(end)


def files_of(folder: Path) -> list[Path]:
    """Files of a recording, oldest first."""
    older = [path for path in folder.glob(f"{FILE}.*") if path.suffix[1:].isdigit()]
    newest = folder / FILE
    return [*sorted(older, key=lambda path: -int(path.suffix[1:])), *([newest] if newest.exists() else [])]


def read_recording(paths: Iterable[Path]) -> Iterator[Line]:
    """The lines of files and folders, in the order in which they are given; a folder's oldest file first.

    Raises
    ------
    InputError
        One cannot be read, holds no recording, or has a line of another format.
    """
    for path in paths:
        files = files_of(path) if path.is_dir() else [path]
        if not files:
            raise InputError(f"holds no {FILE}", file=str(path), cure="Name the folder of the setting recording.folder")
        is_empty = True
        for file in files:
            try:
                with file.open("rb") as lines:
                    for line in read_lines(lines, str(file)):
                        is_empty = False
                        yield line
            except OSError as error:
                cure = "Check the path and its permissions"
                raise InputError(f"cannot be read: {error.strerror}", file=str(file), cure=cure) from error
        if is_empty:
            raise InputError("holds no line of a recording", file=str(path), cure="Name what a dry run stored")


def check_pair(before: Snapshot, after: Snapshot) -> None:
    """Raise where the two cannot be of one cluster in this order.

    Raises
    ------
    InputError
        ``after`` is not later than ``before``, or has none of its nodes.
    """
    if after.now_s <= before.now_s:
        cure = "Give the earlier snapshot first; both must name their time, or hold objects with times"
        raise InputError("the second snapshot is not later than the first", cure=cure)
    names = {node.name for node in before.nodes}
    if names.isdisjoint(node.name for node in after.nodes):
        problem = "the two snapshots are not of one cluster: they have no node in common"
        raise InputError(problem, cure="Take both from the same cluster, and anonymize neither")


def recording_of(
    before: Snapshot, plan: Plan, after: Snapshot, took_s: float, pods: Mapping[str, Mapping[str, Any]]
) -> list[Line]:
    """A recording of one cycle: ``plan`` of ``before``, made in ``took_s`` seconds, and what was done until ``after``.

    ``pods``: the Kubernetes objects of the pods of ``after`` by ``namespace/name``, for the times in their conditions.

    Raises
    ------
    InputError
        `check_pair` finds that they are no pair.
    """
    check_pair(before, after)
    observer, began_s, decided_s = Observer(pods.get), before.now_s, before.now_s + took_s
    observer.see(before, began_s)
    decisions = decisions_of(before, plan, 1, decided_s)
    look = Look(at=decided_s, began=began_s, cycle=1, pending=len(plan.pending))
    return [Begin(at=began_s), *decisions.values(), look, *observer.see(after, after.now_s)]
