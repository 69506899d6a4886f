"""Packages whose names are imported when they are first used.

A solve of a small file from the shell is mostly imports: each module costs about 1 ms, and the reader of one kind of
file does not need those of the others.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def exports_on_demand(package: str, modules: Mapping[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """The function ``__getattr__`` (PEP 562) of ``package``.

    Parameters
    ----------
    package
        Its full name.
    modules
        Names that the package exports, by the module of the package that defines them.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def imported(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return imported
