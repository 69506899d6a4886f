"""Plots of an experiment, a file each trace: allocation, fragmentation, failed pods by size. Needs matplotlib."""

import importlib
import importlib.util
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from kai_solver.lab.experiments.report import SIZES, Bin, Run

_FROM = 60
"""Percent arrived from which curves are drawn; below, every policy allocates what arrives."""


def has_matplotlib() -> bool:
    """Whether matplotlib is installed (``pip install 'kai-solver[experiments]'``)."""
    return importlib.util.find_spec("matplotlib") is not None


def write_plots(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write SVG files into ``folder``, means over seeds; return them."""
    importlib.import_module("matplotlib").use("svg")
    return [
        path
        for trace in sorted({run.spec.trace for run in runs})
        for path in _of_trace(trace, _by_policy([run for run in runs if run.spec.trace == trace]), folder)
    ]


def _by_policy(runs: Sequence[Run]) -> dict[str, list[Run]]:
    labels = sorted({run.spec.label for run in runs})
    return {label: [run for run in runs if run.spec.label == label] for label in labels}


def _of_trace(trace: str, policies: dict[str, list[Run]], folder: Path) -> list[Path]:
    allocation = _figure("GPUs allocated, %", trace)
    for label, runs in policies.items():
        allocation[1].plot(*_curve(runs, lambda row: row.allocation), label=label)
    fragmentation = _figure("free capacity that typical pods cannot use, % of GPUs", trace)
    for label, runs in policies.items():
        fragmentation[1].plot(*_curve(runs, lambda row: row.fragmentation), label=label)
    failed = _bars(trace, policies)
    figures = {"allocation": allocation, "fragmentation": fragmentation, "failed": failed}
    return [_save(figure, folder / f"{name}_{trace}.svg") for name, figure in figures.items()]


def _curve(runs: Sequence[Run], value: Callable[[Bin], float]) -> tuple[list[int], list[float]]:
    arrived = sorted({row.arrived for run in runs for row in run.bins if row.arrived >= _FROM})
    means = [fmean(value(row) for run in runs for row in run.bins if row.arrived == x) for x in arrived]
    return arrived, means


def _figure(what: str, trace: str) -> tuple[Any, Any]:
    figure, axes = importlib.import_module("matplotlib.pyplot").subplots(figsize=(7, 4.5), layout="constrained")
    axes.set_title(trace)
    axes.set_xlabel("GPUs asked for by arrivals, % of the cluster's")
    axes.set_ylabel(what)
    axes.grid(alpha=0.3)
    return figure, axes


def _bars(trace: str, policies: dict[str, list[Run]]) -> tuple[Any, Any]:
    figure, axes = _figure("pods that failed in the whole run, %", trace)
    width = 0.8 / max(len(policies), 1)
    for number, (label, runs) in enumerate(policies.items()):
        places = [i + width * number for i in range(len(SIZES))]
        axes.bar(places, [_failed_share(runs, size) for size in SIZES], width, label=label)
    axes.set_xticks([i + 0.4 - width / 2 for i in range(len(SIZES))], SIZES)
    axes.set_xlabel("GPUs of the pod")
    return figure, axes


def _failed_share(runs: Sequence[Run], size: str) -> float:
    last = [[row for row in run.failures if row.size == size][-1] for run in runs]
    pods = sum(row.pods for row in last)
    return 100.0 * sum(row.failed for row in last) / pods if pods else 0.0


def _save(figure: tuple[Any, Any], path: Path) -> Path:
    figure[1].legend()
    figure[0].savefig(path, metadata={"Date": None})
    importlib.import_module("matplotlib.pyplot").close(figure[0])
    return path
