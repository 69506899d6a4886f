"""How times grow with the number of nodes."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import EntryDoc, SlopeDoc
from kai_solver.lab.bench.figures import figure_of
from kai_solver.lab.bench.measure import Run
from kai_solver.pictures import COLOURS, GREY, Data, draw, ticks


@dataclass(frozen=True, slots=True)
class Line:
    """Times over nodes, and the straight line through their logarithms: log time = slope log nodes + offset."""

    name: str
    nodes: tuple[int, ...]
    seconds: tuple[float, ...]
    slope: float
    offset: float
    limit: float

    @property
    def last_slope(self) -> float:
        """Between the two largest sizes alone: there a fixed cost flatters least."""
        (n, m), (s, t) = self.nodes[-2:], self.seconds[-2:]
        return math.log(t / s) / math.log(m / n)


def fitted(slope: SlopeDoc, runs: Sequence[Run]) -> Line | None:
    """The line of a slope; None where fewer than two sizes were measured. Of several seeds, the median counts."""
    points: dict[int, list[float]] = {}
    for entry in slope.entries:
        asked = (entry, slope.model, slope.budget)
        of = [run for run in runs if (run.record.instance, run.record.model, run.record.budget_s) == asked]
        value = figure_of(slope.figure, of)
        if of and value:
            points.setdefault(of[0].record.nodes, []).append(value)
    if len(points) < 2:
        return None
    nodes = sorted(points)
    seconds = [median(points[n]) for n in nodes]
    gradient, offset = np.polyfit(np.log(nodes), np.log(seconds), 1)
    return Line(slope.name, tuple(nodes), tuple(seconds), float(gradient), float(offset), slope.limit)


def peer_lines(
    slope: SlopeDoc, runs: Sequence[Run], entries: Sequence[EntryDoc]
) -> dict[str, tuple[tuple[int, float], ...]]:
    """By name, nodes and seconds of other schedulers on the entries of a slope that were measured."""
    nodes = {run.record.instance: run.record.nodes for run in runs}
    found: dict[str, list[tuple[int, float]]] = {}
    for entry in entries:
        if entry.name in slope.entries and entry.name in nodes:
            for point in entry.peer_points:
                found.setdefault(point.name, []).append((nodes[entry.name], point.seconds))
    return {name: tuple(sorted(points)) for name, points in found.items()}


def plot(lines: Sequence[Line], peers: Mapping[str, Sequence[tuple[int, float]]], path: Path) -> None:
    """Draw the lines on logarithmic axes, with the fitted slopes, the steepest that is allowed, and ``peers`` beside.

    Raises
    ------
    InputError
        There is nothing to draw, or as `pictures.draw`.
    """
    if not lines:
        raise InputError("no size was measured", field="--plot", cure="Give a set with slopes")
    title = _title(lines[0], peers)

    def content(figure: Any) -> None:
        axes = figure.subplots()
        for line, colour in zip(lines, COLOURS, strict=False):
            _draw_line(axes, line, colour)
        for (name, points), colour in zip(peers.items(), COLOURS[5:], strict=False):
            axes.plot(*zip(*points, strict=True), "s-", color=colour, label=name)
            _label_last(axes, points, colour)
        _axes(axes, [*(point for line in lines for point in _points(line)), *(p for of in peers.values() for p in of)])
        axes.set_title(title)
        figure.legend(loc="outside lower center", ncols=3, fontsize=10)

    ours = [(line.name, *point) for line in lines for point in _points(line)]
    rows = [*ours, *((name, *point) for name, points in peers.items() for point in points)]
    draw(path, (8.4, 5.4), title.replace("\n", "; "), content, Data(("series", "nodes", "seconds"), rows))


def _title(line: Line, peers: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    said = [f"{line.name}: {_span(_points(line))}"]
    return "\n".join([*said, *(f"{name}: {_span(points)}" for name, points in peers.items())])


def _span(points: Sequence[tuple[int, float]]) -> str:
    """From the smallest to the largest: ``1.3 s on 500 nodes, 7.1 s on 5,000``."""
    (n, s), (m, t) = points[0], points[-1]
    return f"{s:.3g} s on {n:,} nodes" + (f", {t:.3g} s on {m:,}" if m > n else "")


def _points(line: Line) -> list[tuple[int, float]]:
    return list(zip(line.nodes, line.seconds, strict=True))


def _draw_line(axes: Any, line: Line, colour: str) -> None:
    """Measured points, the straight line through them, the steepest allowed, and the last point's value."""
    nodes = np.array(line.nodes, dtype=np.float64)
    axes.plot(nodes, line.seconds, "o-", color=colour, label=f"{line.name}: slope {line.slope:.2f}")
    axes.plot(nodes, np.exp(line.offset) * nodes**line.slope, "--", color=colour, linewidth=1.0)
    steepest = line.seconds[0] * (nodes / nodes[0]) ** line.limit
    axes.plot(nodes, steepest, ":", color=GREY, linewidth=1.5, label=f"limit: slope {line.limit:g}")
    _label_last(axes, _points(line), colour)


def _label_last(axes: Any, points: Sequence[tuple[int, float]], colour: str) -> None:
    nodes, seconds = points[-1]
    axes.annotate(f"{seconds:.3g} s", (nodes, seconds), (0, 8), textcoords="offset points", ha="center", color=colour)


def _axes(axes: Any, points: Sequence[tuple[int, float]]) -> None:
    """Logarithmic, with all sizes and round seconds as ticks."""
    sizes = sorted({nodes for nodes, _ in points})
    least, most = min(s for _, s in points) / 1.6, max(s for _, s in points) * 1.8
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds of one cycle", ylim=(least, most))
    axes.set_xlim(sizes[0] / 1.2, sizes[-1] * 1.2)
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    marks = ticks(least, most)
    axes.set_yticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.grid(visible=True)
