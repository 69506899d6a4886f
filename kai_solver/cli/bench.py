"""``kai-solver bench``: instances x models x seeds, and benchmark sets with their limits."""

from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AsJson, Budget, Quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai_solver.lab.bench import BenchSet, Job, Run
    from kai_solver.lab.bench import Stored as StoredRuns

GREEDY = "greedy-only"
FAILURES = Path("out/bench")
"""Where runs are kept without `--save`, if one of them failed."""


class ClockName(Enum):
    """What time is read on."""

    WALL = "wall"
    CPU = "cpu"


Paths = Annotated[list[Path], typer.Argument(metavar="PATH", help="Instances, folders of them, or benchmark sets.")]
Models = Annotated[
    str | None,
    typer.Option(
        "--models", metavar="LIST", help="Models to compare, like default,fast; default: default, or the set's."
    ),
]
Against = Annotated[
    str | None,
    typer.Option("--against", metavar="NAME", help="Model to compare the others with; default: greedy-only."),
]
Seeds = Annotated[str, typer.Option("--seeds", metavar="SEEDS", help="One seed, a list 1,2,3 or a range 1..5.")]
Cold = Annotated[bool, typer.Option("--cold", help="Also time the whole process, once for each seed.")]
CheckPeers = Annotated[
    bool, typer.Option("--check-peers", help="Exit with 1 if a recorded outcome of KAI is better than ours.")
]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print one CSV line for each run.")]
ByClock = Annotated[
    ClockName,
    typer.Option(
        "--clock",
        metavar="CLOCK",
        help="wall or cpu. cpu: budgets and times in CPU seconds, for a machine that others use.",
    ),
]
Only = Annotated[
    str | None,
    typer.Option("--only", metavar="LIST", help="Entries of the set to measure, like loaded-500,loaded-1000."),
]
Check = Annotated[bool, typer.Option("--check", help="Exit with 1 if a limit of the set is not kept.")]
Save = Annotated[Path | None, typer.Option("--save", metavar="FOLDER", help="Store the runs, as in docs/studies.md.")]
Compare = Annotated[
    Path | None,
    typer.Option("--compare", metavar="FOLDER", help="Print what got worse and better since these stored runs."),
]
Stored = Annotated[
    Path | None,
    typer.Option("--from", metavar="FOLDER", help="Print these stored runs, and measure nothing."),
]
Plot = Annotated[
    Path | None, typer.Option("--plot", metavar="FILE", help="Draw the set's times over nodes, .svg or .png.")
]
Course = Annotated[
    Path | None,
    typer.Option(
        "--course", metavar="FILE", help="Draw plan and bound over the budgets that were measured, .svg or .png."
    ),
]
Beside = Annotated[
    list[Path] | None,
    typer.Option("--beside", metavar="FOLDER", help="Stored runs that --course draws too, by the name of the folder."),
]
Table = Annotated[bool, typer.Option("--table", help="Print limits, and what CP-SAT adds to greedy, as Markdown.")]
Record = Annotated[
    Path | None,
    typer.Option(
        "--record",
        metavar="PAGE",
        help="Write the figures into the set and, between its marks, into this Markdown page.",
    ),
]
Generate = Annotated[
    str | None,
    typer.Option("--generate", metavar="NAME", help="Write this entry of the set as an instance, and measure nothing."),
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="Where --generate writes: .json, .json.zst, or .zip: a KAI snapshot."
    ),
]


@guarded
def bench(
    paths: Paths,
    models: Models = None,
    against: Against = None,
    seeds: Seeds = "1",
    budget: Budget = None,
    cold: Cold = False,
    check_peers: CheckPeers = False,
    only: Only = None,
    check: Check = False,
    save: Save = None,
    compare: Compare = None,
    stored: Stored = None,
    plot: Plot = None,
    course: Course = None,
    beside_runs: Beside = None,
    table: Table = False,
    record: Record = None,
    as_json: AsJson = False,
    as_csv: AsCsv = False,
    clock: ByClock = ClockName.WALL,
    quiet: Quiet = False,
    generate: Generate = None,
    output: Output = None,
) -> Exit:
    """Measure models on instances: time, memory, what is placed and disturbed, what is proven, bounds and gaps.

    Every (instance, model, budget) runs in a separate process with a warm engine: one unmeasured cycle, then one for
    each seed. Figures are medians. A benchmark set defines what is measured, with which budgets and which limits. If
    <name>.kai-*.json is beside an instance, KAI is better if it places more gangs, or evicts less for the same gangs.
    If a run fails, the others go on. Its error, a bundle and the command that repeats it are kept, and the exit code
    is 1.

    \b
    Examples:
      kai-solver bench instances/bench --models default,fast --seeds 1..5 --budget 2s
      kai-solver bench instances/bench --check-peers --csv > bench.csv
      kai-solver bench instances/bench/sets/scale.yaml --save out/scale --plot scale.svg
      kai-solver bench instances/bench/sets/course.yaml --course course.svg --beside out/earlier
      kai-solver bench instances/bench/sets/scale.yaml --compare instances/bench/runs/scale
      kai-solver bench instances/bench/sets/scale.yaml --from out/scale --table --record docs/benchmarks.md
      kai-solver bench instances/bench/sets/scale.yaml --generate loaded-1000 --seeds 7 --output loaded.json.zst
    """
    from kai_solver.cli.bench_sets import after, beside, check_record, draw_course, record_in, report
    from kai_solver.instances_io.output import check_place
    from kai_solver.lab.bench import check_folder, is_set, read_set, read_stored, stored_of

    names = [name.strip() for name in models.split(",")] if models else []
    sets = [read_set(path) for path in paths if is_set(path)]
    if generate is not None:
        return _write_generated(sets, generate, seeds, output)
    if record is not None:
        check_record(record, sets, only)
    for place in (plot, course):
        if place is not None:
            check_place(place)
    if save is not None:
        check_folder(save)
    before = read_stored(compare) if compare is not None else None
    floor = against or (GREEDY if table or record or len(sets) < len(paths) else None)
    if stored is None:
        jobs = _set_jobs(sets, names, floor, only)
        jobs += _file_jobs([path for path in paths if not is_set(path)], names, floor or GREEDY, seeds, budget, cold)
    done = read_stored(stored) if stored else stored_of(_measure(jobs, clock, quiet, save))
    report(done.runs, sets, names, floor, as_csv=as_csv, as_json=as_json, as_table=table)
    if course is not None:
        earlier = {path.name: read_stored(path) for path in beside_runs or ()}
        draw_course(course, sets, done, earlier, (names or ["default"])[0])
    kept = after(done, sets, save=save, before=before, plot=plot, aside=as_csv or as_json or table)
    if record is not None:
        record_in(record, done, sets[0], beside(names, floor), floor or GREEDY)
    peers = _peers_verdict(done.runs) if check_peers else Exit.FINE
    failed = _tell_failed(done, save) if stored is None else Exit.FINE
    return Exit.FINDINGS if check and not kept else max(peers, failed)


def _measure(jobs: "Sequence[Job]", clock: ClockName, quiet: bool, save: Path | None) -> "list[Run]":
    """All runs. Where it is interrupted or an instance cannot be read, those that ended are kept beside ``save``."""
    from kai_solver.lab.bench import measure, save_runs, stored_of
    from kai_solver.modelfiles import load_model

    for name in dict.fromkeys(job.model for job in jobs):
        load_model(name)  # A wrong name is an error before anything is measured.
    runs: list[Run] = []
    try:
        for number, job in enumerate(jobs, 1):
            if not quiet:
                budget = "" if job.budget_s is None else f", {job.budget_s:g} s"
                typer.echo(f"[{number}/{len(jobs)}] {job.source.name} with {job.model}{budget}", err=True)
            runs += measure(replace(job, clock=clock.value))
    except BaseException:
        if runs and save is not None:
            kept = save.with_name(f"{save.name}-interrupted")
            save_runs(stored_of(runs), kept)
            complain(f"{len(runs)} runs that ended are in {kept}")
        raise
    return runs


def _tell_failed(done: "StoredRuns", save: Path | None) -> Exit:
    """Name runs that failed. What repeats them is kept, in `FAILURES` if runs are not stored."""
    from kai_solver.cli.failed import tell_failed
    from kai_solver.lab.bench import save_runs

    if done.failed and save is None:
        save_runs(done, FAILURES)
    return tell_failed((run.outcome for run in done.failed), save or FAILURES)


def _set_jobs(sets: "list[BenchSet]", names: list[str], floor: str | None, only: str | None) -> "list[Job]":
    from kai_solver.lab.bench import jobs_of

    chosen = {name.strip() for name in only.split(",")} if only else set()
    for bench_set in sets[:1]:
        for name in sorted(chosen):
            bench_set.entry(name, "--only")
    return [job for s in sets for job in jobs_of(s, names, floor) if not chosen or job.source.name in chosen]


def _file_jobs(
    paths: list[Path], names: list[str], floor: str, seeds: str, budget: str | None, cold: bool
) -> "list[Job]":
    from kai_solver.cli.inputs import parse_budget_s
    from kai_solver.errors import InputError
    from kai_solver.lab.bench import Job
    from kai_solver.lab.runs import ScenarioFile
    from kai_solver.library.sources import sources_of

    budget_s = parse_budget_s(budget) if budget is not None else None
    models = dict.fromkeys([floor, *(names or ["default"])])
    numbers, jobs = parse_seeds(seeds), []
    for source in sources_of(paths):
        if isinstance(source, ScenarioFile):
            cure = "Replay it: kai-solver simulate FILE. Or compare models on it: kai-solver compare --study FOLDER"
            raise InputError("is a scenario and not an instance", file=str(source.path), cure=cure)
        jobs += [Job(source, model, numbers, budget_s, cold=cold) for model in models]
    return jobs


def _write_generated(sets: "list[BenchSet]", name: str, seeds: str, output: Path | None) -> Exit:
    """One instance of a set, in the native format, or as a KAI snapshot with all that objects of a cluster carry."""
    import orjson

    from kai_solver.errors import InputError
    from kai_solver.instances_io import native_from_snapshot
    from kai_solver.instances_io.output import write_bytes
    from kai_solver.lab.bench import generated, kai_snapshot, made_real

    seed, *more = parse_seeds(seeds)
    if output is None or more or len(sets) != 1:
        problem = "needs one set, one seed and an output"
        raise InputError(problem, field="--generate", cure="SET.yaml --generate NAME --seeds 1 --output FILE")
    entry = sets[0].entry(name, "--generate")
    if entry.generate is None:
        raise InputError(f"{name} is a stored file: {entry.file}", field="--generate", cure="Use that file")
    snapshot = generated(entry.generate, seed)
    if entry.real is not None:
        snapshot = made_real(snapshot, entry.real, seed)
    is_zip = output.suffix == ".zip"
    write_bytes(kai_snapshot(snapshot) if is_zip else orjson.dumps(native_from_snapshot(snapshot)) + b"\n", output)
    return Exit.FINE


def _peers_verdict(runs: "Sequence[Run]") -> Exit:
    worse = [
        f"{run.record.instance} with {run.record.model}, seed {run.record.seed}: {text}"
        for run in runs
        for text in run.worse_than
    ]
    for text in worse:
        complain(text)
    return Exit.FINDINGS if worse else Exit.FINE


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds of ``3``, ``1,2,5`` or ``1..5``.

    Raises
    ------
    InputError
        Not a seed, or an empty range.
    """
    from kai_solver.errors import InputError

    try:
        first, dots, last = text.partition("..")
        seeds = range(int(first), int(last) + 1) if dots else [int(part) for part in text.split(",")]
    except ValueError:
        seeds = []
    if not seeds or min(seeds) < 0:
        raise InputError(f"{text!r} are not seeds", field="--seeds", cure="Write 3, or 1,2,5, or 1..5")
    return tuple(seeds)
