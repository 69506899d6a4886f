"""Where the runs of a study are done, other than on this machine: a Dask cluster."""

import asyncio
import hashlib
import os
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from kai_solver.errors import InputError
from kai_solver.errors.extras import check_package
from kai_solver.lab.runs.executing import RunStoppedError, execute
from kai_solver.lab.runs.machine import revision, versions
from kai_solver.lab.runs.replaying import with_replay
from kai_solver.lab.runs.running import blank
from kai_solver.lab.runs.studying import check_tasks, runs_here, source_key
from kai_solver.lab.runs.task import Generated, Outcome, Source, Task

if TYPE_CHECKING:
    from distributed import Client
    from distributed import Future as DaskFuture

    from kai_solver.lab.runs.remote import Introduction, Parcel

ANSWER_S = 8.0
"""Seconds in which a scheduler has to answer."""
WORKERS_S = 60.0
"""Seconds that a study waits while there is no worker at all."""
LOOK_S = 0.5
"""How often is asked which workers there are, and whether the study is to stop."""
MOST_LOSSES = 3
"""A run is tried on so many workers: it may be what kills them."""

AGAIN = "What was measured is kept: run the same command again"


@dataclass(frozen=True, slots=True)
class DaskCluster:
    """A cluster that a Dask scheduler leads; a `Runner`, for `run_study`.

    A worker does as many runs at a time as it has threads. Instances and scenarios are read on this machine, and their
    files go to the workers. A run whose worker is lost is done again by another one.

    Attributes
    ----------
    address
        Of the scheduler: ``tcp://HOST:PORT``.
    allows_other_versions
        Workers may have other versions of kai-solver, OR-tools, NumPy or Python than this machine.
    should_stop
        Asked all the time: when it says so no run begins, and those that are under way are ended and not kept.
    workers_s
        Seconds that the study waits while there is no worker at all.
    """

    address: str
    allows_other_versions: bool = False
    should_stop: Callable[[], bool] = lambda: False
    workers_s: float = WORKERS_S

    def __call__(self, tasks: Iterable[Task]) -> Generator[Outcome, None, None]:
        """Do the runs.

        Raises
        ------
        InputError
            An instance or scenario cannot be read; the package ``distributed`` is missing; the scheduler does not
            answer, or went away; there is no worker, or one with other versions.
        """
        check_distributed()
        asked = list(tasks)
        if not asked:
            return
        with _connected(self.address) as client, _scheduler_errors(self.address):
            files = check_tasks(asked, should_stop=self.should_stop)
            if self.should_stop():
                return
            packed = _packed(asked, files)
            # What takes more than the limits to read has no files to send: its runs end here as they would there.
            beyond = [task for task in asked if not packed.has(task.source)]
            yield from runs_here(beyond, should_stop=self.should_stop)
            yield from _Study(client, self, packed).outcomes(task for task in asked if packed.has(task.source))

    @contextmanager
    def fed(self, tasks: Iterable[Task]) -> Iterator["Feed"]:
        """A queue of runs that are not known yet; it ends with the block.

        Parameters
        ----------
        tasks
            One for each instance that runs may ask for: these are read first.

        Raises
        ------
        InputError
            As when the runs are known.
        RunStoppedError
            It was asked to stop.
        """
        check_distributed()
        asked = list(tasks)
        with _connected(self.address) as client:
            packed = _packed(asked, check_tasks(asked, should_stop=self.should_stop))
            feed = Feed(_Study(client, self, packed))
            try:
                yield feed
            finally:
                feed.close()


def check_distributed() -> None:
    """Refuse to go on without Dask.

    Raises
    ------
    InputError
        It is not installed.
    """
    check_package("distributed", "runs on a Dask cluster need the package")


@contextmanager
def _connected(address: str) -> Iterator["Client"]:
    """A client of the scheduler at ``address``; it takes all that it started with it."""
    from distributed import Client
    from distributed.comm.core import connect

    async def ask() -> None:
        await (await connect(address, timeout=ANSWER_S)).close()

    cure = "Start one: dask scheduler. Then give its address, like tcp://HOST:8786"
    try:
        # A client waits without end for a port that is open and says nothing.
        asyncio.run(asyncio.wait_for(ask(), ANSWER_S + 1))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # other versions of Dask and what it needs: workers are compared below
            client = Client(address, timeout=ANSWER_S, set_as_default=False, name="kai-solver")
    except (OSError, ValueError, ImportError) as error:
        silent = f"the port is open, and says nothing for {ANSWER_S:g} s"
        said = f"{type(error).__name__}: {error}" if str(error) else silent
        raise InputError(f"no Dask scheduler answers: {said}", field=address, cure=cure) from None
    try:
        yield client
    finally:
        with suppress(OSError, TimeoutError):
            client.close(timeout=ANSWER_S)


@contextmanager
def _scheduler_errors(address: str) -> Iterator[None]:
    """Errors of a connection that worked, as ours."""
    try:
        yield
    except (OSError, TimeoutError) as error:
        said = f"{type(error).__name__}: {error}"
        raise InputError(f"the Dask scheduler does not answer any more: {said}", field=address, cure=AGAIN) from error


@dataclass(frozen=True, slots=True)
class _Packed:
    """What workers need of this machine: parcels by source, and where content is, by its SHA-256."""

    parcels: Mapping[str, "Parcel"]
    content: Mapping[str, Path]

    def of(self, source: Source) -> "Parcel | None":
        """The files of a source; None: it is generated."""
        return self.parcels.get(source_key(source))

    def has(self, source: Source) -> bool:
        """Whether workers can read it."""
        return isinstance(source, Generated) or source_key(source) in self.parcels

    def read(self, names: Iterable[str]) -> dict[str, bytes]:
        """Content, by its SHA-256.

        Raises
        ------
        InputError
            A file is not as it was when the study began.
        """
        found: dict[str, bytes] = {}
        for name in names:
            content = _read(self.content[name])
            if hashlib.sha256(content).hexdigest() != name:
                problem = "was changed while the study ran"
                raise InputError(problem, file=str(self.content[name]), cure=AGAIN)
            found[name] = content
        return found


def _packed(tasks: Iterable[Task], files: Mapping[str, tuple[Path, ...]]) -> _Packed:
    from kai_solver.lab.runs.remote import Parcel

    parcels: dict[str, Parcel] = {}
    content: dict[str, Path] = {}
    names: dict[Path, str] = {}
    for task in tasks:
        key = source_key(task.source)
        if isinstance(task.source, Generated) or key in parcels or not files[key]:
            continue
        path = _absolute(task.source.path)
        needed = sorted({_absolute(file) for file in files[key]})
        top = os.path.commonpath([path.parent, *(file.parent for file in needed)])
        for file in needed:
            if file not in names:
                names[file] = hashlib.sha256(_read(file)).hexdigest()
                content.setdefault(names[file], file)
        below = tuple((str(file.relative_to(top)), names[file]) for file in needed)
        parcels[key] = Parcel(str(path.relative_to(top)), below)
    return _Packed(parcels, content)


def _absolute(path: Path) -> Path:
    """Without ``..``, and with its links kept: what a file names lies beside the name that it was read by."""
    return Path(os.path.normpath(Path.cwd() / path))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        reason = error.strerror or str(error)
        raise InputError(f"cannot be read: {reason}", file=str(path), cure=AGAIN) from None


@dataclass(slots=True)
class _Worker:
    """A worker with its threads, and the runs that it does now."""

    address: str
    threads: int
    about: "Introduction"
    runs: int = 0


@dataclass(slots=True)
class _Run:
    """A run that has been sent. ``is_shared``: another one was done on the same machine meanwhile."""

    task: Task
    worker: _Worker
    future: "DaskFuture[Any]"
    is_shared: bool


@dataclass(slots=True)
class _Study:
    """The runs of one study on a cluster: each is sent to a certain worker as soon as that has a free thread.

    Dask itself would send a run that was lost to one worker after the other, as often as the scheduler's settings say,
    and would count it as lost where it only waited on the worker that died.
    """

    client: "Client"
    place: DaskCluster
    packed: _Packed
    name: str = field(default_factory=lambda: f"kai-solver-{uuid4().hex[:8]}")
    workers: dict[str, _Worker] = field(default_factory=dict)
    waiting: deque[Task] = field(default_factory=deque)
    running: list[_Run] = field(default_factory=list)
    losses: dict[str, list[str]] = field(default_factory=dict)
    delivered: set[tuple[str, str]] = field(default_factory=set)
    sent: int = 0
    heard: threading.Event = field(default_factory=threading.Event)

    def outcomes(
        self, tasks: Iterable[Task], is_fed: Callable[[], bool] = lambda: False
    ) -> Generator[Outcome, None, None]:
        """What came of each, as they come. Where the reader leaves, those under way are ended.

        ``is_fed``: more may be added to those that wait, so it does not end yet.
        """
        self.waiting.extend(tasks)
        workers_seen_s = time.monotonic()
        try:
            while self.waiting or self.running or is_fed():
                self._look_for_workers()
                now_s = time.monotonic()
                is_at_rest = not (self.waiting or self.running)  # nothing waits for workers then
                workers_seen_s = now_s if self.workers or is_at_rest else workers_seen_s
                if now_s - workers_seen_s > self.place.workers_s:
                    raise self._without_workers()
                yield from self._lost()
                self._send()
                self._wait()
                yield from self._ended()
                if self.place.should_stop():
                    return
        finally:
            with suppress(OSError, TimeoutError):
                self.client.cancel([run.future for run in self.running], force=True)

    def _without_workers(self) -> InputError:
        cure = f"Start some: dask worker {self.place.address} --nthreads 1. {AGAIN}"
        return InputError(f"no worker for {self.place.workers_s:g} s", field=self.place.address, cure=cure)

    def _look_for_workers(self) -> None:
        """Know those that came, and forget those that are gone."""
        threads: dict[str, int] = self.client.nthreads()
        for address in self.workers.keys() - threads.keys():
            del self.workers[address]
        new = [address for address in threads if address not in self.workers]
        if not new:
            return
        from kai_solver.lab.runs.remote import introduce

        for address, about in self._on(new, introduce).items():
            self._check(address, about)
            self.workers[address] = _Worker(address, threads[address], about)

    def _on(self, addresses: list[str], function: Callable[..., Any], *arguments: object) -> dict[str, Any]:
        """What ``function`` returns on each of the workers, but for those that are gone meanwhile.

        Raises
        ------
        InputError
            A worker cannot do it: it has no kai-solver.
        """
        try:
            answers = self.client.run(function, *arguments, workers=addresses, on_error="return")
        except ImportError as error:
            raise self._without_package(", ".join(addresses), error) from None
        found: dict[str, Any] = {}
        for address, answer in answers.items():
            if isinstance(answer, ImportError | AttributeError) or str(answer).startswith(_IMPORTING):
                raise self._without_package(address, answer)
            if isinstance(answer, Exception) and not _is_gone(answer):
                problem = f"a worker cannot be used: {type(answer).__name__}: {answer}"
                cure = "Look into its log, and give it a folder with space: --local-directory"
                raise InputError(problem, field=address, cure=cure)
            if not isinstance(answer, Exception):
                found[address] = answer
        return found

    def _without_package(self, address: str, error: Exception) -> InputError:
        cure = f"Install there what is here, {versions()}: pip install 'kai-solver[experiments]'"
        return InputError(f"a worker cannot use kai-solver: {error}", field=address, cure=cure)

    def _check(self, address: str, about: "Introduction") -> None:
        there, here = about.versions, versions()
        if about.revision and revision():
            there, here = f"{there}, revision {about.revision}", f"{here}, revision {revision()}"
        if there != here and not self.place.allows_other_versions:
            pairs = zip(there.split(", "), here.split(", "), strict=True)
            others = ", ".join(f"{its}, not {own}" for its, own in pairs if its != own)
            cure = "Install the same on all machines, or write --allow-other-versions: every run says which it had"
            raise InputError(f"a worker has {others} as here", field=address, cure=cure)

    def _lost(self) -> Iterator[Outcome]:
        """Runs on a worker that is gone wait again; a run that lost too many workers has its outcome."""
        for run in [run for run in self.running if self.workers.get(run.worker.address) is not run.worker]:
            run.future.cancel()
            yield from self._lose(run, "is gone")

    def _lose(self, run: _Run, why: str) -> Iterator[Outcome]:
        self._take(run)
        lost = self.losses.setdefault(run.task.run, [])
        lost.append(f"{run.worker.address} ({run.worker.about.host}) {why}")
        if len(lost) < MOST_LOSSES:
            self.waiting.appendleft(run.task)
            return
        error = f"{len(lost)} workers were lost while they did this run: {', '.join(lost)}; are they out of memory?"
        yield with_replay(run.task, Outcome(blank(run.task, "failed", error)))

    def _take(self, run: _Run) -> None:
        self.running.remove(run)
        run.worker.runs -= 1

    def _send(self) -> None:
        """Give each free thread a run, the least busy worker first."""
        while self.waiting:
            free = [worker for worker in self.workers.values() if worker.runs < worker.threads]
            if not free:
                return
            self._start(self.waiting.popleft(), min(free, key=lambda worker: worker.runs / worker.threads))

    def _start(self, task: Task, worker: _Worker) -> None:
        from kai_solver.lab.runs.remote import do

        self.sent += 1
        future = self.client.submit(
            do,
            task,
            self.packed.of(task.source),
            key=f"{self.name}-{self.sent}-{task.run}",
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
        )
        future.add_done_callback(lambda _: self.heard.set())
        beside = [run for run in self.running if run.worker.about.machine == worker.about.machine]
        for run in beside:
            run.is_shared = True
        self.running.append(_Run(task, worker, future, bool(beside)))
        worker.runs += 1

    def _wait(self) -> None:
        """Until a run has ended, or it is time to look what else is new."""
        self.heard.wait(LOOK_S)
        self.heard.clear()

    def _ended(self) -> Iterator[Outcome]:
        """Outcomes of runs that ended; those that want files get them."""
        from distributed import CancelledError
        from distributed.scheduler import KilledWorker

        from kai_solver.lab.runs.remote import Lacking

        for run in [run for run in self.running if run.future.status != "pending"]:
            try:
                said = run.future.result(timeout=ANSWER_S)
            except TimeoutError:  # its worker went away with the result: seen by the next look
                continue
            except (CancelledError, KilledWorker):
                self._check_scheduler()
                yield from self._lose(run, "was killed")
                continue
            except Exception as error:  # of Dask: a run's own are in its outcome
                self._take(run)
                text = f"{type(error).__name__}: {error}"
                yield with_replay(run.task, Outcome(blank(run.task, "failed", text)))
                continue
            if isinstance(said, Outcome):
                self._take(run)
                yield _as_here(said, run)
            elif isinstance(said, Lacking):
                if (run.task.run, run.worker.address) in self.delivered:  # its folder does not keep what it gets
                    yield from self._lose(run, "has not kept the files")
                    continue
                self._take(run)
                self._deliver(run.worker, said.contents)
                self.delivered.add((run.task.run, run.worker.address))
                self.waiting.appendleft(run.task)
            else:
                yield from self._lose(run, "cancelled it")

    def _check_scheduler(self) -> None:
        """Raises OSError where it is gone: then nothing is known of the workers."""
        self.client.nthreads()

    def _deliver(self, worker: _Worker, contents: Iterable[str]) -> None:
        from kai_solver.lab.runs.remote import store

        for name in contents:
            self._on([worker.address], store, self.packed.read([name]))


class Feed:
    """Runs on a cluster that are asked for one at a time, from any thread, while others are under way.

    A thread of its own sends them and hears what came of them. What ends it, such as a scheduler that went away, is
    raised in all threads that wait, and in all that ask later.
    """

    def __init__(self, study: _Study) -> None:
        self._study = study
        self._asked: dict[str, Future[Outcome]] = {}
        self._lock = threading.Lock()
        self._is_open = True
        self._end: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name="kai-solver-feed", daemon=True)
        self._thread.start()

    def execute(self, task: Task) -> Outcome:
        """Do the run on a worker, and wait for what comes of it; not twice at the same time the same run.

        Raises
        ------
        InputError
            The scheduler went away; there is no worker, or one with other versions.
        RunStoppedError
            It was asked to stop.
        """
        if not self._study.packed.has(task.source):
            # What takes more than the limits to read has no files to send: its run ends here as it would there.
            return execute(task, self._study.place.should_stop)
        future: Future[Outcome] = Future()
        with self._lock:
            if self._end is not None:
                raise self._end
            self._asked[task.run] = future
            self._study.waiting.append(task)
        self._study.heard.set()
        return future.result()

    @property
    def threads(self) -> int:
        """Runs that the cluster does at a time, by what is known of its workers."""
        return sum(worker.threads for worker in list(self._study.workers.values()))

    def close(self) -> None:
        """End what is under way."""
        self._is_open = False
        self._study.heard.set()
        self._thread.join()

    def _work(self) -> None:
        end: BaseException = RunStoppedError()
        try:
            with _scheduler_errors(self._study.place.address):
                for outcome in self._study.outcomes((), lambda: self._is_open):
                    with self._lock:
                        future = self._asked.pop(outcome.record.run)
                    future.set_result(outcome)
        except BaseException as error:  # whatever it is: threads that wait have to know
            end = error
        with self._lock:
            self._end = end
            left, self._asked = self._asked, {}
        for future in left.values():
            future.set_exception(end)


_IMPORTING = ("ModuleNotFoundError(", "ImportError(", "AttributeError(")
"""How Dask says an error that came while it read what was sent."""


def _is_gone(error: Exception) -> bool:
    """Whether it is Dask that says so: the worker does not answer."""
    from distributed.comm.core import CommClosedError

    return isinstance(error, CommClosedError | TimeoutError)


def _as_here(outcome: Outcome, run: _Run) -> Outcome:
    """The outcome with what only this machine knows."""
    record = replace(outcome.record, is_shared=outcome.record.is_shared or run.is_shared)
    if record.status == "ok":
        return replace(outcome, record=record)
    return with_replay(run.task, replace(outcome, record=record))
