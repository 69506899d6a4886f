"""Figures that a command draws of its own tables, without being asked: what it needs, where they go."""

import shlex
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from kai_solver.cli.exits import complain
from kai_solver.errors.extras import has_package

FOLDER = "figures"
"""In the folder of the tables."""
PACKAGES = ("matplotlib", "polars")

NoPlots = Annotated[bool, typer.Option("--no-plots", help="Draw no figures.")]


def prepare_figures(output: Path, *, wanted: bool) -> Path | None:
    """Find out before any work whether figures can be drawn; None: they cannot, which is said, or are not wanted.

    Returns
    -------
    Path or None
        The folder that they go to. It is there, and can be written.

    Raises
    ------
    InputError
        The folder cannot be made, or nothing can be written into it.
    """
    from kai_solver.instances_io.output import make_folder

    for svg in (output / FOLDER).glob("*.svg"):  # of an earlier call: they show other tables
        drawn = [svg.with_suffix(ending) for ending in (".svg", ".png", ".csv")]
        if all(path.is_file() for path in drawn):
            for path in drawn:
                path.unlink()
    if not wanted:
        with suppress(OSError):  # it is not there, or has files of others
            (output / FOLDER).rmdir()
        return None
    missing = [name for name in PACKAGES if not has_package(name)]
    if missing:
        need = " and ".join(missing)
        complain(f"no figures: they need {need} (pip install 'kai-solver[experiments]'); the tables are complete")
        return None
    make_folder(output / FOLDER)
    return output / FOLDER


def draw_figures(output: Path, folder: Path) -> list[Path]:
    """Draw what `kai-solver report --figures` would draw of the tables in ``output``; return the drawings.

    Raises
    ------
    InputError
        A figure cannot be written.
    """
    from kai_solver.errors import InputError
    from kai_solver.lab.reports import build_report, write_figures

    report = build_report([output])
    try:
        return write_figures(report, folder)
    except InputError as error:
        again = shlex.join(["kai-solver", "report", str(output), "--figures", str(folder)])
        cure = f"The tables are complete. Make room, and draw them: {again}"
        raise InputError(error.problem, file=error.file, field=error.field, cure=cure) from None
