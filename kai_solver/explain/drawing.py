"""What all drawings have in common: matplotlib where it is installed, .svg and .png, no date."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kai_solver.errors import InputError


def draw(path: Path, size: tuple[float, float], content: Callable[[Any], None]) -> None:
    """Have ``content`` fill a figure of so many inches, and save it as SVG or PNG, by the name of the file.

    Raises
    ------
    InputError
        The file is neither or cannot be written, or matplotlib is not installed.
    """
    if path.suffix not in (".svg", ".png"):
        raise InputError(
            f"{path.suffix or 'no ending'} is no kind of drawing", field="--plot", cure="Write .svg or .png"
        )
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        cure = "Install the extra: pip install kai-solver[experiments]"
        raise InputError("needs matplotlib", field="--plot", cure=cure) from error
    with rc_context({"svg.hashsalt": "kai-solver", "hatch.linewidth": 0.6}):
        figure = Figure(figsize=size, layout="constrained")
        content(figure)
        try:
            figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise InputError(f"cannot be written: {reason}", file=str(path), cure="Name a writable place") from error
