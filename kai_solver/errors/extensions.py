"""Parts of other packages, found by entry points: one that cannot be used is an error which names its package."""

from importlib.metadata import EntryPoint
from typing import Any

from kai_solver.errors import InputError

CURE = "Mend or remove the package"


def loaded(point: EntryPoint) -> Any:
    """The object that ``point`` names.

    Raises
    ------
    InputError
        It cannot be loaded; names the package and the cure.
    """
    try:
        return point.load()
    except Exception as error:
        raise unusable(point, f"cannot be loaded: {type(error).__name__}: {error}") from error


def unusable(point: EntryPoint, why: str) -> InputError:
    """The error that what ``point`` names cannot be used, for ``why``."""
    package = f" of package {point.dist.name}" if point.dist is not None else ""
    return InputError(f"{point.name!r} in {point.group}{package} {why}", cure=CURE)
