"""``kai-solver experiment nvlink``: links of the GPUs that pods get on a fleet, by policy of choosing them."""

from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.experiment import read_seeds, read_words
from kai_solver.cli.options import AsJson, Output, Quiet

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kai_solver.lab.experiments.fleet import FleetRun, FleetSpec
    from kai_solver.lab.runs import Outcome

EVERY = "lowest,best-now,mapa,devices,joint,cycle"


@guarded
def nvlink(
    product: Annotated[
        str, typer.Option("--product", metavar="NAME", help="Product of the nodes, from `devices --list`.")
    ] = "dgx1-v100-8",
    nodes: Annotated[int, typer.Option("--nodes", metavar="N", min=1, max=100_000, help="Number of nodes.")] = 500,
    load: Annotated[
        float, typer.Option("--load", metavar="SHARE", min=0.01, max=2, help="Requested GPUs, as a share of all GPUs.")
    ] = 0.85,
    lives: Annotated[
        float,
        typer.Option("--lives", metavar="NUMBER", min=0.1, max=1000, help="Number of mean lives of pods to count."),
    ] = 20.0,
    seeds: Annotated[str, typer.Option("--seeds", metavar="SEEDS", help="Seeds: 1, 1,2,5 or 1..10.")] = "1..10",
    policies: Annotated[str, typer.Option("--policies", metavar="LIST", help=f"Of {EVERY}.")] = EVERY,
    output: Output = None,
    save: Annotated[
        Path | None,
        typer.Option("--save", metavar="FOLDER", help="Store the runs, as in docs/studies.md."),
    ] = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Let pods come and go on a fleet of identical nodes and measure the links between the GPUs that they get.

    Pods of 1, 2 and 4 GPUs (40, 30, 30%) arrive by a Poisson process and stay for exponential times. A pod
    with several GPUs counts by the weakest link in its best ring (for two GPUs, by their link), as a share of the best
    that the product has. The first 5 mean lives are not counted. Policies:

    \b
    lowest    node by bin-pack, GPUs with the lowest indices
    best-now  node by bin-pack, the set with the best link, then the largest sum
    mapa      node by bin-pack, the pattern with the largest sum (after MAPA, SC'21)
    devices   node by bin-pack, our choice of GPUs
    joint     our choice of node and GPUs
    cycle     the same in the order in which a cycle chooses nodes: no idle one where one in use has room

    \b
    Examples:
      kai-solver experiment nvlink
      kai-solver experiment nvlink --policies lowest,joint --nodes 50 --seeds 1..3 --json
    """
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.instances_io.output import make_folder
    from kai_solver.lab.experiments.fleet import FleetSpec, run_fleet
    from kai_solver.lab.experiments.pickers import check_policies
    from kai_solver.lab.experiments.rows import nvlink_outcome
    from kai_solver.lab.runs import write_runs
    from kai_solver.lab.runs.memory import Meter
    from kai_solver.links import product_named

    names, known = read_words(policies, "--policies"), product_named(product)
    check_policies(known.graph, names)
    if save is not None:
        make_folder(save)
    specs = [FleetSpec(int(seed), name, nodes, load, lives) for name in names for seed in read_seeds(seeds)]
    runs: list[FleetRun] = []
    outcomes: list[Outcome] = []
    with stopping_on_interrupt() as stop:
        for spec in specs:
            with Meter() as meter:
                run = run_fleet(known, spec, stop.is_set)
            if run is None:
                break
            runs.append(run)
            outcomes.append(nvlink_outcome(run, product, meter.spent))
            if save is not None:
                write_runs(save, outcomes)  # each when it ended, so that nothing that comes later loses it
            if not quiet:
                _tell(spec, len(runs), len(specs))
    _print(runs, names, as_json=as_json, output=output)
    if len(runs) < len(specs):
        complain(f"interrupted; {len(runs)} of {len(specs)} runs ended")
        return Exit.INTERRUPTED
    return Exit.FINE


def _tell(spec: "FleetSpec", ended: int, total: int) -> None:
    typer.echo(f"{ended} of {total} runs: {spec.policy}, seed {spec.seed}", err=True)


def _print(runs: "Sequence[FleetRun]", names: "Sequence[str]", *, as_json: bool, output: "Path | None") -> None:
    from kai_solver.cli.console import open_console, table
    from kai_solver.cli.documents import deliver, document

    if not deliver(document("experiment-nvlink", {"runs": list(runs)}), as_json=as_json, output=output):
        return

    own = {name: [run for run in runs if run.spec.policy == name] for name in names}
    rows = [_row(name, found) for name, found in own.items() if found]
    columns = [
        "policy",
        "of the ceiling",
        "lowest, highest seed",
        *_SIZES,
        "best set of its node",
        "GPUs used",
        "failed",
    ]
    open_console().print(table(columns, rows, right=columns[1:]))


_SIZES = ("2 GPUs", "4 GPUs")


def _row(name: str, runs: "Sequence[FleetRun]") -> list[str]:
    shares = [run.bandwidth for run in runs]
    sizes = [f"{fmean(run.by_size[int(size[0])] for run in runs):.2f}%" for size in _SIZES]
    used, possible = fmean(run.used for run in runs), fmean(run.possible for run in runs)
    failed = f"{sum(run.failed for run in runs):,} of {sum(run.pods for run in runs):,}"
    spread = f"{min(shares):.2f}, {max(shares):.2f}%"
    return [name, f"{fmean(shares):.2f}%", spread, *sizes, f"{possible:.2f}%", f"{used:.2f}%", failed]
