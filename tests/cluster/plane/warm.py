"""Start ``python -m kai_solver ...`` in processes that have imported everything before: by fork, in place of exec.

Importing is three quarters of the CPU of a controller that lives for a few seconds. A process of its own imports once,
and forks on request; it has one thread and opens no connection, so that a fork is as good as a new process. Its
children lead process groups of their own, and are killed when it ends, at the latest when its standard input is closed.

A request is a line of JSON with ``words``, ``env`` and ``log``; ``{"began": pid}`` answers it, and ``{"ended": pid,
"code": exit code}`` comes when the child has ended.
"""

import contextlib
import gc
import importlib
import json
import os
import random
import runpy
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[3]
IMPORTED = (
    "kai_solver.cli.app",
    "kai_solver.cli.interrupt",
    "kai_solver.controller.app",
    "kai_solver.controller.logs",
    "kai_solver.controller.process",
    "kai_solver.cluster.rest",
)
"""What the command ``controller`` imports."""

START_S = 60.0


class Forked:
    """A child of the warm process; the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, parent: "Warm") -> None:
        self.pid = pid
        self._parent = parent

    @property
    def returncode(self) -> int | None:
        """As `subprocess.Popen` has it: below zero, the signal that ended it; None while it runs."""
        return self._parent.codes.get(self.pid)

    def poll(self) -> int | None:
        """Exit code, or None while it runs."""
        self._parent.listen()
        return self.returncode

    def wait(self, limit_s: float) -> int:
        """Wait for its end.

        Raises
        ------
        subprocess.TimeoutExpired
            It has not ended within ``limit_s`` seconds.
        """
        ends_s = time.monotonic() + limit_s
        while (code := self.poll()) is None:
            if time.monotonic() > ends_s:
                raise subprocess.TimeoutExpired("kai_solver", limit_s)
            time.sleep(0.01)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


class Warm:
    """The process that forks; begins at once.

    Attributes
    ----------
    codes
        Exit codes of the children that have ended, by process id.
    """

    def __init__(self) -> None:
        self.codes: dict[int, int] = {}
        self._lock = threading.Lock()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.cluster.plane.warm"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
        )
        self._begun: list[int] = []
        self._rest = b""

    def start(self, words: Sequence[str], env: Mapping[str, str], log: Path) -> Forked:
        """Run ``python -m kai_solver *words`` with this environment; its output is added to ``log``."""
        assert self._process.stdin is not None
        asked = {"words": list(words), "env": dict(env), "log": str(log)}
        with self._lock:
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
            ends_s = time.monotonic() + START_S
            while not self._begun:
                assert time.monotonic() < ends_s, "the warm process forks no child"
                self._read(0.1)
            pid = self._begun.pop()
            self.codes.pop(pid, None)  # of an earlier process with the same id
            return Forked(pid, self)

    def listen(self) -> None:
        """Learn which children have ended by now."""
        with self._lock:
            self._read(0.0)

    def end(self) -> None:
        """End the process and its children."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(10)
        self._process.stdout.close()

    def _read(self, wait_s: float) -> None:
        out = self._process.stdout
        assert out is not None
        while select.select([out], [], [], wait_s)[0]:
            found = os.read(out.fileno(), 1 << 16)
            assert found, "the warm process has ended"
            *lines, self._rest = (self._rest + found).split(b"\n")
            for line in map(json.loads, lines):
                if "began" in line:
                    self._begun.append(line["began"])
                else:
                    self.codes[line["ended"]] = line["code"]
            wait_s = 0.0


def serve() -> list[str] | None:
    """Fork on request until standard input is closed; a child returns with the words that it is to run."""
    children: set[int] = set()
    rest = b""
    while True:
        is_asked = bool(select.select([0], [], [], 0.02)[0])
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.discard(pid)
                _say(ended=pid, code=os.waitstatus_to_exitcode(status))
        if not is_asked:
            continue
        found = os.read(0, 1 << 20)
        if not found:
            for pid in children:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
            return None
        *lines, rest = (rest + found).split(b"\n")
        for asked in map(json.loads, lines):
            pid = os.fork()
            if not pid:
                _become(asked["env"], asked["log"])
                return list(asked["words"])
            with contextlib.suppress(OSError):  # the child may have done so, or have ended
                os.setpgid(pid, pid)
            children.add(pid)
            _say(began=pid)


def _become(env: Mapping[str, str], log: str) -> None:
    os.setpgid(0, 0)
    nothing, out = os.open(os.devnull, os.O_RDONLY), os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    for found, number in ((nothing, 0), (out, 1), (out, 2)):
        os.dup2(found, number)
    for found in (nothing, out):
        os.close(found)
    os.environ.clear()
    os.environ.update(env)
    random.seed()


def _say(**what: int) -> None:
    os.write(1, json.dumps(what).encode() + b"\n")


def main() -> None:
    """Import, serve; a child runs the command."""
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()
    words = serve()
    if words is not None:
        sys.argv = ["kai_solver", *words]
        runpy.run_module("kai_solver", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
