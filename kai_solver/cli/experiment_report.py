"""How an experiment's runs are printed."""

from collections.abc import Sequence
from pathlib import Path

import typer

from kai_solver.cli.documents import deliver, document
from kai_solver.lab.experiments import SUMMARY_COLUMNS, Run, openb_outcome, summary_of
from kai_solver.lab.experiments.report import SIZES


def print_runs(runs: Sequence[Run], output: Path, data: Path, *, as_json: bool) -> None:
    """One line a run, or the summary as JSON."""
    ordered = sorted(runs, key=lambda run: run.spec)
    rows = [summary_of(openb_outcome(run, data).record) for run in ordered]
    entries = [dict(zip(SUMMARY_COLUMNS, row, strict=True)) for row in rows]
    members = {"output": str(output), "runs": entries}
    if not deliver(document("experiment-openb", members), as_json=as_json, output=None):
        return
    head = "".join(f"{size:>7}" for size in SIZES)
    typer.echo(f"{'trace':<12} {'seed':>4}  {'policy':<26}{'at 100%':>8}{'at 130%':>8}  failed:{head}  moved  seconds")
    for run in ordered:
        failed = "".join(f"{run.failed(size):>7}" for size in SIZES)
        shares = "".join(
            f"{'' if share is None else f'{share:.2f}':>8}" for share in map(run.allocation_at, (100, 130))
        )
        spec = run.spec
        line = f"{spec.trace:<12} {spec.seed:>4}  {spec.label:<26}{shares}  {'':7}{failed}"
        typer.echo(f"{line}{run.moved:>7}{run.seconds:>9.1f}")
    typer.echo(f"Tables are in {output}")
