"""A study: a folder that says what was asked, and keeps every run that ended, whatever becomes of the process."""

import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from kai_solver.errors import InputError
from kai_solver.instances_io.output import replacing
from kai_solver.lab.runs.definition import Definition, definition_text, read_definition, tasks_of
from kai_solver.lab.runs.frames import Frames, check_polars, frames_of, write_frames
from kai_solver.lab.runs.kept import AGAIN, RUNS, keep_failed, line_of, read_runs, replay_of, written
from kai_solver.lab.runs.record import Improvement, RunRecord
from kai_solver.lab.runs.scoring import with_integrals
from kai_solver.lab.runs.task import Outcome, Task

DEFINITION, SIMULATIONS = "study.yaml", "simulations"
_RESUMES = f"{AGAIN}: it resumes where it stopped"


class Study:
    """A study's folder. To add runs use it as a context manager: then nothing else can add some meanwhile.

    ``runs.jsonl`` is what counts: a line for each run, written and synchronised before the next one. A last line that
    is torn, since the process was killed or the disk was full, is as if that run had never been. The tables beside it
    are made of it.
    """

    def __init__(self, folder: Path, definition: Definition) -> None:
        self.folder = folder
        self.definition = definition
        kept = read_runs(folder, "Delete that line, and the run is done again")
        self._records: dict[str, RunRecord] = kept.records
        self._improvements: dict[str, tuple[Improvement, ...]] = kept.improvements
        self._integrated: tuple[RunRecord, ...] | None = None
        self._file: int | None = None

    @classmethod
    def create(cls, folder: Path, definition: Definition) -> Self:
        """Make the study, or take up the one that is there: what it has measured counts, if it is asked for again.

        Raises
        ------
        InputError
            The folder cannot be written, is full of other things, or has runs of something else.
        """
        path = folder / DEFINITION
        if path.exists():
            before = read_definition(path)
            asked = {task.run for task in tasks_of(definition)}
            other = next((task.run for task in tasks_of(before) if task.run not in asked), "")
            is_empty = not (folder / RUNS).is_file() or not (folder / RUNS).stat().st_size
            if (other and not is_empty) or before.command != definition.command:
                what = f"it has {other}" if other else f"kai-solver {before.command} made it"
                cure = "Ask for all that it has and more, or name another folder"
                raise InputError(f"is a study of something else: {what}", file=str(folder), cure=cure)
        elif folder.is_dir() and any(folder.iterdir()):
            raise InputError("is not empty, and no study", file=str(folder), cure="Name a new folder")
        with written(folder, _RESUMES):
            folder.mkdir(parents=True, exist_ok=True)
            with replacing(path) as partial:
                partial.write_text(definition_text(definition))
        return cls(folder, definition)

    @classmethod
    def open(cls, folder: Path) -> Self:
        """Open the study of a folder.

        Raises
        ------
        InputError
            It has none, or one that cannot be read.
        """
        return cls(folder, read_definition(folder / DEFINITION))

    def __enter__(self) -> Self:
        self._lock()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None
        if error is None:
            self.write_tables()

    @property
    def records(self) -> tuple[RunRecord, ...]:
        """Runs that ended, in the order in which they did; of a run that was lost and done again the later one.

        Their primal integrals are against the best plans that this study has found so far.
        """
        if self._integrated is None:
            self._integrated = with_integrals(tuple(self._records.values()), self._improvements)
        return self._integrated

    def in_asked_order(self) -> tuple[RunRecord, ...]:
        """Runs that ended as they were asked for, so that the first model is the first one that was named."""
        order = {task.run: number for number, task in enumerate(tasks_of(self.definition))}
        return tuple(sorted(self.records, key=lambda record: order.get(record.run, len(order))))

    @property
    def ended(self) -> frozenset[str]:
        """Keys of runs that need not be done again: all that ended, but for those whose worker was lost."""
        return frozenset(run for run, record in self._records.items() if record.status != "lost")

    def missing(self, *, retries: bool = False) -> Iterator[Task]:
        """Runs that are asked for, and have not ended; ``retries``: those too that did not end well."""
        ended = {run for run in self.ended if not retries or self._records[run].status == "ok"}
        return (task for task in tasks_of(self.definition) if task.run not in ended)

    def improvements(self, run: str) -> tuple[Improvement, ...]:
        """Trajectory of a run."""
        return self._improvements.get(run, ())

    def add(self, outcome: Outcome) -> None:
        """Keep a run that ended; on the disk when this returns.

        Raises
        ------
        InputError
            The disk is full, or the folder cannot be written: what was added before stays.
        """
        file, record = self._lock(), outcome.record
        with written(self.folder, _RESUMES):
            if record.has_failed:
                keep_failed(self.folder, outcome)
            for name, content in outcome.tables.items():
                path = self.folder / SIMULATIONS / record.run / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            _append(file, line_of(outcome))
        self._records.pop(record.run, None)
        self._records[record.run] = record
        self._improvements[record.run] = outcome.improvements
        self._integrated = None

    def frames(self) -> Frames:
        """The tables of all runs that ended.

        Raises
        ------
        InputError
            polars is not installed.
        """
        return frames_of(self.records, self._improvements)

    def write_tables(self) -> list[Path]:
        """Write the tables of all runs so far, as Parquet and CSV; return the files.

        Raises
        ------
        InputError
            They cannot be written, or polars is not installed.
        """
        check_polars()
        with written(self.folder, _RESUMES):
            return write_frames(self.frames(), self.folder)

    def replay(self, run: str) -> str:
        """Of a run that failed: the command that does it again; empty where the run's worker was lost."""
        return replay_of(self.folder, run)

    @property
    def simulations(self) -> dict[str, Path]:
        """Folders with the tables of simulations, by run."""
        folders = {run: self.folder / SIMULATIONS / run for run in self._records}
        return {run: folder for run, folder in folders.items() if folder.is_dir()}

    def _lock(self) -> int:
        """The file of runs, open to append, and locked against other processes."""
        if self._file is not None:
            return self._file
        with written(self.folder, _RESUMES):
            file = os.open(self.folder / RUNS, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            cure = "Wait until it has ended, or name another folder"
            raise InputError("another process adds runs to this study", file=str(self.folder), cure=cure) from None
        _cut_torn_line(file)
        self._file = file
        return file


def _append(file: int, line: bytes) -> None:
    """Write all of a line and see it on the disk, or leave the file as it was."""
    size = os.fstat(file).st_size
    try:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(file, rest) :]
        os.fsync(file)
    except OSError:
        os.ftruncate(file, size)
        raise


def _cut_torn_line(file: int) -> None:
    size, block = os.fstat(file).st_size, 1 << 20
    end = size
    while end > 0:
        start = max(0, end - block)
        at = os.pread(file, end - start, start).rfind(b"\n")
        if at >= 0:
            end = start + at + 1
            break
        end = start
    if end < size:
        os.ftruncate(file, end)
