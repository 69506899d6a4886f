"""Plots of an experiment, three for each trace: allocation, fragmentation, failed pods by size. Needs matplotlib."""

import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kai_solver.lab.experiments.published import PUBLISHED
from kai_solver.lab.experiments.report import SIZES, Bin, Run
from kai_solver.pictures import COLOURS, Data, draw

_FROM = 80
"""Percent arrived from which curves are drawn; below, nearly every policy allocates what arrives."""
_FULL = 100
_SIZE = (8.4, 5.2)
_OF_SIZES = {"cpu": "no GPU", "share": "a part of one"}

ByPolicy = Mapping[str, Sequence[Run]]


def has_matplotlib() -> bool:
    """Whether matplotlib is installed (``pip install 'kai-solver[experiments]'``)."""
    return importlib.util.find_spec("matplotlib") is not None


def write_plots(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write SVG files into ``folder``, means over seeds, each with its data as CSV beside it; return the SVG files.

    Raises
    ------
    InputError
        As `pictures.draw`.
    """
    found = []
    for trace in sorted({run.spec.trace for run in runs}):
        labels = sorted({run.spec.label for run in runs if run.spec.trace == trace})
        policies = {
            label: [run for run in runs if (run.spec.trace, run.spec.label) == (trace, label)] for label in labels
        }
        found += [
            _allocation(trace, policies, folder / f"allocation_{trace}.svg"),
            _fragmentation(trace, policies, folder / f"fragmentation_{trace}.svg"),
            _failed(trace, policies, folder / f"failed_{trace}.svg"),
        ]
    return found


def _allocation(trace: str, policies: ByPolicy, path: Path) -> Path:
    """Curves of ours, and what is published: points with twice the standard deviation."""
    published = {name: PUBLISHED[trace, name] for name in policies if (trace, name) in PUBLISHED}
    title = f"openb, trace {trace}: GPUs in use when as many are asked for as there are\n{_at_full(policies)}"

    def content(figure: Any) -> None:
        axes = _axes(figure, title, "GPUs allocated, % of all")
        for (label, runs), colour in zip(policies.items(), COLOURS, strict=False):
            axes.plot(*_curve(runs, lambda row: row.allocation), color=colour, label=label)
            points = published.get(label, ())
            if points:
                at, means = [point.arrived for point in points], [point.allocation for point in points]
                spread = [2 * point.deviation for point in points]
                style = {
                    "fmt": "o",
                    "color": colour,
                    "markerfacecolor": "white",
                    "markersize": 5,
                    "capsize": 3,
                    "elinewidth": 1,
                }
                axes.errorbar(at, means, spread, label=f"{label}, published", **style)
        _legend(figure)

    rows = [(label, *point) for label, runs in policies.items() for point in _points(runs, lambda row: row.allocation)]
    rows += [(f"{name}, published", p.arrived, p.allocation) for name, points in published.items() for p in points]
    draw(path, _SIZE, title.replace("\n", "; "), content, Data(("policy", "arrived", "allocation"), rows))
    return path


def _fragmentation(trace: str, policies: ByPolicy, path: Path) -> Path:
    title = f"openb, trace {trace}: free GPUs that the usual pods cannot use"

    def content(figure: Any) -> None:
        axes = _axes(figure, title, "fragmented GPUs, % of all")
        for (label, runs), colour in zip(policies.items(), COLOURS, strict=False):
            axes.plot(*_curve(runs, lambda row: row.fragmentation), color=colour, label=label)
        axes.set_ylim(bottom=0)
        _legend(figure)

    rows = [(label, *p) for label, runs in policies.items() for p in _points(runs, lambda row: row.fragmentation)]
    draw(path, _SIZE, title, content, Data(("policy", "arrived", "fragmentation"), rows))
    return path


def _failed(trace: str, policies: ByPolicy, path: Path) -> Path:
    """Bars by what a pod asks for."""
    title = f"openb, trace {trace}: pods that found no place, by what they ask for"
    shares = {label: [_failed_share(runs, size) for size in SIZES] for label, runs in policies.items()}
    width = 0.8 / max(len(policies), 1)

    def content(figure: Any) -> None:
        axes = _axes(figure, title, "pods that failed in the whole run, %")
        for number, (label, colour) in enumerate(zip(policies, COLOURS, strict=False)):
            places = [i + width * number for i in range(len(SIZES))]
            bars = axes.bar(places, shares[label], width, color=colour, label=label)
            axes.bar_label(bars, [f"{share:.0f}" for share in shares[label]], fontsize=8.5, padding=1)
        names = [_OF_SIZES.get(size, size) for size in SIZES]
        axes.set_xticks([i + 0.4 - width / 2 for i in range(len(SIZES))], names)
        axes.set_xlabel("GPUs of the pod")
        axes.grid(visible=False, axis="x")
        _legend(figure)

    rows = [
        (label, size, f"{share:.4f}") for label in policies for size, share in zip(SIZES, shares[label], strict=True)
    ]
    draw(path, _SIZE, title, content, Data(("policy", "gpus", "failed_percent"), rows))
    return path


def _at_full(policies: ByPolicy) -> str:
    """``ours W=200 96.0%, fgd 95.2%``, the best first."""
    found = {label: value for label, runs in policies.items() if (value := _mean_at(runs, _FULL)) is not None}
    return ", ".join(f"{label} {found[label]:.1f}%" for label in sorted(found, key=lambda label: -found[label]))


def _mean_at(runs: Sequence[Run], arrived: int) -> float | None:
    values = [value for run in runs if (value := run.allocation_at(arrived)) is not None]
    return fmean(values) if values else None


def _points(runs: Sequence[Run], value: Callable[[Bin], float]) -> Iterator[tuple[int, float]]:
    """Means over the runs, by percent arrived."""
    for x in sorted({row.arrived for run in runs for row in run.bins if row.arrived >= _FROM}):
        yield x, round(fmean(value(row) for run in runs for row in run.bins if row.arrived == x), 4)


def _curve(runs: Sequence[Run], value: Callable[[Bin], float]) -> tuple[list[int], list[float]]:
    points = list(_points(runs, value))
    return [x for x, _ in points], [y for _, y in points]


def _axes(figure: Any, title: str, what: str) -> Any:
    axes = figure.subplots()
    axes.set(title=title, xlabel="GPUs asked for by pods that arrived, % of the cluster's", ylabel=what)
    axes.title.set_fontsize(12)
    axes.grid(visible=True)
    return axes


def _legend(figure: Any) -> None:
    figure.legend(loc="outside lower center", ncols=4, fontsize=10)


def _failed_share(runs: Sequence[Run], size: str) -> float:
    last = [[row for row in run.failures if row.size == size][-1] for run in runs]
    pods = sum(row.pods for row in last)
    return 100.0 * sum(row.failed for row in last) / pods if pods else 0.0
