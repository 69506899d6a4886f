"""Figures as files, by matplotlib: SVG and PNG of each, and its data as CSV."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kai_solver.errors import InputError
from kai_solver.lab.reports.build import Report
from kai_solver.lab.reports.figure import Figure, Panel, Series, marks
from kai_solver.lab.reports.static_gantt import write_gantt
from kai_solver.pictures import COLOURS, GREY, Data, draw, ticks

_DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)), (0, (9, 2)), (0, (9, 1.5, 1, 1.5)))
_MARKERS = ("o", "D", "s", "^", "x", "+")
_HATCHES = ("", "///", "xxx", "...", "---", "|||")
_FINE = 0.03
"""Shares below this have a digit after the point."""
_WIDTH_IN, _ROW_IN, _LEGEND_IN = 8.4, 2.7, 0.5
_COLUMN_IN = {1: 8.4, 2: 5.0}
_NARROW_IN = 3.6
"""A column, where there are more than two: in print the text of a wide figure would be too small."""
_LEGEND_LETTERS = 75
"""In one line of a legend."""
_TICK_LETTERS = 40
"""Of all names at one axis; more are written aslant."""


def write_figures(report: Report, folder: Path) -> list[Path]:
    """Write each figure as ``NAME.svg`` and ``NAME.png`` with its data as ``NAME.csv``; return the drawings.

    Raises
    ------
    InputError
        The folder cannot be written, or matplotlib is not installed.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InputError(f"cannot be made: {reason}", file=str(folder), cure="Name a writable place") from None
    written: list[Path] = []
    for number, section in enumerate(report.sections, 1):
        for figure in section.figures:
            name = figure.name if len(report.sections) == 1 else f"{number}-{figure.name}"
            written += _write(figure, folder / name)
        if any(chart.bars or chart.down for chart in section.charts):
            name = "gantt" if len(report.sections) == 1 else f"{number}-gantt"
            written += write_gantt(section.charts, folder / name)
    return written


def _write(figure: Figure, place: Path) -> list[Path]:
    rows = -(-len(figure.panels) // figure.columns)
    width = max(_WIDTH_IN, _COLUMN_IN.get(figure.columns, _NARROW_IN) * figure.columns)
    size = (width, _ROW_IN * rows + _LEGEND_IN + (1.0 if rows == 1 else 0.0))

    def content(drawing: Any) -> None:
        grid = drawing.subplots(rows, figure.columns, squeeze=False)
        drawing.suptitle(figure.title, x=0.01, ha="left")
        handles: dict[str, Any] = {}
        for index, axes in enumerate(grid.flat):
            if index >= len(figure.panels):
                axes.set_visible(False)
                continue
            _fill(axes, figure.panels[index], handles)
        if len(handles) > 1:
            longest = max(map(len, handles)) + 6
            columns = max(1, min(len(handles), _LEGEND_LETTERS // longest))
            drawing.legend(list(handles.values()), list(handles), loc="outside lower left", ncols=columns, fontsize=10)

    columns = ("panel", "series", "x", "y", "text")
    files = [place.with_name(f"{place.name}.svg"), place.with_name(f"{place.name}.png")]
    draw(files[0], size, figure.title, content, Data(columns, marks(figure)), also=files[1:])
    return files


def _fill(axes: Any, panel: Panel, handles: dict[str, Any]) -> None:
    _set_up(axes, panel)
    _draw_series(axes, panel, handles)
    if panel.has_diagonal:
        low = max(axes.get_xlim()[0], axes.get_ylim()[0])
        high = min(axes.get_xlim()[1], axes.get_ylim()[1])
        axes.plot([low, high], [low, high], color=GREY, linewidth=1, linestyle="--", zorder=0)
    if panel.is_share:
        most = max((value for series in panel.series for value in series.y if value is not None), default=1.0)
        axes.yaxis.set_major_formatter("{x:.1%}" if 0 < most < _FINE else "{x:.0%}")
    if panel.is_signed:
        axes.axhline(0, color=GREY, linewidth=1, zorder=0)
    elif not panel.is_log_y:
        axes.set_ylim(bottom=panel.least, top=panel.highest)


def _set_up(axes: Any, panel: Panel) -> None:
    if panel.title:
        axes.set_title(panel.title, fontsize=11)
    axes.set_xlabel(panel.x_label)
    axes.set_ylabel(panel.y_text)
    axes.grid(visible=True, axis="y")
    if panel.is_log_x:
        _make_logarithmic(axes.xaxis, [x for series in panel.series for x in series.x])
    if panel.is_log_y:
        _make_logarithmic(axes.yaxis, [y for series in panel.series for y in series.y])
    if panel.counts_x:
        axes.xaxis.get_major_locator().set_params(integer=True)
    if all(series.kind in ("line", "step", "area") for series in panel.series):
        axes.margins(x=0.01)
    if panel.names:
        _name_ticks(axes, panel.names)
        axes.set_xlim(-0.5, len(panel.names) - 0.5)


def _draw_series(axes: Any, panel: Panel, handles: dict[str, Any]) -> None:
    bars = [series for series in panel.series if series.kind == "bars"]
    below: dict[str, float] = {}
    for series in panel.series:
        if series.kind == "bars":
            handle = _bars(axes, series, bars.index(series), len(bars))
        elif series.kind == "stack":
            handle = _stack(axes, series, below)
        else:
            handle = _marks(axes, series, panel.names)
        handles.setdefault(series.name, handle)


def _make_logarithmic(axis: Any, values: Sequence[float | str | None]) -> None:
    """A logarithmic axis with round numbers that are written out: 0.1, 1, 10."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullFormatter

    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    numbers = [float(value) for value in values if value is not None and float(value) > 0]
    if numbers:
        axis.set_major_locator(FixedLocator(ticks(min(numbers), max(numbers))))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
    axis.set_minor_formatter(NullFormatter())


def _marks(axes: Any, series: Series, names: Sequence[str]) -> Any:
    colour = COLOURS[series.style % len(COLOURS)]
    y = [float("nan") if value is None else value for value in series.y]
    if series.kind == "points":
        marker = _MARKERS[series.style % len(_MARKERS)]
        x = [names.index(str(name)) for name in series.x] if names else series.x
        return axes.scatter(x, y, color=colour, marker=marker, s=28, alpha=0.8)
    if series.kind == "area":
        return axes.fill_between(series.x, y, step="post", color=colour, alpha=0.3, linewidth=0)
    style = "steps-post" if series.kind == "step" else "default"
    dash = _DASHES[series.style % len(_DASHES)]
    return axes.plot(series.x, y, color=colour, linestyle=dash, drawstyle=style, linewidth=1.6)[0]


def _bars(axes: Any, series: Series, index: int, of: int) -> Any:
    width = 0.8 / of
    at = [place - 0.4 + width * (index + 0.5) for place in range(len(series.x))]
    heights = [0.0 if value is None else value for value in series.y]
    _name_ticks(axes, series.x)
    return axes.bar(at, heights, width, **_filled(series))


def _stack(axes: Any, series: Series, below: dict[str, float]) -> Any:
    names = [str(name) for name in series.x]
    heights = [0.0 if value is None else value for value in series.y]
    bottoms = [below.get(name, 0.0) for name in names]
    for name, height in zip(names, heights, strict=True):
        below[name] = below.get(name, 0.0) + height
    _name_ticks(axes, series.x)
    bars = axes.bar(range(len(names)), heights, 0.6, bottom=bottoms, **_filled(series))
    for bar in bars:
        bar.sticky_edges.y[:] = [0]  # else one of no height leaves no room above
    return bars


def _name_ticks(axes: Any, names: Sequence[float | str]) -> None:
    texts = [str(name) for name in names]
    if sum(map(len, texts)) <= _TICK_LETTERS:
        axes.set_xticks(range(len(names)), texts)
    else:
        axes.set_xticks(range(len(names)), texts, rotation=30, ha="right", rotation_mode="anchor")


def _filled(series: Series) -> dict[str, Any]:
    colour = COLOURS[series.style % len(COLOURS)]
    return {"color": colour, "hatch": _HATCHES[series.style % len(_HATCHES)], "edgecolor": "white"}
