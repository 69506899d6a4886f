"""How times grow with the number of nodes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import numpy as np

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import SlopeDoc
from kai_solver.lab.bench.figures import figure_of
from kai_solver.lab.bench.measure import Run


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
        of = [r for r in runs if (r.instance, r.model, r.budget_s) == (entry, slope.model, slope.budget)]
        value = figure_of(slope.figure, of)
        if of and value:
            points.setdefault(of[0].nodes, []).append(value)
    if len(points) < 2:
        return None
    nodes = sorted(points)
    seconds = [median(points[n]) for n in nodes]
    gradient, offset = np.polyfit(np.log(nodes), np.log(seconds), 1)
    return Line(slope.name, tuple(nodes), tuple(seconds), float(gradient), float(offset), slope.limit)


def plot(lines: Sequence[Line], path: Path) -> None:
    """Draw the lines on logarithmic axes, with the fitted slopes and the steepest that is allowed.

    Raises
    ------
    InputError
        There is nothing to draw, or matplotlib is not installed.
    """
    if not lines:
        raise InputError("no size was measured", field="--plot", cure="Give a set with slopes")
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        cure = "Install the extra: pip install kai-solver[experiments]"
        raise InputError("needs matplotlib", field="--plot", cure=cure) from error
    figure = Figure(figsize=(7, 5))
    axes = figure.subplots()
    for line in lines:
        nodes = np.array(line.nodes, dtype=np.float64)
        (drawn,) = axes.plot(nodes, line.seconds, "o", label=f"{line.name}: slope {line.slope:.2f}")
        axes.plot(nodes, np.exp(line.offset) * nodes**line.slope, "-", color=drawn.get_color())
    first = lines[0]
    steepest = first.seconds[0] * (np.array(first.nodes) / first.nodes[0]) ** first.limit
    axes.plot(first.nodes, steepest, ":", color="gray", label=f"limit: slope {first.limit:g}")
    axes.set(xscale="log", yscale="log", xlabel="nodes", ylabel="seconds", title="Time over nodes at equal load")
    axes.set_xticks(first.nodes, [f"{n:,}" for n in first.nodes])
    axes.minorticks_off()
    axes.grid(visible=True, alpha=0.3)
    axes.legend()
    with rc_context({"svg.hashsalt": first.name}):  # the same run gives the same file
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
