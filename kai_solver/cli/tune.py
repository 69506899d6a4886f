"""``kai-solver tune``: search for better values of a model's parameters, and test them on instances held out."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kai_solver.cli.exits import Exit, complain, guarded
from kai_solver.cli.options import AnyVersions, AsJson, Output, Quiet, check_versions_option

if TYPE_CHECKING:
    from kai_solver.lab.tune import TuneProgress


@guarded
def tune(
    space: Annotated[Path, typer.Argument(metavar="SPACE", help="Search space (YAML, kai-tune/v1).")],
    study: Annotated[
        Path, typer.Option("--study", metavar="FOLDER", help="Folder of the study; an interrupted one goes on.")
    ],
    trials: Annotated[
        int, typer.Option("--trials", metavar="N", min=1, help="Trials in all; the first is the present model.")
    ] = 50,
    at_once: Annotated[
        int | None,
        typer.Option(
            "--at-once",
            metavar="N",
            min=1,
            max=256,
            help="Trials at a time; the last runs are alone. Default: 1; with --scheduler the threads of all workers.",
            show_default=False,
        ),
    ] = None,
    storage: Annotated[
        str,
        typer.Option(
            "--storage", metavar="URL", help="Database of the trials, as SQLAlchemy names it; default: in the folder."
        ),
    ] = "",
    scheduler: Annotated[
        str | None,
        typer.Option("--scheduler", metavar="ADDRESS", help="Do the runs on the Dask cluster of tcp://HOST:PORT."),
    ] = None,
    allow_other_versions: AnyVersions = False,
    output: Output = None,
    as_json: AsJson = False,
    quiet: Quiet = False,
) -> Exit:
    """Search for better values of a model's parameters.

    Trials that are worse end early. The best ones are compared once more on the training instances with more seeds. The
    winner is then tested against the present model on instances that the search never saw. The folder gets the model
    that was found (model.toml), the verdict (verdict.txt, verdict.json), and the table of all runs. Ctrl-C ends it, and
    the same command goes on.

    \b
    Examples:
      kai-solver tune instances/tune/default-2s.yaml --study out/default-2s --trials 30
      kai-solver tune mine.yaml --study out/mine --at-once 4 --storage postgresql+psycopg://tune@db/trials
      kai-solver tune mine.yaml --study out/mine --scheduler tcp://head:8786
    """
    from kai_solver.cli.documents import deliver, document
    from kai_solver.cli.interrupt import stopping_on_interrupt
    from kai_solver.lab.runs import DaskCluster
    from kai_solver.lab.tune import TuneStoppedError, read_space, verdict_text
    from kai_solver.lab.tune import tune as search

    check_versions_option(scheduler, any_versions=allow_other_versions)
    asked = read_space(space)
    with stopping_on_interrupt() as stop:
        try:
            verdict = search(
                asked,
                study,
                trials=trials,
                at_once=at_once,
                storage=storage,
                cluster=None
                if scheduler is None
                else DaskCluster(scheduler, allows_other_versions=allow_other_versions),
                report=(lambda _: None) if quiet else _tell,
                should_stop=stop.is_set,
            )
        except TuneStoppedError:
            complain(f"interrupted; what was measured is in {study}, and the same command goes on")
            return Exit.INTERRUPTED
    if deliver(document("tuning", verdict.document()), as_json=as_json, output=output):
        typer.echo(verdict_text(verdict), nl=False)
        typer.echo(f"\nThe model is in {study / 'model.toml'}.")
    return Exit.FINE


def _tell(at: "TuneProgress") -> None:
    """One line for whatever has ended."""
    sys.stderr.write(f"{at.phase} {at.done} of {at.total}: {at.text}\n")
    sys.stderr.flush()
