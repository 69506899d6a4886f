"""Output: one console for results, one for progress and errors; nothing of a file reaches the terminal raw."""

import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions
from rich.text import Text

from kai_solver.errors import printable

PIPE_WIDTH = 1_000_000
"""Columns where output is not a terminal and COLUMNS says nothing: a row of a table is one line, for grep and awk."""

_GAP = "  "


class _Console(Console):
    """Never cuts a line: what is too long for the width stays whole, so that it can be copied."""

    def print(self, *objects: Any, **more: Any) -> None:
        """Print ``objects``, each line as long as it is."""
        super().print(*objects, **({"crop": False} | more))

    def on_broken_pipe(self) -> None:
        """Leave the end of a pipe to the command."""
        raise BrokenPipeError


def open_console(stream: TextIO | None = None) -> Console:
    """Console on ``stream`` (standard output), without markup, so that names with brackets stay whole."""
    stream = stream or sys.stdout
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_WIDTH
    return _Console(file=stream, width=width, markup=False, highlight=False, emoji=False)


def clean(text: str) -> str:
    """``text`` with control characters made visible; line ends stay: those in names are escaped when they are read."""
    return "\n".join(map(printable, text.split("\n")))


def heading(console: Console, title: str, note: str = "") -> None:
    """Print a section's title."""
    console.print()
    text = Text.assemble((clean(title), "bold"), (f"  {clean(note)}" if note else "", "dim"))
    if cell_len(text.plain) <= console.width:
        console.print(text, soft_wrap=True)
    else:
        console.print(Text(clean(title), "bold"), soft_wrap=True)
        line(console, f"  {note}", "dim")


def line(console: Console, text: str, style: str = "") -> None:
    """Print a line, wrapped between words to the width; what follows is indented a little more than the first."""
    for part in clean(text).split("\n"):
        for each in wrapped(part.rstrip(), console.width):
            console.print(Text(each, style=style), soft_wrap=True)


def wrapped(text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` columns; a word that is longer has a line of its own."""
    if cell_len(text) <= width:
        return [text]
    first = text[: len(text) - len(text.lstrip())]
    later = first + _GAP if first else first
    lines, so_far = [], first
    for number, word in enumerate(text[len(first) :].split(" ")):
        joined = f"{so_far} {word}" if number else f"{so_far}{word}"
        if cell_len(joined) > width and so_far.strip():
            lines.append(so_far.rstrip())
            joined = f"{later}{word}"
        so_far = joined
    return [*lines, so_far]


@dataclass(frozen=True, slots=True)
class Grid:
    """A plain table that fits the width: long cells are wrapped between words, and names are never cut.

    Where the longest words of all columns are too wide together, every row becomes a paragraph: its first cell, and
    below it the others by the names of their columns.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str]

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> Iterator[Text]:
        """Lines without blanks at their ends."""
        widths = self._widths(options.max_width)
        if widths is None:
            yield from self._paragraphs(options.max_width)
            return
        for number, row in enumerate((self.columns, *self.rows)):
            cells = [wrapped(cell, width) for cell, width in zip(row, widths, strict=True)]
            for part in range(max(map(len, cells), default=0)):
                texts = [cell[part] if part < len(cell) else "" for cell in cells]
                padded = (self._padded(*each) for each in zip(self.columns, texts, widths, strict=True))
                yield _whole(_GAP.join(padded).rstrip(), "dim" if not number else "")

    def _widths(self, width: int) -> list[int] | None:
        every = [*zip(*(self.columns, *self.rows), strict=True)]
        widest = [max(map(cell_len, cells)) for cells in every]
        least = [self._least(column, cells) for column, cells in zip(self.columns, every, strict=True)]
        room = width - len(_GAP) * (len(self.columns) - 1)
        if sum(least) > room:
            return None
        while sum(widest) > room:
            spare = [now - most if now > most else 0 for now, most in zip(widest, least, strict=True)]
            chosen = max(range(len(widest)), key=lambda n: (spare[n] > 0, widest[n]))
            widest[chosen] -= 1
        return widest

    def _least(self, column: str, cells: Sequence[str]) -> int:
        """The longest word; numbers stay with their units."""
        whole = cells[1:] if column in self.right else ()
        words = (word for cell in cells for word in cell.split())
        indent = max((len(cell) - len(cell.lstrip()) for cell in cells), default=0)
        return max((*map(cell_len, words), *map(cell_len, whole), 0)) + indent

    def _padded(self, column: str, text: str, width: int) -> str:
        blanks = " " * (width - cell_len(text))
        return blanks + text if column in self.right else text + blanks

    def _paragraphs(self, width: int) -> Iterator[Text]:
        for row in self.rows:
            first, *others = row
            rest = [f"{name} {cell}" for name, cell in zip(self.columns[1:], others, strict=True) if cell]
            for each in wrapped(first.rstrip(), width) if first.strip() else ():
                yield _whole(each)
            for each in wrapped(f"    {'; '.join(rest)}", width):
                yield _whole(each)


def _whole(text: str, style: str = "") -> Text:
    return Text(text, style=style, no_wrap=True, overflow="ignore")


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = ()) -> Grid:
    """Plain table; the columns named in ``right`` are right-aligned."""
    cells = tuple(tuple(clean(cell) for cell in row) for row in rows)
    return Grid(tuple(columns), cells, frozenset(right))
