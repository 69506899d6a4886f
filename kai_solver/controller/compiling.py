"""Compiling kernels beside the loop: in a process of its own, at the lowest priority, once a cluster is large."""

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO

import structlog

from kai_solver import compiled
from kai_solver.controller.process import give_code_back, give_heap_back

COMMAND = (sys.executable, "-P", "-m", "kai_solver.compiled")
_LOG = structlog.get_logger(__name__)


class Compiling:
    """Called before each cycle; while it compiles, cycles run the uncompiled kernels.

    Parameters
    ----------
    report
        Gets whether cycles run compiled kernels, when that changes.
    may_compile
        False: compiled kernels are used where they are there, and never made.
    command
        What compiles.
    """

    def __init__(
        self, report: Callable[[bool], None], *, may_compile: bool = True, command: Sequence[str] = COMMAND
    ) -> None:
        self._report = report
        self._may_compile = may_compile
        self._command = command
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._began_s = 0.0
        self._is_over = False

    def __call__(self, nodes: int) -> None:
        """Load kernels, or begin to compile them, if a cluster with so many nodes wants them."""
        if self._is_over or not compiled.is_wanted(nodes):
            return
        # Asked before the file is looked for: what a process that ended wrote is there.
        is_ended = self._process is not None and self._process.poll() is not None
        if compiled.load_kept():
            self._end("compiled kernels decide", is_loaded=True)
        elif not self._may_compile:
            self._end("kernels are not compiled, and compile_kernels is off: uncompiled ones decide")
        elif self._process is None:
            self._begin()
        elif is_ended:
            self._end("kernels could not be compiled: uncompiled ones decide", error=self._error())

    def close(self) -> None:
        """Stop."""
        self._is_over = True
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        if self._stderr is not None:
            self._stderr.close()

    def _error(self) -> str:
        """The last that the process said."""
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace")[-1000:].strip()

    def _begin(self) -> None:
        self._began_s = time.monotonic()
        try:
            self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 - closed in `close`
            self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=self._stderr)
        except OSError as error:
            self._end("kernels could not be compiled: uncompiled ones decide", error=str(error))
        else:
            _LOG.info("a separate process compiles the kernels; uncompiled ones decide meanwhile")

    def _end(self, said: str, *, is_loaded: bool = False, error: str = "") -> None:
        self._is_over = True
        self._report(is_loaded)
        if is_loaded:
            give_code_back("libllvmlite")
            give_heap_back()
            seconds = time.monotonic() - self._began_s if self._process is not None else 0.0
            _LOG.info(said, compiled_in_s=round(seconds, 1))
        else:
            _LOG.warning(said, **({"error": error} if error else {}))
