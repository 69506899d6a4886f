"""Results as tables: rows of plain values, which become data frames, and HTML in a notebook."""

import html
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from kai_solver.errors import InputError, nearest

if TYPE_CHECKING:
    import polars as pl

T = TypeVar("T")

SHOWN = 10
"""Rows of a table in a notebook; what is beyond is counted."""


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of one kind. ``columns``: type of each by name (str, int, float or bool); every value may be None."""

    columns: Mapping[str, type]
    rows: Sequence[tuple[Any, ...]]

    def frame(self) -> "pl.DataFrame":
        """The table as polars' data frame; an empty one has its columns too.

        Raises
        ------
        InputError
            polars is not installed.
        """
        try:
            import polars as pl  # an extra, and slow to import
        except ImportError:
            cure = "Install it: pip install 'kai-solver[experiments]'"
            raise InputError("data frames need polars, which is not installed", cure=cure) from None
        types = {str: pl.String(), int: pl.Int64(), float: pl.Float64(), bool: pl.Boolean()}
        schema: dict[str, pl.DataType] = {name: types[of] for name, of in self.columns.items()}
        return pl.DataFrame(list(self.rows), schema=schema, orient="row")

    def html(self) -> str:
        """The first rows, and how many more there are."""
        head = "".join(f"<th>{html.escape(name.replace('_', ' '))}</th>" for name in self.columns)
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in self.rows[:SHOWN])
        more = len(self.rows) - SHOWN
        rest = f"<p>and {more:,} more rows</p>" if more > 0 else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{rest}"


class Listed(Sequence[T]):
    """A result that is a sequence; a slice of it is a result of the same kind."""

    def __init__(self, found: Sequence[T]) -> None:
        self._found = tuple(found)

    @overload
    def __getitem__(self, place: int) -> T: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> T | Self:
        if not isinstance(place, slice):
            return self._found[place]
        part = copy(self)
        part._found = self._found[place]  # noqa: SLF001
        return part

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Iterator[T]:
        return iter(self._found)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f'<td style="text-align: right">{value:,.4g}</td>'
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align: right">{value:,}</td>'
    return f'<td style="text-align: left">{html.escape("" if value is None else str(value))}</td>'


def page(head: str, *tables: tuple[str, Table]) -> str:
    """HTML of a result: one sentence, then the tables that have rows, each with a title."""
    parts = [f"<p><b>{html.escape(head)}</b></p>"]
    parts += [f"<p>{html.escape(title)}</p>{table.html()}" for title, table in tables if table.rows]
    return "".join(parts)


def chosen(name: str, known: Sequence[str]) -> str:
    """``name``, where it is one of the tables.

    Raises
    ------
    InputError
        It is none of them.
    """
    if name in known:
        return name
    near = nearest(name, known)
    cure = f"Did you mean {near}?" if near else f"Choose from {', '.join(known)}"
    raise InputError(f"there is no table {name!r}", field="table", cure=cure)
