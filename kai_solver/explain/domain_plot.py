"""A drawing of domain trees: every domain a bar as wide as its GPUs, filled as far as they are in use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from kai_solver.errors import InputError
from kai_solver.explain.domain_lines import DomainLine
from kai_solver.explain.drawing import draw

_LABELLED = 60
"""Bars of one row that are still wide enough for a name."""
_USED, _FREE, _EDGE = "#3b6ea8", "#dfe8f2", "#ffffff"


def plot_domains(lines: Sequence[DomainLine], path: Path) -> None:
    """Draw ``lines`` as SVG or PNG, by the name of the file; the same lines give the same file.

    Raises
    ------
    InputError
        There is nothing to draw, or as `draw`.
    """
    if not any(line.gpus for line in lines):
        raise InputError("no topology has nodes with GPUs", field="--plot", cure="Give an instance with topologies")
    trees = list(dict.fromkeys(line.topology for line in lines))

    def content(figure: Any) -> None:
        for axes, tree in zip(figure.subplots(len(trees), squeeze=False)[:, 0], trees, strict=True):
            _draw(axes, [line for line in lines if line.topology == tree])

    draw(path, (12, 0.8 + 1.9 * len(trees)), content)


def _draw(axes: Any, lines: Sequence[DomainLine]) -> None:
    """One tree: the whole above, then level by level; children lie below their parent."""
    starts: dict[int, float] = {}
    depths = max(line.depth for line in lines)
    counts = [sum(line.depth == depth for line in lines) for depth in range(depths + 1)]
    for line in lines:
        left = starts.setdefault(line.depth, 0.0)
        starts[line.depth] += line.gpus
        for deeper in range(line.depth + 1, depths + 1):
            starts[deeper] = left
        axes.broken_barh([(left, line.gpus)], (-line.depth - 0.45, 0.9), facecolors=_FREE, edgecolors=_EDGE)
        axes.broken_barh([(left, line.used_gpus)], (-line.depth - 0.45, 0.9), facecolors=_USED, edgecolors=_EDGE)
        if counts[line.depth] <= _LABELLED:
            text = f"{line.name.rpartition('/')[2]}\n{line.free_gpus:g} of {line.gpus:g} free"
            rotation = 90 if counts[line.depth] > 8 else 0
            x = left + line.gpus / 2
            axes.text(x, -line.depth, text, ha="center", va="center", fontsize=6, rotation=rotation)
    levels = [lines[0].name, *(next(x.level for x in lines if x.depth == depth) for depth in range(1, depths + 1))]
    axes.set_yticks([-depth for depth in range(depths + 1)], levels, fontsize=7)
    axes.set_xlim(0, max(lines[0].gpus, 1))
    axes.set_xlabel("GPUs (dark: in use)", fontsize=7)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
