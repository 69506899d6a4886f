"""Plan and bound over time: what one model reaches on one instance with less and with more time."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import PeerPointDoc
from kai_solver.lab.bench.figures import ADMISSION, WORK, kind_sum
from kai_solver.lab.bench.measure import Run

PANELS = {ADMISSION: "gangs pending", WORK[0]: "evicted work"}
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
    for budget in sorted({run.budget_s for run in runs if (run.instance, run.model) == (instance, model)}):
        of = [run for run in runs if (run.instance, run.model, run.budget_s) == (instance, model, budget)]
        sums = {kind: [kind_sum(run.stages, kind) for run in of] for kind in PANELS}
        found.append(
            Point(
                median(run.decide_s for run in of),
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
        There is nothing to draw, or matplotlib is not installed.
    """
    drawn = {name: lines for name, lines in courses.items() if any(lines.values())}
    if not drawn:
        raise InputError("no instance was measured", field="--course", cure="Give a set, or a stored run of it")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        cure = "Install the extra: pip install kai-solver[experiments]"
        raise InputError("needs matplotlib", field="--course", cure=cure) from error
    figure = Figure(figsize=(5.5 * len(drawn), 7.5), layout="constrained")
    grid = figure.subplots(len(PANELS), len(drawn), squeeze=False, sharex="col")
    for column, (name, lines) in enumerate(drawn.items()):
        for row, (kind, label) in enumerate(PANELS.items()):
            axes = grid[row][column]
            for number, (said, points) in enumerate(lines.items()):
                seconds = [point.seconds for point in points]
                style = {"color": f"C{number}", "marker": "os^v"[number % 4]}
                axes.plot(seconds, [point.values[kind] for point in points], "-", label=f"plan, {said}", **style)
                axes.plot(seconds, [point.bounds[kind] for point in points], "--", label=f"bound, {said}", **style)
            for peer in peers.get(name, ()):
                reached = {ADMISSION: float(peer.pending), WORK[0]: peer.evicted_work}[kind]
                axes.plot([peer.seconds], [reached], "k*", markersize=12, label=f"{peer.name}, {peer.seconds:g} s")
            axes.set(xscale="log", ylabel=label, title=name if row == 0 else "")
            axes.set_ylim(bottom=0)
            axes.grid(visible=True, alpha=0.3)
            if row == 0:
                axes.legend(fontsize="small")
        grid[-1][column].set(xlabel="seconds")
    with rc_context({"svg.hashsalt": "course"}):  # the same run gives the same file
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
