"""Packages that only the extra ``experiments`` installs."""

import importlib.util

from kai_solver.errors import InputError


def has_package(name: str) -> bool:
    """Whether it is installed."""
    return importlib.util.find_spec(name) is not None


def check_package(name: str, purpose: str) -> None:
    """Refuse to go on without a package. ``purpose``: what needs it, with its verb, like "tables need".

    Raises
    ------
    InputError
        It is not installed.
    """
    if not has_package(name):
        cure = "Install it: pip install 'kai-solver[experiments]'"
        raise InputError(f"{purpose} {name}, which is not installed", cure=cure)
