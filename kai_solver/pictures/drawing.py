"""Figures by matplotlib: one style, text as text, a title, no date; the data beside each figure as CSV."""

import csv
import importlib.util
import io
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, floor, log10
from pathlib import Path
from typing import Any

from kai_solver.errors import InputError

INK, GREY, PALE = "#1f2933", "#7b8794", "#e4e7eb"
COLOURS = (
    *("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#8a63b0", "#a8901c", "#6b7f2a", "#8c5a3c"),
    *("#80b9d9", "#f3cf80", "#80cfb9", "#e6bcd3", "#abdaf4", "#eaaf80", "#c4b1d8", "#d4c88e", "#b5bf95", "#c6ad9e"),
)
"""The first six can be told apart with any colour vision (Okabe and Ito 2008)."""

_MOST_DECADES = 4

_STYLE: Any = {
    "svg.hashsalt": "kai-solver",  # the same data gives the same file
    "svg.fonttype": "none",  # text can be searched, copied and translated
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Helvetica", "Arial"],
    "text.parse_math": False,  # names may have a $
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GREY,
    "axes.titlesize": 13,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.titlepad": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.titlesize": 14,
    "figure.titleweight": "bold",
    "grid.color": PALE,
    "xtick.color": INK,
    "ytick.color": INK,
    "legend.frameon": False,
    "lines.linewidth": 2.0,
    "lines.markersize": 6,
    "hatch.linewidth": 0.6,
}


@dataclass(frozen=True, slots=True)
class Data:
    """What a figure shows, as a table: a row for each mark."""

    columns: Sequence[str]
    rows: Iterable[Sequence[object]]


def check_place(path: Path, field: str = "--plot") -> None:
    """Find out before any work whether a figure could be drawn there.

    Raises
    ------
    InputError
        The name ends neither in .svg nor in .png, its folder does not exist, matplotlib is not installed, or the data
        would replace a table that belongs to no figure of that name.
    """
    if path.suffix not in (".svg", ".png"):
        problem = f"{path.suffix or 'no ending'} is not a kind of drawing"
        raise InputError(problem, field=field, cure="Write .svg or .png")
    if not path.parent.is_dir():
        raise InputError("is in no folder that exists", field=field, file=str(path), cure="Name a writable place")
    if data_place(path).exists() and not path.exists():
        problem = f"{data_place(path).name} is there already, and the figure's data would replace it"
        raise InputError(problem, field=field, file=str(path), cure="Choose another name, or remove that table")
    if importlib.util.find_spec("matplotlib") is None:
        cure = "Install the extra: pip install kai-solver[experiments]"
        raise InputError("needs matplotlib", field=field, cure=cure)


def data_place(path: Path) -> Path:
    """Where the data of a figure is written: beside it, with the ending .csv."""
    return path.with_suffix(".csv")


def draw(
    path: Path,
    size: tuple[float, float],
    title: str,
    content: Callable[[Any], None],
    data: Data,
    also: Sequence[Path] = (),
) -> None:
    """Have ``content`` fill a figure of so many inches; save it as SVG or PNG, and its data as CSV beside it.

    ``also`` are more files for the same drawing, of the other kind.

    ``title`` is that of the file, which browsers and screen readers show; ``content`` draws its own.

    Raises
    ------
    InputError
        As `check_place`, or a file cannot be written.
    """
    check_place(path)
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(_STYLE):
        figure = Figure(figsize=size, layout="constrained")
        content(figure)
        place = path
        try:
            for place in (path, *also):
                metadata = {"Title": title, "Date": None} if place.suffix == ".svg" else {"Title": title}
                figure.savefig(place, dpi=150, metadata=metadata)
            place = data_place(path)
            place.write_text(_csv(data))
        except OSError as error:
            with suppress(OSError):  # half a file is none
                place.unlink(missing_ok=True)
            reason, cure = (error.strerror or str(error)).lower(), "Make room, or name a writable place"
            raise InputError(f"cannot be written: {reason}", file=str(place), cure=cure) from error


def ticks(least: float, most: float) -> list[float]:
    """Round numbers for a logarithmic axis from ``least`` to ``most``: 1, 2, 5, 10, ...; of many decades 1, 10, ..."""
    low, high = floor(log10(least)), ceil(log10(most))
    heads = (1.0, 2.0, 5.0) if high - low <= _MOST_DECADES else (1.0,)
    found = [head * 10.0**power for power in range(low, high + 1) for head in heads]
    inside = [tick for tick in found if least * 0.999 <= tick <= most * 1.001]
    return inside if len(inside) > 1 else [least, most]


def _csv(data: Data) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(data.columns)
    writer.writerows(data.rows)
    return text.getvalue()
