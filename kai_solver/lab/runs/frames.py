"""The tables of a study, as polars' data frames, and as Parquet and CSV."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kai_solver.errors.extras import check_package
from kai_solver.instances_io.output import replacing
from kai_solver.lab.runs.record import Improvement, RunRecord, StageResult

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True, slots=True)
class Frames:
    """The tables of one study.

    Attributes
    ----------
    runs
        A row for each run: the fields of `RunRecord` without its stages and measures.
    stages
        A row for each stage of each run: run, position (0 is the first), and the fields of `StageResult`.
    improvements
        A row for each improvement: run, and the fields of `Improvement`, in order of time.
    measures
        A row for each measure of each run: run, name and value.
    """

    runs: "pl.DataFrame"
    stages: "pl.DataFrame"
    improvements: "pl.DataFrame"
    measures: "pl.DataFrame"


@dataclass(frozen=True, slots=True)
class _Measure:
    name: str
    value: float


TABLES = tuple(field.name for field in fields(Frames))
"""Names of the tables, and of their files."""


def check_polars() -> None:
    """Refuse to go on without polars.

    Raises
    ------
    InputError
        It is not installed.
    """
    check_package("polars", "tables need")


def frames_of(records: Sequence[RunRecord], improvements: Mapping[str, Sequence[Improvement]]) -> Frames:
    """Tables of runs; ``improvements`` by run."""
    runs = [{name: getattr(record, name) for name in _names(RunRecord)} for record in records]
    stages = [
        {"run": record.run, "position": position, **asdict(stage)}
        for record in records
        for position, stage in enumerate(record.stages)
    ]
    moments = [{"run": record.run, **asdict(one)} for record in records for one in improvements.get(record.run, ())]
    measures = [
        {"run": record.run, "name": name, "value": float(value)}
        for record in records
        for name, value in record.measures.items()
    ]
    return Frames(
        _frame(runs, RunRecord, {}),
        _frame(stages, StageResult, {"run": str, "position": int}),
        _frame(moments, Improvement, {"run": str}),
        _frame(measures, _Measure, {"run": str}),
    )


def write_frames(frames: Frames, folder: Path) -> list[Path]:
    """Write each table as ``NAME.parquet`` and ``NAME.csv``, each in one step; return the files.

    Raises
    ------
    OSError
        One cannot be written.
    """
    written = []
    for name in TABLES:
        frame: pl.DataFrame = getattr(frames, name)
        for ending, write in (("parquet", frame.write_parquet), ("csv", frame.write_csv)):
            path = folder / f"{name}.{ending}"
            content = BytesIO()  # polars' own errors of a full disk are of many kinds
            write(content)
            with replacing(path) as partial:
                partial.write_bytes(content.getbuffer())
            written.append(path)
    return written


def _names(kind: type[Any]) -> Iterable[str]:
    apart = ("stages", "measures") if kind is RunRecord else ()
    return [field.name for field in fields(kind) if field.name not in apart]


def _frame(rows: list[dict[str, Any]], kind: type[Any], first: Mapping[str, type]) -> "pl.DataFrame":
    """Rows with the columns and types of a dataclass, after those of ``first``; an empty table has them too."""
    check_polars()
    import polars as pl  # an extra, and slow to import

    by_type: Mapping[Any, Any] = {str: pl.String, int: pl.Int64, bool: pl.Boolean, float: pl.Float64}
    named = {name: by_type[of] for name, of in first.items()}
    types = {field.name: field.type for field in fields(kind)}
    wanted = {
        name: by_type.get(types[name], pl.Float64 if "float" in str(types[name]) else pl.String)
        for name in _names(kind)
    }
    return pl.DataFrame(rows, schema=named | wanted, orient="row")
