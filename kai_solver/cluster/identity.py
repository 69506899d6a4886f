"""The name of a process among the candidates for a Lease; a process that restarts in the same pod keeps the name."""

import fcntl
import os
import platform
import re
import tempfile
from contextlib import suppress
from pathlib import Path

_TOKEN = re.compile(r"[0-9a-f]{16}")


class Identity:
    """A name for ``holderIdentity``: that of the machine (in Kubernetes: of the pod), and a token.

    The token is in a file that this process locks (``flock``). A process that gets the lock may take over at once a
    Lease that is held under the file's token. All processes with that name held the lock, and the kernel releases it
    only when the process has ended, even if the process hangs. In a pod the file is in a volume that outlives
    containers. While another process has the lock, or if no file can be locked, the token is a new one, and this
    process waits for the Lease like other candidates.

    Parameters
    ----------
    lease
        Name of the Lease: processes that want different ones do not share a token.
    folder
        Where the file is; None: where temporary files are.
    """

    def __init__(self, lease: str, folder: Path | None = None) -> None:
        self._file = -1
        token = os.urandom(8).hex()
        with suppress(OSError):
            token = self._locked((folder or Path(tempfile.gettempdir())) / f"{lease}.holder", token)
        self.name = f"{platform.node()}_{token}"

    def close(self) -> None:
        """Another process may have the name; call it only when this one writes no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _locked(self, path: Path, token: str) -> str:
        """The file's token, or ``token`` where the file has none yet.

        Raises
        ------
        OSError
            Another process has the lock, or the file cannot be used.
        """
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file).st_uid != os.geteuid():
                raise PermissionError(path)
            found = os.pread(file, 64, 0).decode(errors="replace")
            if not _TOKEN.fullmatch(found):
                os.ftruncate(file, 0)
                os.pwrite(file, token.encode(), 0)
                found = token
        except OSError:
            os.close(file)
            raise
        self._file = file
        return found
