"""Output: one console for results, one for progress and errors; nothing of a file reaches the terminal raw."""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TextIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kai_solver.errors import printable

PIPE_WIDTH = 1000
"""Columns where output is not a terminal and COLUMNS says nothing: a row of a table is one line, for grep and awk."""


def open_console(stream: TextIO | None = None) -> Console:
    """Console on ``stream`` (standard output), without markup, so that names with brackets stay whole."""
    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def clean(text: str) -> str:
    """``text`` with control characters made visible; line ends stay: those in names are escaped when they are read."""
    return "\n".join(map(printable, text.split("\n")))


def heading(console: Console, title: str, note: str = "") -> None:
    """Print a section's title."""
    console.print()
    console.print(Text.assemble((clean(title), "bold"), (f"  {clean(note)}" if note else "", "dim")), soft_wrap=True)


def line(console: Console, text: str, style: str = "") -> None:
    """Print one line, wrapped only by the terminal."""
    console.print(Text(clean(text), style=style), soft_wrap=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Table:
    """Plain table; the columns named in ``right`` are right-aligned."""
    grid = Table(box=None, pad_edge=False, header_style="dim", padding=(0, 2, 0, 0))
    for column in columns:
        grid.add_column(column, justify="right" if column in right else "left", overflow="fold")
    for row in rows:
        grid.add_row(*(Text(clean(cell)) for cell in row))
    return grid


def counted(count: int, noun: str, plural: str = "") -> str:
    """``1 pod``, ``2 pods``, ``4,000 pods``."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"
