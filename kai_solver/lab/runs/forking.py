"""The preloaded parent of runs: a process with everything imported, from which each run is forked.

``execute`` starts it as a process of its own, and asks it over a socket. A request is one byte and two file
descriptors: a channel, over which the forked process gets what it is to do and says what came of it, and a pipe, to
which the parent writes how that process ended. One thing that a forked process may do is to read an instance and serve
in the same way: then runs of that instance are forked from it, and need not read it again.

Nothing outlives the process that asked: this one ends with its socket, and what was forked from it ends with it.
"""

import contextlib
import gc
import os
import select
import signal
import socket
import struct
import sys
import time
import traceback
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Literal

from kai_solver.errors import InputError, KaiSolverError
from kai_solver.instances_io import Loaded
from kai_solver.instances_io.unpack import noting_files
from kai_solver.lab.runs.instance import read_instance
from kai_solver.lab.runs.machine import cpu, revision, versions
from kai_solver.lab.runs.memory import own_cpu_s, own_peak_mib
from kai_solver.lab.runs.processes import killed_with_parent
from kai_solver.lab.runs.replaying import bundle_of
from kai_solver.lab.runs.running import blank, decide_once, described
from kai_solver.lab.runs.scenarios import play
from kai_solver.lab.runs.task import Generated, InstanceFile, Outcome, ScenarioFile, Task
from kai_solver.lab.simulate import load_scenario

ENDED = struct.Struct("i")
"""How a process ended, as ``waitpid`` says it."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Read an instance, and serve runs of it. Answered by `Held`, or `Failed`."""

    source: InstanceFile | Generated


@dataclass(frozen=True, slots=True)
class Ask:
    """Do a run, answered by its improvements as they come and an `Outcome`.

    Or write its bundle: bytes. Or read its scenario, and nothing else: `Held`, or `Failed`.
    """

    task: Task
    what: Literal["run", "bundle", "check"] = "run"


@dataclass(frozen=True, slots=True)
class Held:
    """It was read, in so many seconds, from these files."""

    read_s: float
    files: tuple[Path, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """It could not be done: the error, in words; ``is_input``: what was read is at fault."""

    error: str
    is_input: bool = False

    def as_error(self) -> KaiSolverError:
        """It as an exception."""
        return InputError(self.error) if self.is_input else KaiSolverError(self.error)


def main() -> None:
    """Serve over standard input, which is a socket."""
    asked = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)  # what the user's command prints is not for runs to write between
    for found in (cpu, revision, versions):  # known to all runs: to ask for the revision is a process of its own
        found()
    _serve(asked, None)


def _serve(asked: socket.socket, held: Loaded | None) -> None:
    """Fork a process for each request until the socket's other end is gone; end with it."""
    ending, ended = os.pipe()
    os.set_blocking(ended, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(ended, warn_on_full_buffer=False)
    gc.collect()
    gc.freeze()  # a collection in a forked process would write to, and so copy, all that was read before
    waiting: dict[int, int] = {}
    while True:
        readable, _, _ = select.select([asked.fileno(), ending], [], [])
        if ending in readable:
            os.read(ending, 4096)
            _report(waiting)
        if asked.fileno() in readable:
            try:
                said, descriptors, _, _ = socket.recv_fds(asked, 1, 2)
            except OSError:
                said, descriptors = b"", []
            if not said:
                os._exit(0)
            channel, report = descriptors
            pid = os.fork()
            if pid == 0:
                for descriptor in (asked.detach(), ending, ended, report, *waiting.values()):
                    os.close(descriptor)
                _forked(channel, held)
            waiting[pid] = report
            os.close(channel)


def _report(waiting: dict[int, int]) -> None:
    """Say how processes ended to those which wait for it."""
    while waiting:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if pid == 0:
            return
        report = waiting.pop(pid)
        with contextlib.suppress(BrokenPipeError):
            os.write(report, ENDED.pack(status))
        os.close(report)


def _forked(descriptor: int, held: Loaded | None) -> None:
    """What a forked process does, from its first to its last moment."""
    code = 1
    try:
        _end_with_parent()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        channel = Connection(descriptor)
        channel.send(os.getpid())
        asked: Hold | Ask = channel.recv()
        if isinstance(asked, Hold):
            _hold(channel, asked.source)
        elif asked.what == "bundle":
            channel.send(None if held is None else bundle_of(asked.task, held))
        elif asked.what == "check" and isinstance(asked.task.source, ScenarioFile):
            channel.send(_checked(asked.task.source, asked.task.seed))
        else:
            channel.send(_run(channel, asked.task, held))
        code = 0
    except (BrokenPipeError, EOFError):
        pass  # nothing waits for the answer any more
    except BaseException:  # the end of the process, whatever it is
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)


def _end_with_parent() -> None:
    """Be killed when the parent ends. (Linux; elsewhere a run that lost its parent goes on to its end.)"""
    parent = os.getppid()
    killed_with_parent()
    if sys.platform == "linux":
        if os.getppid() != parent or parent == 1:
            os._exit(1)


def _hold(channel: Connection, source: InstanceFile | Generated) -> None:
    start_s = time.monotonic()
    try:
        with noting_files() as files:
            held = read_instance(source)
    except (KaiSolverError, ValueError) as error:
        channel.send(Failed(str(error), isinstance(error, InputError)))
        return
    channel.send(Held(time.monotonic() - start_s, tuple(files)))
    _serve(socket.socket(fileno=os.dup(channel.fileno())), held)


def _checked(source: ScenarioFile, seed: int) -> Held | Failed:
    start_s = time.monotonic()
    try:
        with noting_files() as files:
            load_scenario(source.path, seed=seed)
    except KaiSolverError as error:
        return Failed(str(error), isinstance(error, InputError))
    return Held(time.monotonic() - start_s, tuple(files))


def _run(channel: Connection, task: Task, held: Loaded | None) -> Outcome | Failed:
    start_s = time.monotonic()
    try:
        if isinstance(task.source, ScenarioFile):
            outcome = play(task)
        elif held is None:
            return Failed("the instance was not read")
        else:
            channel.send(described(blank(task, "ok"), held.snapshot))
            record, improvements = decide_once(task, held, channel.send)
            outcome = Outcome(record, improvements)
    except KaiSolverError as error:
        return Failed(str(error))
    except Exception as error:  # whatever a run does, its row says so
        traceback.print_exc()
        return Failed(f"{type(error).__name__}: {error}")
    wall_s = time.monotonic() - start_s
    record = replace(outcome.record, cpu_s=own_cpu_s(), wall_s=wall_s, peak_mib=own_peak_mib())
    return replace(outcome, record=record)
