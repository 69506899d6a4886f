"""Plan and bound over time: what one model reaches on one instance with less and with more time."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import PeerPointDoc
from kai_solver.lab.bench.figures import ADMISSION, WORK, kind_sum
from kai_solver.lab.bench.measure import Run
from kai_solver.pictures import COLOURS, GREY, INK, Data, ticks
from kai_solver.pictures import draw as draw_figure

PANELS = {ADMISSION: "gangs pending", WORK[0]: "GPU-seconds of work evicted"}
"""What is drawn of each instance, by kind of stage."""


@dataclass(frozen=True, slots=True)
class Point:
    """Medians over the runs of one budget: seconds until the plan, value and bound by kind of stage."""

    seconds: float
    values: Mapping[str, float]
    bounds: Mapping[str, float]


def course(runs: Sequence[Run], instance: str, model: str) -> tuple[Point, ...]:
    """The points of one instance, the shortest budget first; empty where it was not measured."""
    found: list[Point] = []
    records = [run.record for run in runs if (run.record.instance, run.record.model) == (instance, model)]
    for budget in sorted({record.budget_s for record in records}):
        of = [record for record in records if record.budget_s == budget]
        sums = {kind: [kind_sum(record.stages, kind) for record in of] for kind in PANELS}
        found.append(
            Point(
                median(record.solve_s for record in of),
                {kind: median(value for value, _ in sums[kind]) for kind in PANELS},
                {kind: median(bound for _, bound in sums[kind]) for kind in PANELS},
            )
        )
    return tuple(found)


def draw(
    courses: Mapping[str, Mapping[str, Sequence[Point]]], peers: Mapping[str, Sequence[PeerPointDoc]], path: Path
) -> None:
    """Draw a column for each instance: gangs pending above, evicted work below, each with its bound dashed.

    Parameters
    ----------
    courses
        By instance, then by what was measured (a version, a model), its points.
    peers
        By instance, what others reached.

    Raises
    ------
    InputError
        There is nothing to draw, or as `pictures.draw`.
    """
    drawn = {name: lines for name, lines in courses.items() if any(lines.values())}
    if not drawn:
        raise InputError("no instance was measured", field="--course", cure="Give a set, or a stored run of it")

    def content(figure: Any) -> None:
        grid = figure.subplots(len(PANELS), len(drawn), squeeze=False, sharex="col")
        for column, (name, lines) in enumerate(drawn.items()):
            for row, kind in enumerate(PANELS):
                _panel(grid[row][column], name, kind, lines, peers.get(name, ()))
            grid[0][column].legend(fontsize=9.5, handlelength=3.2)
            grid[-1][column].set(xlabel="seconds until the plan")

    data = Data(("instance", "series", "seconds", "stage", "value", "bound"), _rows(drawn, peers))
    draw_figure(path, (6.2 * len(drawn), 8.2), f"Plan and bound over time: {', '.join(drawn)}", content, data)


def _panel(
    axes: Any, name: str, kind: str, lines: Mapping[str, Sequence[Point]], peers: Sequence[PeerPointDoc]
) -> None:
    """One stage of one instance: values as lines, bounds dashed, other schedulers as stars."""
    times = [point.seconds for points in lines.values() for point in points] + [peer.seconds for peer in peers]
    for number, (said, points) in enumerate(lines.items()):
        seconds = [point.seconds for point in points]
        style = {"color": (GREY, *COLOURS)[number + (len(lines) == 1)], "marker": "os^v"[number % 4]}
        axes.plot(seconds, [point.values[kind] for point in points], "-", label=f"plan, {said}", **style)
        axes.plot(seconds, [point.bounds[kind] for point in points], "--", label=f"bound, {said}", **style)
    for peer in peers:
        reached = _reached(peer, kind)
        label = f"{peer.name}, {peer.seconds:g} s"
        axes.plot([peer.seconds], [reached], "*", color=INK, markersize=13, label=label)
        at = {"textcoords": "offset points", "ha": "right", "fontsize": 9.5}
        axes.annotate(f"{peer.name} {_short(reached)}", (peer.seconds, reached), (-8, 6), **at)
    last = [points[-1].values[kind] for points in lines.values() if points][-1]
    others = "".join(f"; {peer.name} {_short(_reached(peer, kind))}" for peer in peers)
    axes.set_title(f"{name}: {_short(last)} {PANELS[kind]}{others}", fontsize=12)
    least, most = min(times) / 1.3, max(times) * 1.3
    marks = ticks(least, most)
    axes.set(xscale="log", ylabel=PANELS[kind], xlim=(least, most))
    axes.set_xticks(marks, [f"{mark:g}" for mark in marks])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(lambda value, _: _short(value))
    axes.set_ylim(bottom=0)
    axes.grid(visible=True)


def _reached(peer: PeerPointDoc, kind: str) -> float:
    return {ADMISSION: float(peer.pending), WORK[0]: peer.evicted_work}[kind]


def _short(value: float) -> str:
    """``65``, ``503,465``, ``27.6 M``."""
    return f"{value / 1e6:.3g} M" if value >= 1e6 else f"{value:,.0f}"


def _rows(
    courses: Mapping[str, Mapping[str, Sequence[Point]]], peers: Mapping[str, Sequence[PeerPointDoc]]
) -> Iterator[tuple[object, ...]]:
    for name, lines in courses.items():
        for kind in PANELS:
            for said, points in lines.items():
                for point in points:
                    yield (
                        name,
                        said,
                        f"{point.seconds:.3f}",
                        kind,
                        f"{point.values[kind]:.15g}",
                        f"{point.bounds[kind]:.15g}",
                    )
            for peer in peers.get(name, ()):
                yield name, peer.name, f"{peer.seconds:g}", kind, f"{_reached(peer, kind):.15g}", ""
