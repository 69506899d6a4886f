"""A child process at the other end of two pipes, spoken to in frames, that can never block us."""

import contextlib
import os
import select
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from kai_solver.errors import SolverError
from kai_solver.search.worker import Frame, FrameDecoder, FrameError

_READ_BYTES = 1 << 20
_STDERR_TAIL_BYTES = 400
_MIB = 1 << 20


class Channel:
    """One running child. All waiting is in `pump`, which waits no longer than its argument says.

    Raises
    ------
    SolverError
        From the constructor, if the command cannot be started.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the child, closed in `end`
        try:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, bufsize=0
            )
        except OSError as error:
            self._stderr.close()
            raise SolverError(f"the solver process cannot be started: {error}") from error
        assert self._process.stdin is not None and self._process.stdout is not None  # noqa: S101, PT018 - for mypy
        self._to_child, self._from_child = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to_child, False)
        os.set_blocking(self._from_child, False)
        self._outgoing = bytearray()
        self._decoder = FrameDecoder()

    @property
    def pid(self) -> int:
        """The child's process id."""
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """True where the child is no more."""
        return self._process.poll() is not None

    @property
    def is_sent(self) -> bool:
        """True where the child has read, or the pipe holds, all that was queued."""
        return not self._outgoing

    def send(self, frame: bytes) -> None:
        """Queue a frame; `pump` writes it as fast as the child reads."""
        self._outgoing += frame

    def pump(self, timeout_s: float) -> list[Frame]:
        """Move bytes both ways, waiting at most ``timeout_s`` for something to move, and return what arrived.

        Raises
        ------
        SolverError
            If the child has ended, or wrote something that is not a frame.
        """
        poll = select.poll()  # unlike select(), for descriptors beyond 1023 too
        poll.register(self._from_child, select.POLLIN)
        if self._outgoing:
            poll.register(self._to_child, select.POLLOUT)
        moving = {descriptor for descriptor, _ in poll.poll(max(timeout_s, 0.0) * 1000)}
        if self._to_child in moving:
            self._write()
        if self._from_child not in moving:
            return []
        data = os.read(self._from_child, _READ_BYTES)
        if not data:
            raise SolverError(self._obituary())
        try:
            return list(self._decoder.feed(data))
        except FrameError as error:
            raise SolverError(f"the solver process wrote invalid data: {error}") from error

    def resident_mib(self) -> float:
        """Memory that the child has resident now, MiB; 0 where the system does not tell."""
        return self._memory("VmRSS")

    def peak_mib(self) -> float:
        """Most memory that the child ever had resident, MiB; 0 where the system does not tell."""
        return self._memory("VmHWM")

    def kill(self) -> None:
        """End the child now, without waiting for its memory to be given back; `end` does that later."""
        self._process.kill()

    def end(self, patience_s: float = 0.0) -> None:
        """Close the pipes (the child's cue to leave), wait ``patience_s``, kill it if it is still there, clean up."""
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        try:
            self._process.wait(patience_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._stderr.close()

    def _write(self) -> None:
        try:
            written = os.write(self._to_child, self._outgoing)
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._outgoing.clear()  # the end of its output, which says why, is about to be read
            return
        del self._outgoing[:written]

    def _obituary(self) -> str:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "the solver process closed its output"
        how = f"was ended by {_signal_name(-code)}" if code < 0 else f"ended with code {code}"
        said = self._last_words()
        return f"the solver process {how}" + (f": {said}" if said else "")

    def _last_words(self) -> str:
        size = self._stderr.seek(0, os.SEEK_END)
        self._stderr.seek(max(0, size - _STDERR_TAIL_BYTES))
        return " ".join(self._stderr.read().decode(errors="replace").split())

    def _memory(self, field: str) -> float:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
                if line.startswith(field):
                    return int(line.split()[1]) * 1024 / _MIB
        return 0.0


def _signal_name(number: int) -> str:
    with contextlib.suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"
