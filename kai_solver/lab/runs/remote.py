"""What a worker of a Dask cluster does for a study that runs on another machine."""

import hashlib
import os
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path

from distributed import Worker, get_worker

from kai_solver.lab.runs.executing import RunStoppedError, execute
from kai_solver.lab.runs.machine import boot, host, revision, versions
from kai_solver.lab.runs.running import source_text
from kai_solver.lab.runs.task import Generated, Outcome, Task

STORE = "kai-solver-files"
"""Folder below the worker's own one, which Dask deletes when the worker ends."""


@dataclass(frozen=True, slots=True)
class Parcel:
    """The files that an instance or a scenario consists of, as they lie below one folder.

    Attributes
    ----------
    source
        Path of the instance or scenario below the folder.
    files
        Path below the folder, and SHA-256 of the content.
    """

    source: str
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Lacking:
    """The worker has no files with these contents yet: SHA-256 of each. Nothing was run."""

    contents: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Introduction:
    """What a worker is. ``machine``: the same for all workers on one machine; ``host``: its name."""

    versions: str
    revision: str
    machine: str
    host: str


def introduce() -> Introduction:
    """This worker."""
    return Introduction(versions(), revision(), boot() or host(), host())


def store(contents: dict[str, bytes], dask_worker: Worker) -> None:
    """Keep the content of files, by its SHA-256, for the tasks that need it. Dask gives the worker by that name."""
    folder = _store(dask_worker)
    for name, content in contents.items():
        with tempfile.NamedTemporaryFile(dir=folder, prefix="part-", delete=False) as file:
            file.write(content)
        Path(file.name).replace(folder / name)


def do(task: Task, parcel: Parcel | None) -> Outcome | Lacking | None:
    """Run ``task`` here; None: it was cancelled, or the study's process is gone.

    Paths in the outcome are those of the machine that asked.
    """
    if parcel is None or isinstance(task.source, Generated):
        return _executed(task)
    folder = _store(get_worker())
    missing = sorted({content for _, content in parcel.files if not (folder / content).exists()})
    if missing:
        return Lacking(tuple(missing))
    path = _unpacked(parcel, folder) / parcel.source
    outcome = _executed(replace(task, source=replace(task.source, path=path)))
    if outcome is None:
        return None
    record = outcome.record
    error = record.error.replace(str(path), str(task.source.path))
    return replace(outcome, record=replace(record, source=source_text(task.source), error=error))


def _executed(task: Task) -> Outcome | None:
    worker = get_worker()
    key = worker.get_current_task()

    def is_cancelled() -> bool:
        # Dask ends no thread. It marks the task when the study cancels it, or when the study's process is gone.
        state = worker.state.tasks.get(key)
        return state is None or state.state == "cancelled"

    try:
        return execute(task, is_cancelled)
    except RunStoppedError:
        return None


def _store(worker: Worker) -> Path:
    folder = Path(worker.local_directory) / STORE
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _unpacked(parcel: Parcel, store: Path) -> Path:
    """The folder with the files of ``parcel``, under their own names."""
    folder = store / f"tree-{hashlib.sha256(repr(parcel).encode()).hexdigest()}"
    if not folder.exists():
        partial = Path(tempfile.mkdtemp(dir=store, prefix="part-"))
        for below, content in parcel.files:
            file = partial / below
            file.parent.mkdir(parents=True, exist_ok=True)
            os.link(store / content, file)
        try:
            partial.rename(folder)
        except OSError:  # another thread was faster
            shutil.rmtree(partial)
    return folder
