"""``kai-solver simulate``: a scenario replayed under several policies, tables and a summary."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.figures import NoPlots, draw_figures, prepare_figures
from kai_solver.cli.options import AsJson, Budget, InputLimit, Quiet

if TYPE_CHECKING:
    from collections.abc import Callable

    from kai_solver.domain import SolverModel
    from kai_solver.lab.runs import Outcome, ScenarioFile
    from kai_solver.lab.simulate import Result, Scenario, Standing

OUTPUT = Path("out/simulate")


@guarded
def simulate(
    scenario: Annotated[
        Path, typer.Argument(metavar="SCENARIO", help="Scenario file (YAML or JSON, kai-scenario/v1).")
    ],
    policies: Annotated[
        str,
        typer.Option(
            "--policies", metavar="LIST", help="Models and kube-default, like greedy-only,default,kube-default."
        ),
    ] = "greedy-only,kube-default",
    budget: Budget = None,
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for tables and figures.")
    ] = OUTPUT,
    seed: Annotated[
        int | None,
        typer.Option("--seed", metavar="N", min=0, help="Seed of all random numbers; default: the scenario's."),
    ] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write parquet beside CSV; needs polars (kai-solver[experiments]).")
    ] = False,
    no_plots: NoPlots = False,
    input_limit: InputLimit = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Replay a workload in simulated time: arrivals, run times, evictions and what they cost, node failures.

    Every policy gets the same jobs and the same failures. Tables are written to the output folder: jobs, queues, nodes,
    cycles, stays and solve_times as CSV, and a row for each replay (runs.jsonl, and tables of it). Figures of them go
    to its folder `figures`, as SVG and PNG. If a replay fails, the others go on. Its last cycle and the command that
    repeats it are kept, and the exit code is 1.
    Ctrl-C ends the replay and writes the results so far (exit code 130).

    \b
    Examples:
      kai-solver simulate instances/scenarios/training-and-inference.yaml
      kai-solver simulate mine.yaml --policies fast,greedy-only,kube-default --budget 500ms --seed 7 -o out/mine
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.failed import tell_failed
    from kai_solver.cli.inputs import parse_budget_s, parse_limits
    from kai_solver.cli.simulate_report import print_report
    from kai_solver.errors import InputError
    from kai_solver.instances_io.output import make_folder
    from kai_solver.lab.bench import short_name
    from kai_solver.lab.runs import ScenarioFile, content_hash, write_runs
    from kai_solver.lab.simulate import has_parquet, load_scenario, summarize, write_tables

    if parquet and not has_parquet():
        cure = "Install it (pip install 'kai-solver[experiments]'), or do without: CSV is always written"
        raise InputError("needs polars, which is not installed", field="--parquet", cure=cure)
    start_s = time.monotonic()
    loaded = load_scenario(scenario, seed=seed, limits=parse_limits(input_limit))
    read_s = time.monotonic() - start_s
    models = _models(_names(policies))
    budget_s = parse_budget_s(budget) if budget is not None else None
    make_folder(output)  # A place where nothing can be written is an error before the work.
    figures = prepare_figures(output, wanted=not no_plots)
    source = ScenarioFile(loaded.name or short_name(scenario.name), scenario, content_hash(scenario))

    def keep(outcomes: "list[Outcome]", results: "list[Result]") -> None:
        # Rows first: they are small, so that on a full disk at least they are there.
        write_runs(output, outcomes)
        write_tables(results, output, parquet=parquet)

    outcomes, results = _replay_all(loaded, read_s, source, models, budget_s, keep, quiet=quiet)
    summaries = [summarize(result) for result in results]
    members = {"policies": [summary.document() for summary in summaries]}
    if deliver(document("simulation", members), as_json=as_json, output=None):
        print_report(loaded, summaries, output)
    if figures is not None and results:
        draw_figures(output, figures)
        if not as_json:
            typer.echo(f"Figures are in {figures}")
    if any(result.interrupted for result in results):
        complain(f"interrupted; what there is by then is in {output}")
        return Exit.INTERRUPTED
    return tell_failed(outcomes, output)


def _names(policies: str) -> list[str]:
    from kai_solver.errors import InputError

    names = list(dict.fromkeys(name.strip() for name in policies.split(",") if name.strip()))
    if not names:
        raise InputError("names no policy", field="--policies", cure="Write models, or kube-default")
    return names


def _models(names: list[str]) -> "dict[str, SolverModel | None]":
    """By name the model that decides; None: kube-default does."""
    from kai_solver.lab.simulate import KubeDefault
    from kai_solver.modelfiles import load_model

    return {name: None if name == KubeDefault.name else load_model(name, [KubeDefault.name]) for name in names}


def _replay_all(
    scenario: "Scenario",
    read_s: float,
    source: "ScenarioFile",
    models: "dict[str, SolverModel | None]",
    budget_s: float | None,
    keep: "Callable[[list[Outcome], list[Result]], None]",
    *,
    quiet: bool,
) -> "tuple[list[Outcome], list[Result]]":
    """One policy after the other; the one that is interrupted is the last. One that failed has no result.

    ``keep`` gets all that there is after each of them, so that what comes later cannot lose it.
    """
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.lab.runs import task_of
    from kai_solver.lab.runs.scenarios import replayed

    outcomes: list[Outcome] = []
    results: list[Result] = []
    with stopping_on_interrupt() as stop:
        for model in models.values():
            task = task_of("simulate", source, model, scenario.seed, budget_s)
            told = None if quiet else _teller()
            outcome, result = replayed(task, scenario, read_s=read_s, should_stop=stop.is_set, progress=told)
            outcomes.append(outcome)
            results += [] if result is None else [result]
            keep(outcomes, results)
            if stop.is_set():
                break
    return outcomes, results


def _teller() -> "Callable[[Standing], None]":
    """Tells how far a replay is: in place on a terminal, else a plain line now and then."""
    in_place = sys.stderr.isatty()
    last_s = -_PLAIN_EVERY_S

    def tell(at: "Standing") -> None:
        nonlocal last_s
        if not in_place and at.elapsed_s - last_s < _PLAIN_EVERY_S:
            return
        last_s = at.elapsed_s
        end = f" of {at.end_s:,.0f} s" if at.end_s is not None else " s"
        text = (
            f"{at.policy}: {at.time_s:,.0f}{end} in {at.elapsed_s:.0f} s, cycle {at.cycles:,}; "
            f"jobs: {at.running:,} running, {at.pending:,} waiting, {at.done:,} done, {at.future:,} to come"
        )
        sys.stderr.write(f"\r\x1b[K{text}" if in_place else f"{text}\n")
        sys.stderr.flush()

    return tell


_PLAIN_EVERY_S = 10.0
