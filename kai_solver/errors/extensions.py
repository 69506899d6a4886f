"""Parts of other packages, found by entry points: one that cannot be used is an error which names its package."""

from functools import cache
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from typing import Any

from kai_solver.errors import InputError

CURE = "Mend or remove the package"


def entry_points(group: str, name: str | None = None) -> EntryPoints:
    """Entry points of ``group``, of installed packages; only those of that name where one is given."""
    found: EntryPoints = _installed().select(group=group)
    return found if name is None else found.select(name=name)


@cache
def _installed() -> Any:
    """All of them, read once: a solve asks for ten groups, and each reading goes through all installed packages.

    Up to Python 3.11 this is no `EntryPoints`, but has its method ``select``.
    """
    return metadata.entry_points()


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
