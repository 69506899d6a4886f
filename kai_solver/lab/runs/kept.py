"""Runs in a folder: a line each in ``runs.jsonl``, tables that are made of it, and what replays those that failed."""

import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson

from kai_solver.errors import InputError
from kai_solver.errors.extras import has_package
from kai_solver.instances_io.output import replacing
from kai_solver.lab.runs.frames import TABLES, frames_of, write_frames
from kai_solver.lab.runs.record import Improvement, RunRecord, record_of
from kai_solver.lab.runs.scoring import with_integrals
from kai_solver.lab.runs.task import BUNDLE, MODEL, PLACE, STUDY, Outcome

RUNS, FAILED = "runs.jsonl", "failed"
AGAIN = "Make room, or name a writable place, and run the same command again"


@dataclass(frozen=True, slots=True)
class KeptRuns:
    """Runs by their keys, in the order in which they ended; of a run that was done again the later one."""

    records: dict[str, RunRecord]
    improvements: dict[str, tuple[Improvement, ...]]


def line_of(outcome: Outcome) -> bytes:
    """The line of ``runs.jsonl``."""
    return orjson.dumps({"record": outcome.record, "improvements": outcome.improvements}) + b"\n"


def read_runs(folder: Path, cure: str) -> KeptRuns:
    """Read ``runs.jsonl``; nothing where it is not there. A last line that is torn is as if it had never been.

    Raises
    ------
    InputError
        A line is no run.
    """
    kept = KeptRuns({}, {})
    path = folder / RUNS
    if not path.is_file():
        return kept
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], 1):  # What follows the last line end is torn, or nothing.
        try:
            document = orjson.loads(line)
            record = record_of(document["record"])
            improvements = tuple(Improvement(**one) for one in document["improvements"])
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise InputError(f"is no run: {error!r}", file=str(path), field=f"line {number}", cure=cure) from None
        kept.records.pop(record.run, None)
        kept.records[record.run] = record
        kept.improvements[record.run] = improvements
    return kept


def write_runs(folder: Path, outcomes: Sequence[Outcome]) -> bool:
    """Put these runs into ``folder``, in place of those that an earlier call put there.

    Returns
    -------
    bool
        Whether the tables could be written: without polars there is ``runs.jsonl`` alone.

    Raises
    ------
    InputError
        The folder cannot be written.
    """
    has_polars = has_package("polars")
    with written(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for old in _kept_failures(folder):
            shutil.rmtree(old)
        with replacing(folder / RUNS) as partial:
            partial.write_bytes(b"".join(map(line_of, outcomes)))
        for outcome in outcomes:
            if outcome.record.has_failed:
                keep_failed(folder, outcome)
        if has_polars:
            write_tables(
                folder,
                tuple(outcome.record for outcome in outcomes),
                {outcome.record.run: outcome.improvements for outcome in outcomes},
            )
        else:
            for name in (f"{table}.{ending}" for table in TABLES for ending in ("parquet", "csv")):
                (folder / name).unlink(missing_ok=True)  # of an earlier call, so of other runs
    return has_polars


def write_tables(
    folder: Path, records: Sequence[RunRecord], improvements: Mapping[str, Sequence[Improvement]]
) -> list[Path]:
    """Write the tables of runs as Parquet and CSV; return the files.

    Raises
    ------
    OSError
        One cannot be written.
    InputError
        polars is not installed.
    """
    return write_frames(frames_of(with_integrals(records, improvements), improvements), folder)


def keep_failed(folder: Path, outcome: Outcome) -> None:
    """Keep the error of a run that failed, its bundle or its model, and the command that does it again.

    Raises
    ------
    OSError
        They cannot be written.
    """
    place = folder / FAILED / outcome.record.run
    place.mkdir(parents=True, exist_ok=True)
    if outcome.bundle is not None:
        (place / "bundle.zip").write_bytes(outcome.bundle)
    if outcome.model:
        (place / "model.toml").write_text(outcome.model, encoding="utf-8")
    (place / "error.txt").write_text(f"{outcome.record.status}: {outcome.record.error}\n")
    paths = {BUNDLE: place / "bundle.zip", MODEL: place / "model.toml", PLACE: place / "replay", STUDY: folder}
    words = shlex.split(outcome.replay)
    command = shlex.join(str(paths.get(word, word)) for word in words)
    (place / "replay.txt").write_text(f"{command}\n")


def replay_of(folder: Path, run: str) -> str:
    """Of a run that failed: the command that does it again; empty where the run's worker was lost."""
    path = folder / FAILED / run / "replay.txt"
    return path.read_text().strip() if path.is_file() else ""


def _kept_failures(folder: Path) -> list[Path]:
    return [path.parent for path in (folder / FAILED).glob("*/replay.txt")]


@contextmanager
def written(folder: Path, cure: str = AGAIN) -> Iterator[None]:
    """Errors of the file system as ours, with the cure."""
    try:
        yield
    except OSError as error:
        cure = "Choose another folder" if isinstance(error, FileExistsError | NotADirectoryError) else cure
        raise InputError(f"cannot be written: {error.strerror or error}", file=str(folder), cure=cure) from error
