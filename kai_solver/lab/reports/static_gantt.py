"""The Gantt chart as a file, by matplotlib: all nodes and all times at once, coloured by queue."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from kai_solver.lab.reports.gantt import Gantt, time_unit
from kai_solver.pictures import COLOURS, INK, Data, draw

TITLE = "Which queue's pods were on which GPU"
_WIDTH_IN, _ROW_IN, _HEAD_IN = 8.4, 0.26, 0.9
_LEAST_IN, _MOST_IN = 1.6, 7.0
_NAMED_ROWS = 25
_MOST_SHAPES = 2000
"""In one panel; more are drawn as a picture inside the SVG, since viewers are slow with them."""
_HATCHED_ROWS = 40
"""With more rows bars are too small for hatches."""
_HATCHES = ("", "////", "xxxx", "....", "----", "||||")
_MARGIN, _GAP = 0.06, 0.04
"""Of a row, and of a lane: free space on either side."""
_COLUMNS = ("replay", "pod", "gang", "queue", "node", "devices", "gpus", "start_s", "end_s", "first_lane", "last_lane")


def write_gantt(charts: Sequence[Gantt], place: Path) -> list[Path]:
    """Draw the charts below each other, as SVG and PNG, with the bars as CSV; return the drawings.

    Raises
    ------
    InputError
        As `pictures.draw`.
    """
    queues = sorted({queue for chart in charts for queue in chart.stays["queue"]})
    heights = [min(_MOST_IN, max(_LEAST_IN, _ROW_IN * len(chart.nodes))) + _HEAD_IN for chart in charts]

    def content(drawing: Any) -> None:
        grid = drawing.subplots(len(charts), 1, squeeze=False, height_ratios=heights)
        drawing.suptitle(TITLE, x=0.01, ha="left")
        for chart, axes in zip(charts, grid.flat, strict=True):
            _fill(axes, chart, queues)
            if len(charts) > 1:
                axes.set_title(chart.label, fontsize=11)
        handles = _legend(queues, charts)
        drawing.legend(handles=handles, loc="outside lower left", ncols=min(4, len(handles)), fontsize=10)

    files = [place.with_name(f"{place.name}.svg"), place.with_name(f"{place.name}.png")]
    size = (_WIDTH_IN, sum(heights) + 0.5 + 0.25 * (len(queues) // 4))
    draw(files[0], size, TITLE, content, Data(_COLUMNS, gantt_rows(charts)), also=files[1:])
    return files


def gantt_rows(charts: Sequence[Gantt]) -> Iterator[tuple[object, ...]]:
    """A row for each bar: which pod it is of, and which lanes of its node it takes."""
    for chart in charts:
        for bar in chart.bars:
            stay = (chart.stays[name][bar.stay] for name in ("pod", "job", "queue", "node", "devices", "gpus"))
            times = (chart.stays[name][bar.stay] for name in ("start_s", "end_s"))
            yield chart.label, *stay, *times, round(bar.low, 3), round(bar.high, 3)


def _fill(axes: Any, chart: Gantt, queues: Sequence[str]) -> None:
    from matplotlib.collections import PolyCollection

    rows = {node: row for row, node in enumerate(chart.nodes)}
    is_fine = len(rows) > _HATCHED_ROWS
    gap = 0.0 if is_fine else _GAP
    time, unit_s = time_unit(chart.end_s)
    shapes: dict[str, list[Sequence[tuple[float, float]]]] = {queue: [] for queue in queues}
    for bar in chart.bars:
        node, queue, start, end = (chart.stays[name][bar.stay] for name in ("node", "queue", "start_s", "end_s"))
        row, lanes = rows[node], chart.lanes[rows[node]]
        top, bottom = (_height(row, lane, lanes) for lane in (bar.low + gap, bar.high - gap))
        shapes[queue].append(_rectangle(start / unit_s, end / unit_s, top, bottom))
    is_picture = len(chart.bars) > _MOST_SHAPES
    for number, queue in enumerate(queues):
        # Blended edges of thin bars would look like queues of paler colours.
        style = _style(number, is_hatched=not is_fine) | {"antialiased": not is_fine, "rasterized": is_picture}
        axes.add_collection(PolyCollection(shapes[queue], linewidth=0, **style))
    down = [
        _rectangle(start / unit_s, end / unit_s, row + _MARGIN, row + 1 - _MARGIN) for row, start, end in chart.down
    ]
    axes.add_collection(PolyCollection(down, linewidth=0, facecolor=INK))
    axes.set_xlim(0, chart.end_s / unit_s if chart.end_s else 1)
    axes.set_ylim(max(1, len(rows)), 0)
    step = -(-len(rows) // _NAMED_ROWS) or 1
    named = range(0, len(rows), step)
    axes.set_yticks([row + 0.5 for row in named], [chart.nodes[row] for row in named], fontsize=8)
    axes.set_xlabel(time)
    axes.set_ylabel("nodes" if step == 1 else f"nodes (each {step}th has its name)")


def _height(row: int, lane: float, lanes: int) -> float:
    return row + _MARGIN + (1 - 2 * _MARGIN) * lane / lanes


def _rectangle(left: float, right: float, top: float, bottom: float) -> Sequence[tuple[float, float]]:
    return (left, top), (right, top), (right, bottom), (left, bottom)


def _style(number: int, *, is_hatched: bool) -> dict[str, Any]:
    hatch = _HATCHES[number % len(_HATCHES)] if is_hatched else None
    return {"facecolor": COLOURS[number % len(COLOURS)], "hatch": hatch, "edgecolor": "white"}


def _legend(queues: Sequence[str], charts: Sequence[Gantt]) -> list[Any]:
    from matplotlib.patches import Patch

    is_hatched = all(len(chart.nodes) <= _HATCHED_ROWS for chart in charts)
    handles = [Patch(label=queue, **_style(number, is_hatched=is_hatched)) for number, queue in enumerate(queues)]
    if any(chart.down for chart in charts):
        handles.append(Patch(label="node down", facecolor=INK))
    return handles
