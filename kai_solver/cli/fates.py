"""Gangs that fare differently in several plans, on the terminal."""

from collections.abc import Sequence

from rich.console import Console

from kai_solver.cli.console import heading, line, table
from kai_solver.domain.names import short_name
from kai_solver.explaining import Difference
from kai_solver.units import counted

ROWS = 5
"""Lines of differences, and causes why gangs wait, before they are cut."""
NAMED = 3
"""Names in one cell before it says how many more there are."""


def print_fates(
    console: Console, title: str, plans: Sequence[str], groups: Sequence[Difference], *, full: bool
) -> None:
    """Print a table of ``groups``, with a column for each of ``plans``; all lines and names if ``full``."""
    heading(console, title)
    shown = groups if full else groups[:ROWS]
    rows = [(*group.fates, str(len(group.gangs)), _named(group, full=full)) for group in shown]
    console.print(table((*plans, "gangs", "which"), rows, right=("gangs",)))
    print_rest(console, len(groups) - len(shown))


def print_rest(console: Console, hidden: int) -> None:
    """Say how many lines were cut, if any were."""
    if hidden:
        line(console, f"  ... and {counted(hidden, 'more line')}; --full shows all", "dim")


def _named(group: Difference, *, full: bool) -> str:
    shown = group.gangs if full else group.gangs[:NAMED]
    more = len(group.gangs) - len(shown)
    return ", ".join(map(short_name, shown)) + (f" and {more:,} more" if more else "")
