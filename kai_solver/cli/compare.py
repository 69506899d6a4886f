"""``kai-solver compare``: models or plans side by side on one instance, or a study of models on many."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AnyVersions, AsJson, Budget, Full, InputLimit, Output, Quiet

if TYPE_CHECKING:
    from rich.console import Console

    from kai_solver.domain import Plan, Snapshot, SolverModel

MODELS = "greedy-only,default"
NODES = 3
"""Nodes of a gang before it says how many more there are."""


class ClockName(Enum):
    """What the solver's time is read on."""

    WALL = "wall"
    CPU = "cpu"


Paths = Annotated[
    list[Path] | None,
    typer.Argument(metavar="PATH", help="An instance; with --study also more of them, folders, sets and scenarios."),
]
Models = Annotated[
    str | None,
    typer.Option("--models", metavar="LIST", help="Models to compare: names or files; default: greedy-only,default."),
]
Plans = Annotated[
    Path | None, typer.Option("--plans", metavar="FOLDER", help="Write each model's plan here, as MODEL.plan.json.")
]
Given = Annotated[
    list[Path] | None,
    typer.Option("--plan", metavar="FILE", help="Compare this plan of the instance, and solve nothing; repeatable."),
]
Seeds = Annotated[
    str | None,
    typer.Option(
        "--seeds", metavar="SEEDS", help="One seed, default 1; with --study also a list 1,2,3 or a range 1..5."
    ),
]
StudyFolder = Annotated[
    Path | None,
    typer.Option("--study", metavar="FOLDER", help="Keep all runs here; with no PATH, go on with the study."),
]
AtOnce = Annotated[
    int, typer.Option("--at-once", metavar="N", min=1, max=1024, help="With --study: number of runs at a time.")
]
Scheduler = Annotated[
    str | None,
    typer.Option(
        "--scheduler", metavar="ADDRESS", help="With --study: do the runs on the Dask cluster at tcp://HOST:PORT."
    ),
]
LimitMemory = Annotated[
    str | None,
    typer.Option("--limit-memory", metavar="AMOUNT", help="With --study: most memory of a run, default 8Gi."),
]
LimitTime = Annotated[
    str | None, typer.Option("--limit-time", metavar="TIME", help="With --study: most wall time of a run, default 1h.")
]
ByClock = Annotated[
    ClockName | None,
    typer.Option(
        "--clock", metavar="CLOCK", help="With --study: wall or cpu, of budgets and times to decide; default wall."
    ),
]
Retry = Annotated[bool, typer.Option("--retry", help="With --study: do runs that failed again.")]


@guarded
def compare(
    paths: Paths = None,
    models: Models = None,
    budget: Budget = None,
    plans: Plans = None,
    plan: Given = None,
    seeds: Seeds = None,
    study: StudyFolder = None,
    at_once: AtOnce = 1,
    scheduler: Scheduler = None,
    allow_other_versions: AnyVersions = False,
    limit_memory: LimitMemory = None,
    limit_time: LimitTime = None,
    clock: ByClock = None,
    retry: Retry = False,
    input_limit: InputLimit = None,
    output: Output = None,
    as_json: AsJson = False,
    full: Full = False,
    quiet: Quiet = False,
) -> Exit:
    """Solve one instance with several models: what each plan admits and disturbs, and which gangs differ.

    GPU-hours evicted: GPUs of the evicted pods times the time since they started. Stages proven best: stages of the
    objective for which it is proven that no plan does better. Pending gangs are those of the last model. A behaviour
    case or benchmark file that names actions is solved with those by every model.

    With --study: every model on every instance, scenario and entry of a benchmark set, with every seed, each run in a
    process of its own. Every run is kept in the folder when it ends. The same command goes on where it was stopped. At
    the end, each model is tested against the first one by pairs of runs.

    \b
    Examples:
      kai-solver compare cluster.yaml
      kai-solver compare snapshot.zip --models default,my-model.toml --budget 5s --plans plans
      kai-solver compare snapshot.zip --plan plans/default.plan.json --plan plans/mine.plan.json
      kai-solver compare snapshot.zip cluster.yaml --models default,fast --seeds 1..2 --study out/fast --at-once 2
      kai-solver compare --study out/fast
    """
    from kai_solver.cli.bench import parse_seeds

    chosen_seeds = parse_seeds(seeds or "1")
    if study is not None:
        from kai_solver.cli.compare_study import compare_study, read_asked, refuse_beside_study

        refuse_beside_study({"--plans": plans, "--plan": plan, "--input-limit": input_limit})
        asked = read_asked(
            study,
            paths or [],
            None if seeds is None else chosen_seeds,
            models=models,
            budget=budget,
            clock=clock and clock.value,
            limit_memory=limit_memory,
            limit_time=limit_time,
            at_once=at_once,
            scheduler=scheduler,
            any_versions=allow_other_versions,
            retries=retry,
        )
        return compare_study(asked, output, as_json=as_json, full=full, quiet=quiet)
    _need_study({"--scheduler": scheduler, "--allow-other-versions": allow_other_versions})
    instance, seed = _single(paths or [], chosen_seeds)
    if plan:
        return _compare_plans(instance, plan, input_limit, output, as_json=as_json, full=full)
    return _compare_models(instance, models, budget, plans, seed, input_limit, output, as_json, full, quiet)


def _compare_models(
    instance: Path,
    models: str | None,
    budget: str | None,
    plans: Path | None,
    seed: int,
    input_limit: list[str] | None,
    output: Path | None,
    as_json: bool,
    full: bool,
    quiet: bool,
) -> Exit:
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import read_request
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.cli.solve import decide
    from kai_solver.instances_io.output import make_folder

    chosen = _load(models or MODELS)
    if plans is not None:
        make_folder(plans)
    request = read_request(instance, chosen[0], budget, None, input_limit, is_own_first=False)
    found: list[Plan] = []
    with stopping_on_interrupt() as stop:
        for model in chosen:
            if request.actions_from:
                model = replace(model, actions=request.model.actions)
            of_model = replace(request, model=model, budget_s=request.budget_s if budget else model.budget_s)
            if not quiet:
                typer.echo(f"{model.name}, {of_model.budget_s:g} s", err=True)
            found.append(decide(of_model, seed, stop.is_set, quiet=quiet))
        interrupted = stop.is_set()
    names = [model.name for model in chosen]
    if plans is not None:
        from kai_solver.instances_io.plans import write_plan

        for name, plan in zip(names, found, strict=True):
            write_plan(plan, plans / f"{name}.plan.json")
    result = document("comparison", _members(request.loaded.snapshot, instance.name, names, found))
    if deliver(result, as_json=as_json, output=output):
        _print(request.loaded.snapshot, instance.name, names, found, full=full)
    if interrupted:
        complain("interrupted; these are the best plans so far")
        return Exit.INTERRUPTED
    return Exit.FINE


def _compare_plans(
    instance: Path,
    files: Sequence[Path],
    input_limit: list[str] | None,
    output: Path | None,
    *,
    as_json: bool,
    full: bool,
) -> Exit:
    """Plans that are there, by the names of their files."""
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import parse_limits
    from kai_solver.errors import InputError
    from kai_solver.instances_io import load_instance
    from kai_solver.instances_io.complete import check_complete
    from kai_solver.instances_io.plans import read_plan_of

    if len({file.resolve() for file in files}) < max(len(files), 2):
        raise InputError("needs two plans or more, each once", field="--plan", cure="Write --plan a.json --plan b.json")
    loaded = load_instance(instance, limits=parse_limits(input_limit))
    check_complete(str(instance), loaded)
    found = [read_plan_of(loaded.snapshot, file) for file in files]
    short = [file.name.removesuffix(".zst").removesuffix(".json").removesuffix(".plan") for file in files]
    names = short if len({*short}) == len(short) else [str(file) for file in files]
    result = document("comparison", _members(loaded.snapshot, instance.name, names, found))
    if deliver(result, as_json=as_json, output=output):
        _print(loaded.snapshot, instance.name, names, found, full=full)
    return Exit.FINE


def _need_study(given: dict[str, object]) -> None:
    from kai_solver.errors import InputError

    for option, value in given.items():
        if value:
            raise InputError("needs a study", field=option, cure="Write --study FOLDER as well")


def _single(paths: list[Path], seeds: tuple[int, ...]) -> tuple[Path, int]:
    """The instance and the seed, without a study."""
    from kai_solver.errors import InputError

    if len(paths) != 1:
        problem = "names several instances" if paths else "names no instance"
        raise InputError(problem, field="PATH", cure="Give one, or write --study FOLDER to compare on many")
    if len(seeds) != 1:
        raise InputError("names several seeds", field="--seeds", cure="Give one, or write --study FOLDER as well")
    return paths[0], seeds[0]


def _load(text: str) -> "list[SolverModel]":
    from kai_solver.errors import InputError
    from kai_solver.modelfiles import load_model

    models = [load_model(name.strip()) for name in text.split(",") if name.strip()]
    if len({model.name for model in models}) < max(len(models), 2):
        raise InputError("needs two models or more, each once", field="--models", cure="Write greedy-only,default")
    return models


def _members(snapshot: "Snapshot", name: str, models: Sequence[str], plans: "Sequence[Plan]") -> dict[str, Any]:
    from kai_solver.explaining import differences, placings, plan_figures

    return {
        "instance": snapshot.name or name,
        "models": [
            {"model": model, "decide_s": plan.timing_s.get("decide", 0.0), **asdict(plan_figures(plan))}
            for model, plan in zip(models, plans, strict=True)
        ],
        "differences": [
            {"fates": dict(zip(models, group.fates, strict=True)), "gangs": group.gangs}
            for group in differences(snapshot, plans)
        ],
        "placings": [
            {"gang": placing.gang, "nodes": dict(zip(models, placing.nodes, strict=True))}
            for placing in placings(snapshot, plans)
        ],
    }


def _print(snapshot: "Snapshot", name: str, models: Sequence[str], plans: "Sequence[Plan]", *, full: bool) -> None:
    from kai_solver.cli.console import heading, line, open_console, table
    from kai_solver.cli.fates import ROWS, print_fates, print_rest
    from kai_solver.cli.phrases import describe
    from kai_solver.domain.names import short_name
    from kai_solver.explaining import differences, placings

    console = open_console()
    line(console, describe(snapshot, name), "bold")
    console.print()
    console.print(table(("", *models), list(zip(*_columns(plans), strict=True)), right=models))
    groups, elsewhere = differences(snapshot, plans), placings(snapshot, plans)
    if groups:
        print_fates(console, "Gangs that fare differently", models, groups, full=full)
    if elsewhere:
        heading(console, "Gangs that get other nodes")
        places = elsewhere if full else elsewhere[:ROWS]
        cells = [(short_name(one.gang), *(_places(nodes, full=full) for nodes in one.nodes)) for one in places]
        console.print(table(("gang", *models), cells))
        print_rest(console, len(elsewhere) - len(places))
    if not groups and not elsewhere:
        line(console, "All gangs fare alike, and get the same nodes.")
    _print_pending(console, models[-1], plans[-1], full=full)


def _columns(plans: "Sequence[Plan]") -> list[list[str]]:
    """Labels, then the figures of each plan."""
    from kai_solver.explaining import plan_figures

    columns = [
        [
            *("gangs admitted", "gangs pending", "  of them proven", "pods evicted", "GPU-hours evicted"),
            *("pods moved", "stages proven best", "seconds to decide"),
        ]
    ]
    for plan in plans:
        figures = plan_figures(plan)
        columns.append(
            [
                f"{figures.admitted:,}",
                f"{figures.pending:,}",
                f"{figures.proven_pending:,}",
                f"{figures.evicted_pods:,}",
                f"{figures.evicted_gpu_hours:,.1f}",
                f"{figures.moved_pods:,}",
                f"{figures.proven_stages} of {figures.stages}",
                f"{plan.timing_s.get('decide', 0.0):.2f}",
            ]
        )
    return columns


def _places(nodes: Mapping[str, int], *, full: bool) -> str:
    """Nodes, with the number of pods that each gets where it is more than one."""
    shown = list(nodes.items()) if full else list(nodes.items())[:NODES]
    words = [node if pods == 1 else f"{node} ({pods:,})" for node, pods in shown]
    return ", ".join(words) + (f" and {len(nodes) - len(shown):,} more" if len(nodes) > len(shown) else "") or "-"


def _print_pending(console: "Console", model: str, plan: "Plan", *, full: bool) -> None:
    from kai_solver.cli.console import heading, line
    from kai_solver.cli.fates import ROWS, print_rest
    from kai_solver.cli.phrases import in_the_way, same_cause
    from kai_solver.domain.names import short_name

    if not plan.pending:
        return
    heading(console, f"Pending with {model}")
    causes = same_cause(plan.pending)
    shown = causes if full else causes[:ROWS]
    for gangs in shown:
        first = gangs[0]
        more = f" and {len(gangs) - 1:,} more" if len(gangs) > 1 else ""
        why = [in_the_way(blocker) for blocker in first.proof.blocking[:1]] or [first.message.splitlines()[0]]
        line(console, f"  {short_name(first.gang)}{more} ({first.proof.state}): {why[0]}")
    print_rest(console, len(causes) - len(shown))
