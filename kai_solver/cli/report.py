"""``kai-solver report``: one page, and figures, from what studies, simulations and experiments measured."""

from pathlib import Path
from typing import Annotated

import typer

from kai_solver.cli.exits import Exit, guarded

OUTPUT = Path("out/report.html")


@guarded
def report(
    folders: Annotated[
        list[Path],
        typer.Argument(metavar="FOLDER", help="Folders of studies, of simulations, of the openb experiment."),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The page.")] = OUTPUT,
    figures: Annotated[
        Path | None,
        typer.Option(
            "--figures", metavar="DIR", help="Draw each figure as SVG and PNG there, with its data as CSV, too."
        ),
    ] = None,
    title: Annotated[
        str, typer.Option("--title", metavar="TEXT", help="Title of the page; default: what it shows.")
    ] = "",
) -> Exit:
    """Make one HTML page of what was measured. It has everything inside, and needs no network.

    Verdicts in plain words come first, then a table, then figures. Several folders are drawn side by side.

    \b
    Examples:
      kai-solver report out/simulate
      kai-solver report out/before out/after -o before-after.html --figures figures
    """
    from kai_solver.lab.reports import build_report, write_figures, write_page
    from kai_solver.lab.reports.page import check_place

    check_place(output)
    made = build_report(folders, title)
    write_page(made, output)
    typer.echo(f"report: {output}")
    if figures is not None:
        drawings = write_figures(made, figures)
        typer.echo(f"figures: {len(drawings)} files in {figures}")
    return Exit.FINE
