"""``kai-solver solve``: one cycle on an instance, in words or as a plan file."""

import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import (
    Actions,
    AsJson,
    Budget,
    Full,
    InputLimit,
    Instance,
    Model,
    Quiet,
    Seed,
    Verbose,
    json_place,
)

if TYPE_CHECKING:
    from kai_solver.cli.inputs import Request
    from kai_solver.domain import Plan
    from kai_solver.engine import Fault
    from kai_solver.search.child import SolverChild

BUNDLES = Path("kai-solver-bundles")


@guarded
def solve(
    instance: Instance,
    model: Model = "default",
    budget: Budget = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="FILE", callback=json_place, help="Write the plan here (JSON; .zst compresses)."
        ),
    ] = None,
    seed: Seed = 0,
    actions: Actions = None,
    input_limit: InputLimit = None,
    as_json: AsJson = False,
    full: Full = False,
    verbose: Verbose = False,
    timing: Annotated[bool, typer.Option("--timing", help="Print the time of each phase.")] = False,
    quiet: Quiet = False,
    bundles: Annotated[
        Path,
        typer.Option(
            "--bundles", metavar="FOLDER", help="Folder for a cycle in which the solver failed, to solve it again."
        ),
    ] = BUNDLES,
) -> Exit:
    """Decide one cycle: binds, moves, evictions and for which gang, and why the rest is pending.

    A behaviour case or benchmark file that names actions is solved with those, unless --actions says otherwise.
    Ctrl-C stops with the best plan so far (exit code 130, the plan is written); a second Ctrl-C ends at once.

    \b
    Examples:
      kai-solver solve snapshot.zip
      kai-solver solve cluster.yaml --model fast --budget 500ms --output plan.json
      kai-solver solve case.json --actions allocate,reclaim --json | jq .evictions
    """
    from kai_solver.cli.inputs import read_request
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.modelfiles import load_model
    from kai_solver.search.child import SolverChild

    asked = load_model(model)
    with SolverChild(memory_mib=asked.search.memory_mib) as child:
        if asked.search.enabled:
            child.warm()  # It starts while the instance is read.
        request = read_request(instance, asked, budget, actions, input_limit, is_own_first=model == "default")
        with stopping_on_interrupt() as stop:
            started = child if request.model.search == asked.search else None
            plan = decide(request, seed, stop.is_set, quiet=quiet, bundles=bundles, child=started)
            interrupted = stop.is_set()
            if output is not None:
                from kai_solver.instances_io.plans import write_plan

                write_plan(plan, output)
    if as_json:
        from kai_solver.instances_io.plans import plan_json

        typer.echo(plan_json(plan))
    else:
        from kai_solver.cli.summary import print_summary

        print_summary(request, plan, full=full, verbose=verbose, timing=timing)
    if interrupted:
        complain("interrupted; this is the best plan so far" + (f", written to {output}" if output else ""))
        return Exit.INTERRUPTED
    return Exit.FINE


def decide(
    request: "Request",
    seed: int,
    should_stop: Callable[[], bool],
    *,
    quiet: bool,
    bundles: Path = BUNDLES,
    child: "SolverChild | None" = None,
) -> "Plan":
    """One cycle, with progress on standard error; what fails in it is kept under ``bundles``.

    ``child``: a solver process that was started already.
    """
    from kai_solver import compiled
    from kai_solver.cli.progress import ProgressLine
    from kai_solver.engine import Engine

    snapshot = request.loaded.snapshot
    uses_kernels = request.model.search.chains and compiled.is_wanted(len(snapshot.nodes))
    if uses_kernels and not compiled.is_cached() and not quiet:
        complain("large clusters are decided better by compiled kernels: `kai-solver compile` makes them, once")
    with ProgressLine(quiet=quiet) as progress, Engine(request.model, child=child) as engine:
        engine.wait()
        return engine.cycle(
            snapshot,
            budget_s=request.budget_s,
            seed=seed,
            progress=progress,
            should_stop=should_stop,
            on_fault=partial(keep_fault, bundles),
        )


def keep_fault(folder: Path, fault: "Fault") -> None:
    """Write a bundle that `kai-solver solve` takes, and say where it is."""
    from kai_solver import __version__
    from kai_solver.errors import InputError
    from kai_solver.instances_io.bundle import Bundle, write_bundle

    path = folder / f"fault-{fault.snapshot.now_s:.0f}-{fault.seed}-{zlib.crc32(fault.error.encode()):08x}.zip"
    versions = {"kai-solver": __version__}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        bundle = Bundle(fault.snapshot, fault.model, fault.budget_s, fault.seed, fault.error, versions)
        write_bundle(bundle, path)
        complain(f"{fault.error}; kept in {path}")
    except (InputError, OSError) as error:
        complain(f"{fault.error}; it could not be kept: {error}")
