"""What a figure shows, apart from how it is drawn: the page draws it by plotly, files by matplotlib."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from kai_solver.lab.reports.gantt import Gantt

Kind = Literal["line", "step", "area", "points", "bars", "stack"]
"""``step``: a value holds until the next one. ``area``: the same, filled. ``stack``: bars on top of each other."""


@dataclass(frozen=True, slots=True)
class Series:
    """One line, one set of points or of bars.

    Attributes
    ----------
    x, y
        As many of the one as of the other; ``y`` None is a gap. ``x`` are names where the panel has bars.
    style
        Index of its colour, of its dash, of its marker and of its hatch, so that colour is never all that tells.
    texts
        What a mark of it says when the pointer is on it, beside its numbers; empty, or one for each mark.
    """

    name: str
    x: Sequence[float | str]
    y: Sequence[float | None]
    kind: Kind = "line"
    style: int = 0
    texts: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Panel:
    """One pair of axes.

    Attributes
    ----------
    is_share
        Values of ``y`` are shares, shown as percent.
    has_diagonal
        A line where x = y is drawn: points below it are better in y.
    most
        Upper end of ``y``; None: by its values.
    least
        Lower end of ``y``, in place of 0, where all values lie far from 0; the axis says so.
    is_signed
        Values of ``y`` lie on both sides of 0, which gets a line.
    names
        Where ``x`` are names and series are points: their order on the axis.
    """

    title: str
    x_label: str
    y_label: str
    series: Sequence[Series]
    is_log_x: bool = False
    is_log_y: bool = False
    is_share: bool = False
    has_diagonal: bool = False
    most: float | None = None
    least: float = 0.0
    is_signed: bool = False
    names: Sequence[str] = ()

    @property
    def counts_x(self) -> bool:
        """Whether all values of ``x`` are whole numbers on a plain axis: between them there is nothing to name."""
        values = [value for series in self.series for value in series.x]
        if self.is_log_x or self.names or not values:
            return False
        return all(isinstance(value, int | float) and float(value).is_integer() for value in values)

    @property
    def y_text(self) -> str:
        """What stands at the axis of ``y``."""
        return f"{self.y_label}\n(axis begins at {self.least:g})" if self.least else self.y_label

    @property
    def highest(self) -> float | None:
        """Upper end of ``y`` where it is not by the values: as asked for, or 1 where all are 0."""
        if self.most is not None or self.is_log_y or self.is_signed:
            return self.most
        return None if any(value for series in self.series for value in series.y) else 1.0

    @property
    def has_names(self) -> bool:
        """Whether ``x`` are names."""
        return bool(self.names) or any(series.kind in ("bars", "stack") for series in self.series)


@dataclass(frozen=True, slots=True)
class Figure:
    """Panels in rows of ``columns``, under one title and one legend.

    Attributes
    ----------
    name
        Of its files, and its address in the page.
    text
        What is shown, and how to read it, in a sentence or two.
    """

    name: str
    title: str
    text: str
    panels: Sequence[Panel]
    columns: int = 1


@dataclass(frozen=True, slots=True)
class Table:
    """A few rows of text under column heads; the first column names the row."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True, slots=True)
class Section:
    """Part of a report: verdicts first, then tables, figures and Gantt charts, which have one set of filters."""

    title: str
    verdicts: Sequence[str] = ()
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    charts: Sequence[Gantt] = ()


def with_common_end(series: Sequence[Series]) -> list[Series]:
    """Lines of shares so far, each drawn on at its last value to where the longest one ends."""
    end = max((float(one.x[-1]) for one in series if len(one.x)), default=0.0)
    return [
        replace(one, x=[*one.x, end], y=[*one.y, one.y[-1]]) if len(one.x) and float(one.x[-1]) < end else one
        for one in series
    ]


def is_empty(figure: Figure) -> bool:
    """Whether no panel has a mark."""
    return not any(len(series.x) for panel in figure.panels for series in panel.series)


def marks(figure: Figure) -> Iterator[tuple[str, str, float | str, float | None, str]]:
    """Panel (its title, and what its ``y`` are), series, x, y and text of every mark: the data behind the figure."""
    for panel in figure.panels:
        name = f"{panel.title}: {panel.y_label}" if panel.title else panel.y_label
        for series in panel.series:
            texts = series.texts or [""] * len(series.x)
            for x, y, text in zip(series.x, series.y, texts, strict=True):
                yield name, series.name, x, y, text
