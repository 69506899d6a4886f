"""One task in a process of its own, under limits, forked from a parent that has all imports and the instance."""

import atexit
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from kai_solver.errors import KaiSolverError
from kai_solver.lab.runs.forking import ENDED, Ask, Failed, Held, Hold
from kai_solver.lab.runs.memory import family, family_cpu_s, resident_mib
from kai_solver.lab.runs.record import Improvement, RunRecord, Status
from kai_solver.lab.runs.replaying import with_replay
from kai_solver.lab.runs.running import blank
from kai_solver.lab.runs.task import Generated, InstanceFile, Limits, Outcome, ScenarioFile, Task, content_hash

LOOK_S = 0.05
"""How often memory is looked at."""
KEPT = 2
"""Instances that are kept read, beside those that runs are forked from now."""

BUNDLE_LIMITS = Limits(wall_s=300.0)
"""Of the process that writes the bundle of a run which was beyond its own."""

_COMMAND = (sys.executable, "-P", "-c", "from kai_solver.lab.runs.forking import main; main()")


def execute(task: Task, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Run ``task``; whatever it does, an outcome comes back, and its status says what happened.

    The run is a process of its own, with the solver's below it. It ends with the process that called this. May be
    called from several threads at the same time.

    Raises
    ------
    RunStoppedError
        ``should_stop`` said so, which is asked several times a second: the run was ended.
    """
    for _ in range(2):  # a parent that was killed since the last run: once more, by another
        try:
            with _parents().of(task, should_stop) as parent:
                return _executed(task, parent, should_stop)
        except RunStoppedError:
            raise
        except _GoneError as gone:
            record = blank(task, "failed", str(gone))
        except _EndedEarlyError as early:
            record = replace(blank(task, early.status, early.error), peak_mib=early.watch.peak_mib or None)
            break
        except Exception as error:  # whatever goes wrong, a study goes on
            record = blank(task, "failed", _said_of(error))
            break
    return with_replay(task, Outcome(record))


def check_readable(task: Task, should_stop: Callable[[], bool] = lambda: False) -> tuple[Path, ...]:
    """Read the task's instance or scenario, unless it is a generator's, and keep the instance for runs that follow.

    Returns the files that it was read from. One that takes more than the limits of a run is no error here, but has no
    files: the run says so.

    Raises
    ------
    InputError
        It cannot be read; names file, field and cure.
    RunStoppedError
        As of `execute`.
    """
    if isinstance(task.source, Generated):
        return ()
    with suppress(_EndedEarlyError, _GoneError), _parents().of(task, should_stop) as parent:
        if not isinstance(task.source, ScenarioFile):
            return parent.files
        said = parent.ask(Ask(task, "check"), _Watch(task.limits, should_stop))
        if isinstance(said, Failed):
            raise said.as_error()
        if isinstance(said, Held):
            return said.files
    return ()


def _said_of(error: Exception) -> str:
    """Errors of our own in their words, with what the system says; others are unexpected, and named."""
    return str(error) if isinstance(error, KaiSolverError | OSError) else f"{type(error).__name__}: {error}"


def _executed(task: Task, parent: "_Parent", should_stop: Callable[[], bool]) -> Outcome:
    """A run of that parent, with what the limits and the watching add to it."""
    known = blank(task, "ok")
    improvements: list[Improvement] = []

    def hear(said: object) -> None:
        nonlocal known
        if isinstance(said, Improvement):
            improvements.append(said)
        elif isinstance(said, RunRecord):
            known = said

    watch = _Watch(task.limits, should_stop)
    status: Status = "failed"
    try:
        said = parent.ask(Ask(task), watch, hear)
        error = "" if isinstance(said, Outcome) else _error(said)
    except (RunStoppedError, _GoneError):
        raise  # not for what this run does: it is done again
    except _EndedEarlyError as early:
        said, status, error = None, early.status, early.error
    except Exception as unexpected:  # its own fault or not, it is this run that failed
        said, error = None, _said_of(unexpected)
    if isinstance(said, Outcome):
        outcome = said
    else:
        line = " ".join(error.split())
        record = replace(known, status=status, error=line, wall_s=watch.wall_s, cpu_s=watch.cpu_s or None)
        outcome = Outcome(record, tuple(improvements))
    # A run may end before it is looked at for the first time, and knows its own peak but not that of all together.
    peak_mib = max(watch.peak_mib, outcome.record.peak_mib or 0.0) or None
    # The instance was read by the parent; a scenario is read by the run itself.
    record = replace(outcome.record, read_s=parent.read_s or outcome.record.read_s, peak_mib=peak_mib)
    if record.status == "ok":
        return replace(outcome, record=record)
    bundle = outcome.bundle
    if bundle is None and not isinstance(task.source, ScenarioFile):
        with suppress(Exception):  # without it the command shows how to read the instance
            bundle = parent.ask(Ask(task, "bundle"), _Watch(BUNDLE_LIMITS, should_stop))
    return with_replay(task, replace(outcome, record=record, bundle=bundle))


def _error(said: object) -> str:
    return said.error if isinstance(said, Failed) else f"it said {said!r}"


class _GoneError(OSError):
    """A process that others are forked from is not there any more, nor are those that were forked from it."""


class RunStoppedError(Exception):
    """The run was ended since it was asked to stop; nothing came of it."""


class _EndedEarlyError(Exception):
    """The process ended, or was ended, without an answer."""

    def __init__(self, status: Status, error: str, watch: "_Watch") -> None:
        super().__init__(error)
        self.status: Status = status
        self.error = error
        self.watch = watch


@dataclass(slots=True)
class _Watch:
    """Looks at a process and its children, and ends them beyond the limits."""

    limits: Limits
    should_stop: Callable[[], bool]
    pid: int = 0
    peak_mib: float = 0.0
    cpu_s: float = 0.0
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def wall_s(self) -> float:
        """Since the process was asked for."""
        return time.monotonic() - self.begun_s

    def look(self) -> None:
        """Look now.

        Raises
        ------
        _EndedEarlyError
            It was ended: it is beyond a limit.
        RunStoppedError
            It was ended: it was asked to stop.
        """
        if self.should_stop():
            self.end()
            raise RunStoppedError
        if self.pid:
            self.peak_mib = max(self.peak_mib, sum(resident_mib(pid) for pid in family(self.pid)))
            self.cpu_s = max(self.cpu_s, family_cpu_s(self.pid))
        if self.peak_mib > self.limits.memory_mib:
            self.end()
            problem = f"used {self.peak_mib:,.0f} MiB, more than the limit of {self.limits.memory_mib:,.0f}"
            raise _EndedEarlyError("out_of_memory", problem, self)
        if self.wall_s > self.limits.wall_s:
            self.end()
            raise _EndedEarlyError("out_of_time", f"not done after the limit of {self.limits.wall_s:g} s", self)

    def end(self) -> None:
        """Kill the process, and what it started."""
        if self.pid:
            for pid in reversed(family(self.pid)):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


class _Parent:
    """A process that others are forked from. ``channel``: its socket.

    ``read_s``, ``files``: what it took to read an instance, and from which files.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.read_s = 0.0
        self.files: tuple[Path, ...] = ()
        self.users = 0
        self._channel = channel
        self._asking = threading.Lock()

    def close(self) -> None:
        """Let it end."""
        self._channel.close()

    def ask(self, request: Hold | Ask, watch: _Watch, hear: Callable[[object], None] = lambda _: None) -> Any:
        """Have a process forked for ``request``; its answer. ``hear`` gets what it says before.

        Raises
        ------
        _EndedEarlyError
            It died, or was ended since it is beyond the limits.
        _GoneError
            The parent is not there, or went away meanwhile: there is no answer.
        """
        return self._answer(self._forked(request, watch), watch, hear)

    def hold(self, source: InstanceFile | Generated, watch: _Watch) -> "_Parent | Failed":
        """A process that has read the instance, to fork runs from.

        Raises
        ------
        _EndedEarlyError, _GoneError
            As of `ask`.
        """
        conversation = self._forked(Hold(source), watch)
        said = self._answer(conversation, watch, lambda _: None, keeps=True)
        if not isinstance(said, Held):
            return said if isinstance(said, Failed) else Failed(f"it said {said!r}")
        parent = _Parent(socket.socket(fileno=os.dup(conversation.channel.fileno())))
        conversation.close()
        parent.read_s, parent.files = said.read_s, said.files
        return parent

    def _forked(self, request: Hold | Ask, watch: _Watch) -> "_Conversation":
        own, theirs = socket.socketpair()
        ending, ended = os.pipe()
        with theirs:
            try:
                with self._asking:
                    socket.send_fds(self._channel, [b"r"], [theirs.fileno(), ended])
            except OSError as error:
                own.close()
                os.close(ending)
                raise _GoneError(f"the process that runs are forked from has ended: {error}") from error
            finally:
                os.close(ended)
        conversation = _Conversation(Connection(own.detach()), ending)
        watch.pid = 0
        with suppress(BrokenPipeError):  # its end is seen when the answer is read
            conversation.channel.send(request)
        return conversation

    def _answer(
        self, conversation: "_Conversation", watch: _Watch, hear: Callable[[object], None], *, keeps: bool = False
    ) -> Any:
        said: Any = None
        is_open = True
        try:
            while is_open:
                readable, _, _ = select.select([conversation.channel], [], [], LOOK_S)
                if not readable:
                    watch.look()
                    continue
                try:
                    heard = conversation.channel.recv()
                except (EOFError, ConnectionResetError):
                    is_open = False
                    continue
                if not watch.pid:
                    watch.pid = int(heard)
                elif keeps:
                    said = heard
                    is_open = not isinstance(heard, Held)
                else:
                    hear(heard)
                    said = heard
            watch.look()
        except BaseException:
            watch.end()
            conversation.close()
            raise
        if keeps and isinstance(said, Held):
            return said
        status = conversation.status()
        conversation.close()
        if isinstance(said, Outcome | Failed | Held | bytes) or (status == 0 and said is None):
            return said
        if status is None:
            raise _GoneError("the process that the run was forked from was killed: is the machine out of memory?")
        raise _died(status, watch)


@dataclass(frozen=True, slots=True)
class _Conversation:
    """With a forked process; ``ending``: says how it ended."""

    channel: Connection
    ending: int

    def status(self) -> int | None:
        """How it ended, as ``waitpid`` says it; None: its parent went too."""
        said = os.read(self.ending, ENDED.size)
        return int(ENDED.unpack(said)[0]) if len(said) == ENDED.size else None

    def close(self) -> None:
        """Hang up."""
        self.channel.close()
        os.close(self.ending)


def _died(status: int, watch: _Watch) -> _EndedEarlyError:
    """The run's process ended without an answer: by itself, or killed by something else than these limits."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        killed = f"its process was killed by {signal.Signals(number).name}"
        if number == signal.SIGKILL:  # sent by a person, or by the kernel when no memory is left
            return _EndedEarlyError("out_of_memory", f"{killed}: is the machine out of memory?", watch)
        return _EndedEarlyError("failed", killed, watch)
    return _EndedEarlyError("failed", f"its process ended with code {os.waitstatus_to_exitcode(status)}", watch)


class _Parents:
    """The preloaded process of this one, and below it one for each instance that runs are forked from."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self._lock = threading.Lock()
        self._first: _Parent | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._reading: dict[str, threading.Lock] = {}
        self._held: OrderedDict[str, _Parent] = OrderedDict()

    @contextmanager
    def of(self, task: Task, should_stop: Callable[[], bool]) -> Iterator[_Parent]:
        """The process that a run of ``task`` is forked from.

        Raises
        ------
        _EndedEarlyError
            To read the instance takes more than the limits.
        KaiSolverError, RunStoppedError
            It cannot be read; it was asked to stop.
        _GoneError
            A process on the way to it was killed; the next call starts another.
        """
        key = "" if isinstance(task.source, ScenarioFile) else _key(task.source)
        try:
            parent = self._for_use(key, task, should_stop)
            try:
                yield parent
            finally:
                with self._lock:
                    parent.users -= 1
        except _GoneError:
            self._drop(key)
            raise

    def _for_use(self, key: str, task: Task, should_stop: Callable[[], bool]) -> _Parent:
        """The process that is kept under ``key``, or a new one; in use, so that nothing closes it meanwhile."""
        if not key:
            first = self._preloaded()
            with self._lock:
                first.users += 1
            return first
        with self._lock:
            reading = self._reading.setdefault(key, threading.Lock())
        with reading:
            parent = self._used(key)
            if parent is None:
                found = self._read(task, should_stop)
                with self._lock:
                    self._held[key] = found
                parent = self._used(key) or found
        return parent

    def _used(self, key: str) -> _Parent | None:
        with self._lock:
            parent = self._held.get(key)
            if parent is not None:
                parent.users += 1
                self._held.move_to_end(key)
                self._forget()
            return parent

    def _drop(self, key: str) -> None:
        """Use no more a process that was killed."""
        with self._lock:
            if not key:
                self._close_first()
            elif (gone := self._held.pop(key, None)) is not None:
                gone.close()

    def close(self) -> None:
        """End them all."""
        if self.pid == os.getpid():
            while self._held:
                self._held.popitem()[1].close()
            self._close_first()

    def _close_first(self) -> None:
        if self._first is not None:
            self._first.close()
            self._first = None
        if self._process is not None:
            self._process.wait()
            self._process = None

    def _forget(self) -> None:
        idle = [key for key, parent in self._held.items() if not parent.users]
        for key in idle[: max(0, len(idle) - KEPT)]:
            self._held.pop(key).close()

    def _read(self, task: Task, should_stop: Callable[[], bool]) -> _Parent:
        if isinstance(task.source, ScenarioFile):
            raise TypeError(task.source)
        first = self._preloaded()
        try:
            found = first.hold(task.source, _Watch(task.limits, should_stop))
        except _GoneError:  # it was killed: once more, by another
            with self._lock:
                if self._first is first:
                    self._close_first()
            found = self._preloaded().hold(task.source, _Watch(task.limits, should_stop))
        if isinstance(found, Failed):
            raise found.as_error()
        return found

    def _preloaded(self) -> _Parent:
        with self._lock:
            if self._first is None:
                own, theirs = socket.socketpair()
                with theirs:
                    self._process = subprocess.Popen(_COMMAND, stdin=theirs.fileno(), start_new_session=True)
                self._first = _Parent(own)
            return self._first


def _key(source: InstanceFile | Generated) -> str:
    """Of what is read: another content is another instance."""
    if isinstance(source, Generated):
        return repr(source)
    return repr((source, source.content or content_hash(source.path)))


_own: _Parents | None = None
_owning = threading.Lock()


def _parents() -> _Parents:
    """Of this process; one that was forked from it has its own."""
    global _own
    with _owning:
        if _own is None or _own.pid != os.getpid():
            _own = _Parents()
            atexit.register(_own.close)
        return _own
