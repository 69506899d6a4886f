"""Tidy tables of a replay, as CSV and, where polars is installed, as parquet.

A file a table; several policies share it, told apart by the first column. Rows of ``queues`` and ``nodes`` are written
when something changed: each holds until the next one of the same queue or node.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kai_solver.errors import InputError
from kai_solver.errors.extras import check_package, has_package
from kai_solver.instances_io.output import replacing
from kai_solver.lab.simulate.jobs import LiveJob
from kai_solver.lab.simulate.records import CycleRow, NodeRow, QueueRow, SolveTime
from kai_solver.lab.simulate.replay import Result
from kai_solver.lab.simulate.stays import StayRow
from kai_solver.lab.simulate.summary import wait_s
from kai_solver.units import MILLI

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class JobRow:
    """A job at the end of the replay; times in seconds from its begin, empty where it did not come to that."""

    job: str
    workload: str
    queue: str
    state: str
    pods: int
    gpus: float
    arrival_s: float
    first_start_s: float | None
    end_s: float | None
    wait_s: float | None
    runtime_s: float
    done_s: float
    useful_gpu_s: float
    lost_gpu_s: float
    idle_gpu_s: float
    restarting_gpu_s: float
    releasing_gpu_s: float
    starts: int
    evictions: int
    moves: int
    node_failures: int


TABLES: dict[str, type[Any]] = {
    "jobs": JobRow,
    "queues": QueueRow,
    "nodes": NodeRow,
    "cycles": CycleRow,
    "stays": StayRow,
    "solve_times": SolveTime,
}
"""Row types by table; files have these names."""


def has_parquet() -> bool:
    """Whether polars is installed (``pip install kai-solver[experiments]``)."""
    return has_package("polars")


def write_tables(results: Sequence[Result], folder: Path, *, parquet: bool = False) -> list[Path]:
    """Write all tables into ``folder``, which is made; return the files.

    Raises
    ------
    InputError
        The folder cannot be written, or parquet is wanted and polars is not installed.
    """
    if parquet and not has_parquet():
        cure = "Install it (pip install 'kai-solver[experiments]'), or do without --parquet: CSV is always written"
        raise InputError("parquet needs polars, which is not installed", field="--parquet", cure=cure)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        files = [_write_csv(name, results, folder) for name in TABLES]
        files += [_write_parquet(name, results, folder) for name in TABLES if parquet]
    except OSError as error:
        problem, cure = f"cannot be written: {error.strerror or error}", "Make room, or choose another folder"
        raise InputError(problem, file=str(folder), cure=cure) from None
    return files


def columns(table: str) -> list[str]:
    """Columns of a table."""
    return ["policy", *(field.name for field in fields(TABLES[table]))]


def rows(table: str, results: Sequence[Result]) -> Iterator[tuple[Any, ...]]:
    """Rows of a table, policy by policy."""
    for result in results:
        for row in _own_rows(table, result):
            yield (result.policy, *astuple(row))


def _own_rows(table: str, result: Result) -> Sequence[Any]:
    if table == "jobs":
        return [_job_row(job) for job in result.jobs]
    if table == "stays":
        return result.stays
    own: Sequence[Any] = getattr(result.records, table)
    return own


def _job_row(job: LiveJob) -> JobRow:
    ledger = job.ledger
    return JobRow(
        job=job.gang.name,
        workload=job.job.workload,
        queue=job.gang.queue,
        state=job.state.value,
        pods=len(job.gang.pods),
        gpus=job.total_milli / MILLI,
        arrival_s=job.job.arrival_s,
        first_start_s=job.first_start_s,
        end_s=job.end_s,
        wait_s=wait_s(job),
        runtime_s=job.job.runtime_s,
        done_s=job.progress_s,
        useful_gpu_s=job.useful_gpu_s,
        lost_gpu_s=ledger.lost,
        idle_gpu_s=ledger.idle,
        restarting_gpu_s=ledger.restarting,
        releasing_gpu_s=ledger.releasing,
        starts=job.starts,
        evictions=job.evictions,
        moves=job.moves,
        node_failures=job.failures,
    )


def _write_csv(table: str, results: Sequence[Result], folder: Path) -> Path:
    path = folder / f"{table}.csv"
    with replacing(path) as partial, partial.open("w", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(columns(table))
        writer.writerows(rows(table, results))
    return path


def frame_of(table: str, results: Sequence[Result]) -> "pl.DataFrame":
    """A table as polars' data frame.

    Raises
    ------
    InputError
        polars is not installed.
    """
    schema = polars_schema(table)  # so that an empty table has the types too
    import polars as pl  # an extra, and slow to import

    return pl.DataFrame(list(rows(table, results)), schema=schema, strict=False, orient="row")


def polars_schema(table: str) -> "dict[str, type[pl.DataType]]":
    """Columns of a table with the types that polars has for them.

    Raises
    ------
    InputError
        polars is not installed.
    """
    check_package("polars", "data frames need")
    import polars as pl

    by_annotation: dict[Any, type[pl.DataType]] = {str: pl.String, int: pl.Int64, bool: pl.Boolean}
    types = {field.name: by_annotation.get(field.type, pl.Float64) for field in fields(TABLES[table])}
    return {"policy": pl.String, **types}


def _write_parquet(table: str, results: Sequence[Result], folder: Path) -> Path:
    path = folder / f"{table}.parquet"
    content = BytesIO()  # polars' own errors of a full disk are of many kinds
    frame_of(table, results).write_parquet(content)
    with replacing(path) as partial:
        partial.write_bytes(content.getbuffer())
    return path
