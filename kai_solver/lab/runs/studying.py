"""A study is run: what is missing of it, some at a time, each kept when it ends."""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

from kai_solver.lab.runs.executing import RunStoppedError, check_readable, execute
from kai_solver.lab.runs.record import RunRecord
from kai_solver.lab.runs.study import Study
from kai_solver.lab.runs.task import Outcome, Source, Task


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a study is, after each run.

    Attributes
    ----------
    record
        Of the run that has just ended.
    done, total
        Runs that ended, those of earlier times among them, and runs that are asked for.
    failed
        Of ``done``: those that are not ok.
    """

    record: RunRecord
    done: int
    total: int
    failed: int


T = TypeVar("T")
Runner = Callable[[Iterable[Task]], Generator[Outcome, None, None]]
"""Does runs, and gives back what came of each, in any order. It may leave some out: those are missing then."""


def run_study(
    study: Study,
    *,
    at_once: int = 1,
    retries: bool = False,
    report: Callable[[Standing], None] = lambda _: None,
    should_stop: Callable[[], bool] = lambda: False,
    runner: Runner | None = None,
) -> None:
    """Do the runs that the study asks for and that have not ended.

    Parameters
    ----------
    study
        Open, as a context manager.
    at_once
        Runs at a time, on this machine.
    retries
        Runs that failed are done again.
    report
        Called after each run.
    should_stop
        Asked all the time: when it says so no run begins, and those that are under way are ended and not kept.
    runner
        Does the runs in place of this machine; then ``at_once`` and ``should_stop`` are its affair.

    Raises
    ------
    InputError
        An instance or scenario cannot be read, found before any run; or the study's folder cannot be written. What was
        measured stays.
    """
    tasks = list(study.missing(retries=retries))
    if runner is None:
        check_tasks(tasks, at_once=at_once, should_stop=should_stop)
        outcomes = runs_here(tasks, at_once=at_once, should_stop=should_stop)
    else:
        outcomes = runner(tasks)
    again = {task.run for task in tasks}
    states = {record.run: record.status for record in study.records if record.run not in again}
    total = len(states) + len(tasks)
    with closing(outcomes):
        for outcome in outcomes:
            study.add(outcome)
            states[outcome.record.run] = outcome.record.status
            failed = sum(status != "ok" for status in states.values())
            report(Standing(outcome.record, len(states), total, failed))


def check_tasks(
    tasks: Iterable[Task], *, at_once: int = 1, should_stop: Callable[[], bool] = lambda: False
) -> dict[str, tuple[Path, ...]]:
    """Read every instance and scenario once, so that nothing is measured before one that cannot be read is known.

    Returns, by the source's `source_key`, the files that it was read from: none for a generator, and for what takes
    more than the limits of a run.

    Raises
    ------
    InputError
        One cannot be read; names file, field and cure.
    """
    first = {source_key(task.source): task for task in reversed(list(tasks))}

    def read(task: Task, should_stop: Callable[[], bool]) -> tuple[str, tuple[Path, ...]]:
        return source_key(task.source), check_readable(task, should_stop)

    return dict(_in_threads(read, reversed(first.values()), at_once, should_stop))


def source_key(source: Source) -> str:
    """The same for what is read in the same way."""
    return repr(source)


def runs_here(
    tasks: Iterable[Task], *, at_once: int = 1, should_stop: Callable[[], bool] = lambda: False
) -> Generator[Outcome, None, None]:
    """Do the runs on this machine, ``at_once`` at a time; those that are stopped have no outcome.

    Runs that are done at the same time are marked: they disturb each other's wall times.
    """
    marked = (replace(task, is_shared=task.is_shared or at_once > 1) for task in tasks)
    return _in_threads(execute, marked, at_once, should_stop)


def _in_threads(
    do: Callable[[Task, Callable[[], bool]], T],
    tasks: Iterable[Task],
    at_once: int,
    should_stop: Callable[[], bool],
) -> Generator[T, None, None]:
    """What ``do`` says of each task, as they come. Where the reader leaves, those under way are ended."""
    left = threading.Event()

    def stops() -> bool:
        return left.is_set() or should_stop()

    def done(futures: Iterable[Future[T]]) -> Iterator[T]:
        for future in futures:
            try:
                yield future.result()
            except RunStoppedError:
                continue

    rest = iter(tasks)
    with ThreadPoolExecutor(at_once) as threads:
        try:
            running = {threads.submit(do, task, stops) for task in islice(rest, at_once)}
            while running:
                ended, running = wait(running, return_when=FIRST_COMPLETED)
                if not stops():
                    running |= {threads.submit(do, task, stops) for task in islice(rest, len(ended))}
                yield from done(ended)
        finally:
            left.set()
