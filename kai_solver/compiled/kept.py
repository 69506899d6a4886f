"""The file with compiled kernels: written whole or not at all, and read only if it is as it was written."""

import contextlib
import hashlib
import os
import tempfile
from pathlib import Path
from typing import Final

from kai_solver.errors import InputError

VERSIONS_KEPT: Final = 8
"""Files in the folder, the newest: a change to a kernel leaves the one before behind."""
_DIGEST_BYTES = hashlib.sha256().digest_size


def read(file: Path) -> bytes | None:
    """What was written; None where the file is not there, cannot be read, or is not whole."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    return content if hashlib.sha256(content).digest() == digest else None


def check_place(file: Path) -> None:
    """Make the folder, and see that it can be written to.

    Raises
    ------
    InputError
        It cannot.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=file.parent):
            pass
    except OSError as error:
        raise _cannot(file, error) from None


def write(file: Path, content: bytes) -> None:
    """Write, and remove old versions. Readers, and others that write the same, see a whole file at any time.

    Raises
    ------
    InputError
        There is no room, or no right.
    """
    try:
        handle, draft = tempfile.mkstemp(dir=file.parent, suffix=".draft")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(hashlib.sha256(content).digest() + content)
            Path(draft).chmod(0o644)
            Path(draft).replace(file)
        except BaseException:
            Path(draft).unlink()
            raise
    except OSError as error:
        raise _cannot(file, error) from None
    with contextlib.suppress(OSError):  # Another process removes the same.
        for old in sorted(file.parent.glob("*.kernels"), key=lambda path: -path.stat().st_mtime)[VERSIONS_KEPT:]:
            old.unlink()


def _cannot(file: Path, error: OSError) -> InputError:
    reason = (error.strerror or str(error)).lower()
    cure = "Set KAI_SOLVER_KERNELS to a folder that can be written to"
    return InputError(f"compiled kernels cannot be kept: {reason}", file=str(file.parent), cure=cure)
