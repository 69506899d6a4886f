"""``kai-solver experiment``: experiments on public traces and made fleets."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.figures import NoPlots, draw_figures, prepare_figures
from kai_solver.cli.options import AsJson, Quiet
from kai_solver.cli.usage import Command

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kai_solver.lab.experiments import FailedRun, Run, RunSpec

experiment = typer.Typer(help="Run experiments against published baselines.", no_args_is_help=True)

DATA, OUTPUT = Path("instances/openb"), Path("out/openb")


@experiment.callback()
def experiment_group() -> None:
    """Run experiments against published baselines."""


@experiment.command("openb", cls=Command)
@guarded
def openb(
    data: Annotated[
        Path, typer.Option("--data", metavar="FOLDER", help="Folder with node list, pod lists and arrivals.")
    ] = DATA,
    traces: Annotated[
        str, typer.Option("--traces", metavar="LIST", help="Traces, like default,gpuspec33.")
    ] = "default",
    seeds: Annotated[
        str, typer.Option("--seeds", metavar="SEEDS", help="Seeds of the arrival files: 42, 42,43 or 42..44.")
    ] = "42",
    window: Annotated[
        str,
        typer.Option("--window", metavar="LIST", help="Number of arrivals that `ours` collects, like 200 or 50,200."),
    ] = "200",
    moves: Annotated[
        str,
        typer.Option(
            "--moves", metavar="LIST", help="Pods that `ours` may move, as a share of the arrivals: 0.05 or 0,0.05."
        ),
    ] = "0",
    policies: Annotated[
        str, typer.Option("--policies", metavar="LIST", help="Policies, of ours, fgd, bestfit, random.")
    ] = "ours,fgd,bestfit",
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder for tables and figures.")
    ] = OUTPUT,
    jobs: Annotated[
        int, typer.Option("--jobs", "-j", metavar="N", min=1, max=256, help="Number of runs at a time, a process each.")
    ] = 1,
    no_plots: NoPlots = False,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Fill a real GPU cluster with real requests and see how much of it can be used before pods stop fitting.

    This is the experiment of "Beware of Fragmentation" (USENIX ATC 2023). Pods of a trace arrive until they ask for
    130% of the cluster's GPUs. No pod departs. A pod that is not placed has failed for good. fgd, bestfit and random
    place each pod when it arrives, as published. `ours` collects a window of arrivals and places them together, so that
    the free room is worth most for the pods that usually arrive.

    \b
    Reads  DATA/openb_node_list_gpu_node.csv, openb_pod_list_TRACE.csv, arrivals_TRACE_seedN.txt.gz
    Writes OUTPUT/runs.jsonl    a line a run, and the tables of it (docs/studies.md), as CSV and Parquet
           OUTPUT/curves.csv    allocation and fragmentation by percent arrived
           OUTPUT/failed.csv    failed pods by size, at 100% arrived and at the end
           OUTPUT/figures       figures of these tables as SVG and PNG, with their data

    \b
    Examples:
      kai-solver experiment openb
      kai-solver experiment openb --data traces/openb --traces default,gpuspec33 --seeds 42..44 --moves 0,0.05 --jobs 2
    """
    from kai_solver.cli.experiment_report import print_runs
    from kai_solver.cli.failed import tell_failed
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.lab.experiments import Run, openb_outcome
    from kai_solver.lab.experiments.suite import check_folder, plan_runs, run_suite
    from kai_solver.lab.experiments.tables import write_tables

    specs = plan_runs(*_read_lists(traces, seeds, policies, window, moves))
    check_folder(data, specs)
    every: list[Run | FailedRun] = []
    write_tables(every, output, data)  # a folder that cannot be written is told before the work
    figures = prepare_figures(output, wanted=not no_plots)
    tell = (lambda _spec, _part: None) if quiet else _teller(len(specs), every)
    with stopping_on_interrupt() as stop:
        for run in run_suite(data, specs, jobs=jobs, progress=tell, should_stop=stop.is_set):
            every.append(run)
            write_tables(every, output, data)
        stopped = stop.is_set() and len(every) < len(specs)
    runs = [run for run in every if isinstance(run, Run)]
    print_runs(runs, output, data, as_json=as_json)
    if figures is not None and runs:
        draw_figures(output, figures)
        if not as_json:
            typer.echo(f"Figures are in {figures}")
    if stopped:
        complain(f"interrupted; {len(every)} of {len(specs)} runs are in {output}")
        return Exit.INTERRUPTED
    return tell_failed([openb_outcome(run, data) for run in every if not isinstance(run, Run)], output)


def _read_lists(
    traces: str, seeds: str, policies: str, window: str, moves: str
) -> "tuple[list[str], list[int], list[str], list[int], list[float]]":
    from kai_solver.errors import InputError
    from kai_solver.lab.experiments.suite import POLICIES

    chosen = read_words(policies, "--policies")
    for name in chosen:
        if name not in POLICIES:
            raise InputError(f"{name!r} is not a policy", field="--policies", cure=f"Choose from {', '.join(POLICIES)}")
    numbers = (
        read_seeds(seeds),
        _numbers(window, "--window", int, 1, 1_000_000),
        _numbers(moves, "--moves", float, 0, 1),
    )
    return (
        read_words(traces, "--traces"),
        [int(x) for x in numbers[0]],
        chosen,
        [int(x) for x in numbers[1]],
        numbers[2],
    )


def read_words(text: str, option: str) -> list[str]:
    """Names of ``default,gpuspec33``.

    Raises
    ------
    InputError
        There is none, or one has other characters than letters, digits, ``-`` and ``_``.
    """
    from kai_solver.errors import InputError

    words = list(dict.fromkeys(word.strip() for word in text.split(",") if word.strip()))
    if not words:
        raise InputError("names nothing", field=option, cure="Write names with commas between them")
    if bad := [word for word in words if not word.replace("-", "").replace("_", "").isalnum()]:
        raise InputError(f"{bad[0]!r} is not a name", field=option, cure="Write names with commas between them")
    return words


def read_seeds(text: str) -> list[float]:
    """Seeds of ``42``, ``42,43`` or ``42..44``."""
    first, dots, last = text.partition("..")
    if dots and first.strip().isdecimal() and last.strip().isdecimal() and 0 <= int(last) - int(first) < 1000:
        return [float(seed) for seed in range(int(first), int(last) + 1)]
    return _numbers(text, "--seeds", int, 0, 2**31)


def _numbers(text: str, option: str, kind: "type[int | float]", least: float, most: float) -> list[float]:
    from kai_solver.errors import InputError

    cure = f"Write {'whole numbers' if kind is int else 'numbers'} from {least:,} to {most:,}, with commas between them"
    try:
        values = list(dict.fromkeys(float(kind(word)) for word in text.split(",") if word.strip()))
    except ValueError:
        raise InputError(f"{text!r} cannot be used", field=option, cure=cure) from None
    if not values or not all(least <= value <= most for value in values):
        raise InputError(f"{text!r} cannot be used", field=option, cure=cure)
    return values


def _teller(total: int, ended: "Sequence[Run | FailedRun]") -> "Callable[[RunSpec, float], None]":
    """Tells how far the runs are: in place on a terminal, else a plain line now and then."""
    in_place, began_s, last_s = sys.stderr.isatty(), time.perf_counter(), -_PLAIN_EVERY_S

    def tell(spec: "RunSpec", part: float) -> None:
        nonlocal last_s
        now_s = time.perf_counter() - began_s
        if not in_place and now_s - last_s < _PLAIN_EVERY_S:
            return
        last_s = now_s
        text = f"{len(ended)} of {total} runs in {now_s:.0f} s; {spec.trace} seed {spec.seed} {spec.label}: {part:.0%}"
        sys.stderr.write(f"\r\x1b[K{text}" if in_place else f"{text}\n")
        sys.stderr.flush()

    return tell


_PLAIN_EVERY_S = 10.0
