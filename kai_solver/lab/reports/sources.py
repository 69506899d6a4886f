"""What a folder holds: a study, the tables of a simulation, or those of the openb experiment."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
from pydantic import TypeAdapter

from kai_solver.errors import InputError
from kai_solver.lab.runs import Frames, KeptRuns, RunRecord, Study, frames_of, read_runs
from kai_solver.lab.runs.frames import check_polars
from kai_solver.lab.runs.kept import RUNS
from kai_solver.lab.runs.scoring import with_integrals
from kai_solver.lab.runs.study import DEFINITION
from kai_solver.lab.simulate.tables import TABLES, polars_schema
from kai_solver.lab.tune import TuneVerdict, read_verdict
from kai_solver.lab.tune.space import ParameterDoc
from kai_solver.lab.tune.tuning import SPACE, VERDICT

if TYPE_CHECKING:
    import polars as pl

_KINDS = (
    "Name the folder of `kai-solver simulate -o FOLDER`, of `kai-solver experiment openb -o FOLDER`, "
    "of `kai-solver bench --save FOLDER`, or of a study (`kai-solver compare --study FOLDER`, "
    "`kai-solver tune SPACE --study FOLDER`)"
)


@dataclass(frozen=True, slots=True)
class Simulation:
    """One policy's replay of one scenario.

    Attributes
    ----------
    label
        What the report calls it: the policy, and the folder where that is needed.
    summary
        What its row says in numbers.
    tables
        By name, as `simulate.tables` has them; rows of this policy alone.
    """

    label: str
    folder: Path
    policy: str
    summary: dict[str, Any]
    tables: "dict[str, pl.DataFrame]"

    @property
    def scenario(self) -> str:
        """Name of the scenario."""
        return str(self.summary["scenario"])

    @property
    def end_s(self) -> float:
        """Simulated seconds that were replayed."""
        return float(self.summary["end_s"])


@dataclass(frozen=True, slots=True)
class StudyTables:
    """A study's runs, in the order in which they were asked for."""

    label: str
    folder: Path
    records: tuple[RunRecord, ...]
    frames: Frames
    simulations: tuple[Simulation, ...]


@dataclass(frozen=True, slots=True)
class Openb:
    """Tables of the openb experiment: summary, curves, failed."""

    label: str
    folder: Path
    tables: "dict[str, pl.DataFrame]"


@dataclass(frozen=True, slots=True)
class Tuning:
    """A search for parameters that has come to its verdict; ``parameters``: their ranges, by path."""

    label: str
    folder: Path
    verdict: TuneVerdict
    parameters: Mapping[str, ParameterDoc]


@dataclass(frozen=True, slots=True)
class Found:
    """What all folders hold."""

    simulations: tuple[Simulation, ...]
    tunings: tuple[Tuning, ...]
    studies: tuple[StudyTables, ...]
    openb: tuple[Openb, ...]


def read_folders(folders: Sequence[Path]) -> Found:
    """Read folders, of which each is a study, a simulation or an experiment.

    Raises
    ------
    InputError
        One is none of these, is empty, or has a table of another version; or polars is not installed.
    """
    check_polars()
    simulations: list[Simulation] = []
    tunings: list[Tuning] = []
    studies: list[StudyTables] = []
    openb: list[Openb] = []
    labels = _labels(folders)
    for folder in folders:
        label = labels[folder]
        if not folder.is_dir():
            raise InputError("is no folder", file=str(folder), cure=_KINDS)
        if (folder / SPACE).is_file():
            tunings.append(_tuning(folder, label))
        elif (folder / DEFINITION).is_file():
            studies.append(_study(folder, label))
        elif (folder / RUNS).is_file():
            kept = read_runs(folder, "Make the folder again with the command that made it")
            commands = {record.command for record in kept.records.values()}
            replays = [record for record in kept.records.values() if not record.has_failed]
            if commands == {"simulate"}:
                simulations += _simulations(folder, label, replays)
            elif (folder / "curves.csv").is_file():
                openb.append(_openb(folder, label, replays))
            else:
                studies.append(_kept(folder, label, kept))
        else:
            problem = "is empty" if not any(folder.iterdir()) else "is no study, no simulation and no experiment"
            raise InputError(problem, file=str(folder), cure=_KINDS)
    return Found(tuple(simulations), tuple(tunings), tuple(studies), tuple(openb))


def _labels(folders: Sequence[Path]) -> dict[Path, str]:
    """As much of the end of each path as tells it from the others; empty where there is one folder."""
    if len(folders) == 1:
        return {folders[0]: ""}
    for parts in range(1, max(len(folder.resolve().parts) for folder in folders) + 1):
        labels = ["/".join(folder.resolve().parts[-parts:]) for folder in folders]
        if len(set(labels)) == len(labels):
            return dict(zip(folders, labels, strict=True))
    [twice, *_] = [folder for folder in folders if sum(f.resolve() == folder.resolve() for f in folders) > 1]
    raise InputError("is named twice", file=str(twice), cure="Name each folder once")


def _simulations(folder: Path, label: str, records: Iterable[RunRecord]) -> list[Simulation]:
    cure = "Make it again with this version: kai-solver simulate SCENARIO -o FOLDER"
    tables = {name: read_table(folder / f"{name}.csv", polars_schema(name), cure) for name in TABLES}
    import polars as pl

    found = []
    for record in records:
        try:
            summary = _summary_of(record)
        except KeyError as error:
            problem = f"has a replay of another version: it has no {error}"
            raise InputError(problem, file=str(folder / RUNS), field="measures", cure=cure) from None
        found.append(
            Simulation(
                label=f"{label}: {record.model}" if label else record.model,
                folder=folder,
                policy=record.model,
                summary=summary,
                tables={name: table.filter(pl.col("policy") == record.model) for name, table in tables.items()},
            )
        )
    if not found:
        raise InputError("has no policy: nothing was replayed", file=str(folder / RUNS), cure=cure)
    return found


_NUMBERS = ("utilisation", "goodput", "fairness_gap", "fragmentation", "idle_price")


def _summary_of(record: RunRecord) -> dict[str, Any]:
    """The row as its report needs it.

    Raises
    ------
    KeyError
        It has no such measure.
    """
    measures = record.measures

    def group(name: str) -> dict[str, float]:
        return {key.partition("/")[2]: value for key, value in measures.items() if key.startswith(f"{name}/")}

    return {
        "scenario": record.instance,
        "interrupted": record.status == "interrupted",
        "end_s": measures["simulated_s"],
        "evictions": record.evicted_pods,
        "moves": record.moved_pods,
        **{name: measures[name] for name in _NUMBERS},
        **{name: group(name) for name in ("jobs", "gpu_hours")},
        "solve_s": group("decide_s"),
    }


def _study(folder: Path, label: str) -> StudyTables:
    study = Study.open(folder)
    ordered = study.in_asked_order()
    frames = frames_of(ordered, {record.run: study.improvements(record.run) for record in ordered})
    if not ordered:
        cure = f"Run it: kai-solver {study.definition.command} --study {folder}"
        raise InputError("is a study without a run that ended", file=str(folder), cure=cure)
    replays: list[Simulation] = []
    records = {record.run: record for record in study.records}
    for run, place in study.simulations.items():
        record = records[run]
        where = f"{label}: {record.instance}" if label else record.instance
        replays += _simulations(place, f"{where}, seed {record.seed}", [record])
    return StudyTables(label or study.definition.command, folder, ordered, frames, tuple(replays))


def _kept(folder: Path, label: str, kept: KeptRuns) -> StudyTables:
    """Runs of a command that keeps no study."""
    records = with_integrals(tuple(kept.records.values()), kept.improvements)
    if not records:
        raise InputError("has no run", file=str(folder / RUNS), cure=_KINDS)
    return StudyTables(label or records[0].command, folder, records, frames_of(records, kept.improvements), ())


def _tuning(folder: Path, label: str) -> Tuning:
    if not (folder / VERDICT).is_file():
        cure = f"Let it come to its end: kai-solver tune SPACE --study {folder} goes on"
        raise InputError("is a study of tuning without a verdict", file=str(folder), cure=cure)
    verdict = read_verdict(folder / VERDICT)
    cure = "Make it again: kai-solver tune SPACE --study FOLDER measures nothing twice"
    try:
        said = orjson.loads((folder / SPACE).read_bytes())["space"]["parameters"]
        parameters = TypeAdapter(dict[str, ParameterDoc]).validate_python(said)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"is no search space: {error}", file=str(folder / SPACE), cure=cure) from None
    if any(one.values.keys() != parameters.keys() for one in verdict.tried):
        raise InputError("has other parameters than the trials of the verdict", file=str(folder / SPACE), cure=cure)
    return Tuning(label or verdict.study, folder, verdict, parameters)


def _openb(folder: Path, label: str, records: Sequence[RunRecord]) -> Openb:
    import polars as pl

    from kai_solver.lab.experiments.tables import SUMMARY_COLUMNS, columns, summary_of
    from kai_solver.lab.experiments.tables import TABLES as NAMES

    cure = "Make it again with this version: kai-solver experiment openb -o FOLDER"
    if not records:
        raise InputError("has no run", file=str(folder / RUNS), cure=cure)

    def schema(names: Iterable[str]) -> dict[str, type[pl.DataType]]:
        return {name: pl.String if name in ("trace", "policy", "size", "at") else pl.Float64 for name in names}

    try:
        rows = [summary_of(record) for record in records]
    except KeyError as error:
        problem = f"has a run of another version: it has no {error}"
        raise InputError(problem, file=str(folder / RUNS), field="measures", cure=cure) from None
    tables = {"summary": pl.DataFrame(rows, schema=schema(SUMMARY_COLUMNS), orient="row", strict=False)}
    tables |= {name: read_table(folder / f"{name}.csv", schema(columns(name)), cure) for name in NAMES}
    return Openb(label or "openb", folder, tables)


def read_table(path: Path, schema: "Mapping[str, type[pl.DataType]]", cure: str) -> "pl.DataFrame":
    """Read a table with these columns, in any order; others are left out.

    Raises
    ------
    InputError
        It is not there, lacks a column, or a cell is not of the column's type.
    """
    import polars as pl

    if not path.is_file():
        raise InputError("is missing", file=str(path), cure=cure)
    try:
        text = pl.read_csv(path, infer_schema=False)
    except (pl.exceptions.PolarsError, OSError) as error:
        reason = str(error).split("\n")[0]
        raise InputError(f"is no table: {reason}", file=str(path), cure=cure) from None
    missing = [name for name in schema if name not in text.columns]
    if missing:
        problem = f"is a table of another version: it has no {missing[0]}"
        raise InputError(problem, file=str(path), field=missing[0], cure=cure)
    columns = []
    for name, kind in schema.items():
        try:
            columns.append(_typed(text[name], kind))
        except (pl.exceptions.PolarsError, ValueError):
            problem = f"has a cell that is no {kind.__name__}"
            raise InputError(problem, file=str(path), field=name, cure=cure) from None
    return pl.DataFrame(columns)


def _typed(column: "pl.Series", kind: "type[pl.DataType]") -> "pl.Series":
    import polars as pl

    if kind == pl.String:
        return column.fill_null("")
    if kind == pl.Boolean:
        if column.null_count() or not column.is_in(["True", "False"]).all():
            raise ValueError(column.name)
        return column == "True"
    return column.cast(kind, strict=True)
