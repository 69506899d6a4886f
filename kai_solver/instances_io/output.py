"""Files that are written: places are looked at before the work, and contents appear in one step."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import zstandard

from kai_solver.errors import InputError

_PARTIAL = ".part"
"""Ends the name of a file that is not complete yet."""

_OTHER_FORMS = {".yaml": "YAML", ".yml": "YAML", ".gz": "gzip", ".zip": "zip"}


def check_place(path: Path) -> None:
    """Refuse a place where no file can be, before minutes are spent on what is to be written there.

    Raises
    ------
    InputError
        Its folder does not exist, or it is one itself.
    """
    if path.is_dir() or not path.parent.is_dir():
        problem = "is a folder" if path.is_dir() else "is in no folder that exists"
        raise InputError(problem, file=str(path), cure="Name a writable place")
    try:
        if _is_written_in_place(path):
            return
        partial = _partial(_behind_links(path))
        with suppress(FileExistsError):  # another command writes there, and will have ended
            partial.touch(exist_ok=False)
            partial.unlink()
    except OSError as error:
        raise InputError(
            f"cannot be written: {reason_of(error)}", file=str(path), cure="Name a writable place"
        ) from error


def check_json_place(path: Path) -> None:
    """Refuse a place where no JSON document can be, before it is made.

    Raises
    ------
    InputError
        No file can be there, or its name says that it is something else.
    """
    other = _OTHER_FORMS.get(path.suffix)
    if other is not None:
        raise InputError(f"would hold JSON, and its name says {other}", file=str(path), cure="Name a .json file")
    check_place(path)


def make_folder(folder: Path) -> None:
    """Make a folder for what is to be written, before minutes are spent on that.

    Raises
    ------
    InputError
        It cannot be, or nothing can be written into it.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {reason_of(error)}", file=str(folder), cure="Name a folder") from error
    check_place(folder / "results")


def reason_of(error: Exception) -> str:
    """What the operating system or a library says, to be the end of a sentence."""
    return (getattr(error, "strerror", None) or str(error)).lower()


def _is_written_in_place(path: Path) -> bool:
    return path.exists() and not path.is_file()


def _behind_links(path: Path) -> Path:
    return Path(os.path.realpath(path))  # `Path.resolve` fails where links form a loop


def _partial(path: Path) -> Path:
    return path.with_name(path.name + _PARTIAL)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Another file to write, which takes the place of ``path`` when all is in it; on an error nothing is left of it.

    So a full disk, or the end of the process, leaves the file that was there before. A link stays, and the file that it
    names is replaced. What is no file (``/dev/stdout``, a named pipe) is written itself: to replace it would remove it.
    """
    if _is_written_in_place(path):
        yield path
        return
    path = _behind_links(path)
    partial = _partial(path)
    try:
        yield partial
        partial.replace(path)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def write_bytes(content: bytes, path: Path) -> None:
    """Write a file in one step: a reader sees the old content or the new one.

    Raises
    ------
    InputError
        It cannot be written.
    """
    if path.suffix == ".zst":
        content = zstandard.ZstdCompressor(level=9).compress(content)
    try:
        with replacing(path) as partial:
            partial.write_bytes(content)
    except OSError as error:
        cure = "Make room, or name a writable place"
        raise InputError(f"cannot be written: {reason_of(error)}", file=str(path), cure=cure) from error
