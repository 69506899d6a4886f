"""``kai-solver compare --study``: a study made or taken up, run, and summed up in words."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import typer

from kai_solver.cli.console import heading, line, open_console, table
from kai_solver.cli.documents import deliver, document
from kai_solver.cli.exits import Exit, complain
from kai_solver.cli.inputs import parse_budget_s
from kai_solver.cli.interrupt import stopping_on_interrupt
from kai_solver.cli.options import check_versions_option
from kai_solver.errors import InputError
from kai_solver.lab.runs import (
    KUBE_DEFAULT,
    PLAN,
    Comparison,
    DaskCluster,
    Definition,
    Limits,
    ModelFigures,
    Runner,
    RunRecord,
    Standing,
    Study,
    comparisons,
    model_figures,
    run_study,
    tasks_of,
)
from kai_solver.lab.runs.frames import check_polars
from kai_solver.lab.runs.paired import check_scipy
from kai_solver.lab.runs.task import ClockKind
from kai_solver.lab.runs.verdicts import COLUMNS, cells, how_tested, plan_sentence
from kai_solver.library.sources import sources_of
from kai_solver.modelfiles import load_model
from kai_solver.units import parse_duration_s, parse_quantity
from kai_solver.units.words import counted

SHOWN_FAILURES = 10
MODELS = "greedy-only,default"


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks; no paths and no models: what the study in the folder asks."""

    folder: Path
    paths: Sequence[Path]
    models: Sequence[str]
    seeds: tuple[int, ...]
    budget_s: float | None
    clock: ClockKind
    limits: Limits
    at_once: int
    retries: bool
    scheduler: str | None
    any_versions: bool


def read_asked(
    folder: Path,
    paths: Sequence[Path],
    seeds: tuple[int, ...] | None,
    *,
    models: str | None,
    budget: str | None,
    clock: str | None,
    limit_memory: str | None,
    limit_time: str | None,
    at_once: int,
    retries: bool,
    scheduler: str | None = None,
    any_versions: bool = False,
) -> Asked:
    """What the options ask; None: not given.

    Raises
    ------
    InputError
        One cannot be read, or says what is to be run where no instance is named.
    """
    given = {
        "--models": models,
        "--seeds": seeds,
        "--budget": budget,
        "--clock": clock,
        "--limit-memory": limit_memory,
        "--limit-time": limit_time,
    }
    if not paths and (option := next((name for name, value in given.items() if value is not None), "")):
        cure = "Name the instances again as well: the study keeps what it has. Or leave this option out to go on"
        raise InputError("says what is to be run, and no instance is named", field=option, cure=cure)
    names = [name.strip() for name in (models or MODELS).split(",") if name.strip()]
    if not names:
        raise InputError("names no model", field="--models", cure=f"Write {MODELS}")
    limits = Limits()
    if scheduler is not None and at_once > 1:
        cure = "Leave it out: a worker does as many runs at a time as it has threads"
        raise InputError("does not go with --scheduler", field="--at-once", cure=cure)
    check_versions_option(scheduler, any_versions=any_versions)
    return Asked(
        folder=folder,
        paths=paths,
        models=names,
        seeds=seeds or (1,),
        budget_s=None if budget is None else parse_budget_s(budget),
        clock="cpu" if clock == "cpu" else "wall",
        limits=Limits(
            limits.memory_mib if limit_memory is None else _mebibytes(limit_memory),
            limits.wall_s if limit_time is None else _seconds(limit_time),
        ),
        at_once=at_once,
        scheduler=scheduler,
        any_versions=any_versions,
        retries=retries,
    )


def refuse_beside_study(given: Mapping[str, object]) -> None:
    """Refuse options that are of one instance alone.

    Raises
    ------
    InputError
        One is given.
    """
    for option, value in given.items():
        if value:
            raise InputError("does not go with --study", field=option, cure="Leave one of the two out")


def _mebibytes(text: str) -> float:
    try:
        amount = parse_quantity(text)
    except InputError:
        amount = 0
    if amount < 2**20:
        raise InputError(f"{text!r} is no amount of memory", field="--limit-memory", cure="Write 8Gi or 500Mi")
    return amount / 2**20


def _seconds(text: str) -> float:
    try:
        seconds = parse_duration_s(text)
    except InputError:
        seconds = 0.0
    if seconds <= 0:
        raise InputError(f"{text!r} is no time", field="--limit-time", cure="Write 30s, 10m or 1h")
    return seconds


def compare_study(asked: Asked, output: Path | None, *, as_json: bool, full: bool, quiet: bool) -> Exit:
    """Make or take up the study, do what is missing of it, print its verdicts.

    Raises
    ------
    InputError
        Something that is asked for cannot be read, found before any run; or the folder cannot be used.
    """
    check_polars()
    check_scipy()
    opened = Study.create(asked.folder, _definition(asked)) if asked.paths else Study.open(asked.folder)
    with stopping_on_interrupt() as stop, opened as study:
        if not asked.paths and not _tasks(study.definition):
            raise InputError(
                "asks for no run", file=str(asked.folder), cure="Make a new one, with instances and models"
            )
        run_study(
            study,
            at_once=asked.at_once,
            runner=_place(asked, stop.is_set),
            retries=asked.retries,
            report=(lambda _: None) if quiet else _teller(),
            should_stop=stop.is_set,
        )
        missing = sum(1 for _ in study.missing())
    _report(study, missing, output, as_json=as_json, full=full)
    if stop.is_set():
        complain(f"interrupted; {counted(missing, 'run')} left: kai-solver compare --study {asked.folder} goes on")
        return Exit.INTERRUPTED
    return Exit.FINDINGS if any(record.status != "ok" for record in study.records) else Exit.FINE


def _place(asked: Asked, should_stop: Callable[[], bool]) -> Runner | None:
    """Where runs are done; None: on this machine."""
    if asked.scheduler is None:
        return None
    return DaskCluster(asked.scheduler, allows_other_versions=asked.any_versions, should_stop=should_stop)


def _tasks(definition: Definition) -> int:
    return sum(1 for _ in tasks_of(definition))


def _definition(asked: Asked) -> Definition:
    models = tuple(None if name == KUBE_DEFAULT else load_model(name, [KUBE_DEFAULT]) for name in asked.models)
    names = [KUBE_DEFAULT if model is None else model.name for model in models]
    if twice := next((name for name in names if names.count(name) > 1), ""):
        cure = "Name each once, and give models in files names of their own"
        raise InputError(f"names {twice} twice", field="--models", cure=cure)
    definition = Definition(
        command="compare",
        sources=sources_of(asked.paths),
        models=models,
        seeds=asked.seeds,
        budget_s=asked.budget_s,
        clock=asked.clock,
        limits=asked.limits,
    )
    if not _tasks(definition):
        cure = "Name a model as well: kube-default replays scenarios alone"
        raise InputError("leaves nothing to run", field="--models", cure=cure)
    return definition


def _teller() -> Callable[[Standing], None]:
    """A line a run, on standard error, with the time that is left as it seems."""
    begun_s, before = time.monotonic(), [0]

    def tell(at: Standing) -> None:
        run = at.record
        before[0] += 1
        left_s = (time.monotonic() - begun_s) / before[0] * (at.total - at.done)
        ended = f"{run.wall_s:.1f} s" if run.status == "ok" else f"{run.status}: {run.error}"
        rest = f"; about {_duration(left_s)} left" if at.done < at.total else ""
        text = f"[{at.done}/{at.total}] {run.instance} with {run.model}, seed {run.seed}: {ended}{rest}"
        typer.echo(" ".join(text.split()), err=True)

    return tell


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{seconds:.0f} s" if seconds < 90 else f"{minutes} min" if minutes < 90 else f"{minutes / 60:.1f} h"


def _report(study: Study, missing: int, output: Path | None, *, as_json: bool, full: bool) -> None:
    records = study.in_asked_order()
    figures = model_figures(records)
    found = comparisons(records, figures[0].model) if figures else ()
    failed = [record for record in records if record.status != "ok"]
    members: dict[str, Any] = {
        "study": str(study.folder),
        "runs": len(records),
        "missing": missing,
        "models": [asdict(one) for one in figures],
        "comparisons": [asdict(one) for one in found],
        "failed": [
            {"run": one.run, "status": one.status, "error": one.error, "replay": study.replay(one.run)}
            for one in failed
        ],
    }
    if deliver(document("study-verdicts", members), as_json=as_json, output=output):
        _print(study, records, missing, figures, found)
        _print_failed(study, failed, full=full)


def _print(
    study: Study,
    records: Sequence[RunRecord],
    missing: int,
    figures: Sequence[ModelFigures],
    found: Sequence[Comparison],
) -> None:
    console = open_console()
    instances = len({(record.instance, record.source) for record in records})
    what = f"{counted(len(records), 'run')} of {counted(len(figures), 'model')} on {counted(instances, 'instance')}"
    heading(console, str(study.folder), what + (f"; {missing:,} missing" if missing else ""))
    names = [one.model for one in figures]
    console.print(table(("", *names), [(label, *map(of, figures)) for label, of in _ROWS], right=names))
    for model in dict.fromkeys(one.model for one in found):
        rows = [one for one in found if one.model == model]
        heading(console, f"{model} against {rows[0].against}", _note(rows))
        line(console, next((plan_sentence(one) for one in rows if one.figure == PLAN), ""))
        console.print(table(COLUMNS, [cells(one) for one in rows if one.figure != PLAN], right=COLUMNS[1:-1]))
    if found:
        line(console, how_tested(found), "dim")
    if any(record.is_shared for record in records):
        line(console, "Runs were done at the same time: their wall times disturb each other.", "dim")
    line(console, f"Tables are in {study.folder}")


_ROWS: tuple[tuple[str, Callable[[ModelFigures], str]], ...] = (
    ("runs", lambda one: f"{one.runs:,}"),
    ("  of them failed", lambda one: f"{one.failed:,}"),
    ("gangs admitted", lambda one: f"{one.admitted:,}"),
    ("gangs pending", lambda one: f"{one.pending:,}"),
    ("  of them proven", lambda one: f"{one.pending_proven:,}"),
    ("pods evicted", lambda one: f"{one.evicted_pods:,}"),
    ("GPU-hours evicted", lambda one: f"{one.evicted_gpu_hours:,.1f}"),
    ("pods moved", lambda one: f"{one.moved_pods:,}"),
    ("stages proven best", lambda one: "" if one.proven_stages is None else f"{one.proven_stages:.0%}"),
    ("seconds to decide, median", lambda one: "" if one.decide_s is None else f"{one.decide_s:.2f}"),
    ("CPU seconds of a run, median", lambda one: "" if one.cpu_s is None else f"{one.cpu_s:.2f}"),
    ("MiB of the largest run", lambda one: "" if one.peak_mib is None else f"{one.peak_mib:,.0f}"),
)


def _note(rows: Sequence[Comparison]) -> str:
    return f"{counted(max(one.difference.pairs for one in rows), 'pair')}; less is better"


def _print_failed(study: Study, failed: Sequence[RunRecord], *, full: bool) -> None:
    if not failed:
        return
    console = open_console()
    heading(console, counted(len(failed), "failed run"), "--retry does them again")
    shown = failed if full else failed[:SHOWN_FAILURES]
    for record in shown:
        line(console, f"  {record.instance} with {record.model}, seed {record.seed}: {record.status}: {record.error}")
        if replay := study.replay(record.run):
            console.print(f"    {replay}", soft_wrap=True)
    if len(shown) < len(failed):
        line(console, f"  ... and {counted(len(failed) - len(shown), 'more run')}; --full shows all", "dim")
