"""Tables of an experiment: a row for each run as of every command, curves over arrived demand, failures by size."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from kai_solver.instances_io.output import replacing
from kai_solver.lab.experiments.report import SIZES, Bin, Failures, Run
from kai_solver.lab.experiments.rows import MARKS, FailedRun, openb_outcome
from kai_solver.lab.runs import RunRecord, write_runs
from kai_solver.lab.runs.kept import written

Cell = str | int | float | None

RUN_COLUMNS = ("trace", "seed", "policy", "window", "moves")
SUMMARY_COLUMNS = (
    *RUN_COLUMNS,
    "allocation_at_100",
    "allocation_at_130",
    *(f"failed_{size}" for size in SIZES),
    "moved",
    "seconds",
)
TABLES = ("curves", "failed")


def write_tables(runs: Sequence[Run | FailedRun], folder: Path, data: Path) -> None:
    """Write all tables of runs on ``data`` into ``folder``, which is made; files that were there are replaced.

    Raises
    ------
    InputError
        The folder cannot be written.
    """
    ordered = sorted(runs, key=lambda run: run.spec)
    ended = [run for run in ordered if isinstance(run, Run)]
    write_runs(folder, [openb_outcome(run, data) for run in ordered])  # first: they are small, should the disk be full
    with written(folder):
        for table in TABLES:
            _write(folder / f"{table}.csv", columns(table), rows(table, ended))


def columns(table: str) -> tuple[str, ...]:
    """Columns of a table."""
    row = Bin if table == "curves" else Failures
    return (*RUN_COLUMNS, *(field.name for field in fields(row)))


def rows(table: str, runs: Sequence[Run]) -> Iterator[tuple[Cell, ...]]:
    """Rows of a table, run by run."""
    for run in runs:
        key: tuple[Cell, ...] = astuple(run.spec)
        own: Sequence[Bin | Failures] = run.bins if table == "curves" else run.failures
        yield from ((*key, *astuple(row)) for row in own)


def summary_of(record: RunRecord) -> tuple[Cell, ...]:
    """The row of a run in the columns of `SUMMARY_COLUMNS`.

    Raises
    ------
    KeyError
        It is of something else.
    """
    measures = record.measures
    key = (record.instance, record.seed, record.model.partition(" ")[0], measures["window"], measures["moves_share"])
    allocated = (measures.get(f"allocated_percent/{at}") for at in MARKS)
    failed = (measures[f"failed_pods/{size}"] for size in SIZES)
    return (*key, *allocated, *failed, record.moved_pods, record.solve_s)


def _write(path: Path, names: Sequence[str], values: Iterator[tuple[Cell, ...]]) -> None:
    with replacing(path) as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_text(cell) for cell in row] for row in values)


def _text(cell: Cell) -> str | int:
    """Cells as they are read by people: four digits are more than a run tells."""
    if cell is None:
        return ""
    return f"{cell:.4f}".rstrip("0").rstrip(".") if isinstance(cell, float) else cell
