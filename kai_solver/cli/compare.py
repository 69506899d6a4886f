"""``kai-solver compare``: models on one instance, side by side, with the gangs that fare differently."""

from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AsJson, Budget, Full, InputLimit, Instance, Output, Quiet, Seed

if TYPE_CHECKING:
    from rich.console import Console

    from kai_solver.domain import Plan, Snapshot, SolverModel
    from kai_solver.explaining import Difference

ROWS = 5
"""Lines of differences, and causes why gangs wait, before they are cut."""
NAMED = 3

Models = Annotated[str, typer.Option("--models", metavar="NAMES", help="Models to compare, with commas between them.")]
Plans = Annotated[
    Path | None, typer.Option("--plans", metavar="FOLDER", help="Write each model's plan here, as MODEL.plan.json.")
]


@guarded
def compare(
    instance: Instance,
    models: Models = "greedy-only,default",
    budget: Budget = None,
    plans: Plans = None,
    seed: Seed = 0,
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

    \b
    Examples:
      kai-solver compare cluster.yaml
      kai-solver compare snapshot.zip --models default,my-model.toml --budget 5s --plans plans
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.inputs import read_request
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.cli.solve import decide
    from kai_solver.instances_io.output import make_folder

    chosen = _load(models)
    if plans is not None:
        make_folder(plans)
    request = read_request(instance, chosen[0], budget, None, input_limit, is_own_first=False)
    found: list[Plan] = []
    with stopping_on_interrupt() as stop:
        for model in chosen:
            if request.actions_from:
                model = replace(model, actions=request.model.actions)
            of_model = replace(request, model=model, budget_s=request.budget_s if budget else model.budget_s)
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


def _load(text: str) -> "list[SolverModel]":
    from kai_solver.errors import InputError
    from kai_solver.modelfiles import load_model

    models = [load_model(name.strip()) for name in text.split(",") if name.strip()]
    if len({model.name for model in models}) < max(len(models), 2):
        raise InputError("needs two models or more, each once", field="--models", cure="Write greedy-only,default")
    return models


def _members(snapshot: "Snapshot", name: str, models: Sequence[str], plans: "Sequence[Plan]") -> dict[str, Any]:
    from kai_solver.explaining import differences, plan_figures

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
    }


def _print(snapshot: "Snapshot", name: str, models: Sequence[str], plans: "Sequence[Plan]", *, full: bool) -> None:
    from kai_solver.cli.console import heading, line, open_console, table
    from kai_solver.cli.phrases import describe
    from kai_solver.explaining import differences

    console = open_console()
    line(console, describe(snapshot, name), "bold")
    console.print()
    console.print(table(("", *models), list(zip(*_columns(plans), strict=True)), right=models))
    groups = differences(snapshot, plans)
    if groups:
        heading(console, "Gangs that fare differently")
        shown = groups if full else groups[:ROWS]
        rows = [(*group.fates, str(len(group.gangs)), _named(group, full=full)) for group in shown]
        console.print(table((*models, "gangs", "which"), rows, right=("gangs",)))
        _rest(console, len(groups) - len(shown))
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


def _named(group: "Difference", *, full: bool) -> str:
    from kai_solver.domain.names import short_name

    shown = group.gangs if full else group.gangs[:NAMED]
    more = len(group.gangs) - len(shown)
    return ", ".join(map(short_name, shown)) + (f" and {more:,} more" if more else "")


def _print_pending(console: "Console", model: str, plan: "Plan", *, full: bool) -> None:
    from kai_solver.cli.console import heading, line
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
    _rest(console, len(causes) - len(shown))


def _rest(console: "Console", hidden: int) -> None:
    from kai_solver.cli.console import line
    from kai_solver.units import counted

    if hidden:
        line(console, f"  ... and {counted(hidden, 'more line')}; --full shows all", "dim")
