"""Functions over plain arrays (kernels) that run as Python, or compiled by numba with the same result.

A kernel is written once, as a Python function over numpy arrays, numbers and named tuples of them. Until `load` is
called it runs as what it is, so a small instance never imports numba. Afterwards each call of an `entry` runs compiled
code. Kernels call other kernels, and nothing else of ours.

What numba compiled is kept in a folder whose name has the versions and the text of all kernels in it: what was
compiled from other text is never found. The code is for a generic CPU, since the folder may come with an image that
was built on another machine.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")

MODULES: Final[tuple[str, ...]] = ()
"""Modules with kernels."""
CACHE_VARIABLE: Final = "KAI_SOLVER_KERNELS"
"""Names the folder for compiled kernels; ``~/.cache/kai-solver/kernels`` where it is not set."""
MARKER: Final = "complete"

_kernels: list[Callable[..., Any]] = []
_warm_ups: dict[Callable[..., Any], Callable[[], Any]] = {}
_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Register a function that kernels call. It stays a plain Python function."""
    _kernels.append(function)
    return function


def entry(warm_up: Callable[[], Any]) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function that other code calls: compiled once `load` was called, and as Python before.

    ``warm_up`` calls it once, on arrays as small as can be and of the types that it will get: numba compiles it so.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        _warm_ups[function] = warm_up

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast("R", _compiled.get(function, function)(*args, **kwargs))

        return call

    return register


def is_loaded() -> bool:
    """Whether entries run compiled."""
    return bool(_compiled)


def is_cached() -> bool:
    """Whether `load` takes a quarter of a second, and not half a minute."""
    return (folder() / MARKER).exists()


def folder() -> Path:
    """Where what was compiled from these kernels is kept."""
    base = os.environ.get(CACHE_VARIABLE) or Path.home() / ".cache" / "kai-solver" / "kernels"
    return Path(base) / _key()


def load() -> None:
    """Compile all kernels, or read them from the folder; entries run compiled from now on."""
    if _compiled:
        return
    where = folder()
    where.mkdir(parents=True, exist_ok=True)
    numba = _numba(where)
    _modules()
    for function in _kernels:
        numba.extending.register_jitable(function)
    found = {function: numba.njit(cache=True, nogil=True)(function) for function in _warm_ups}
    _compiled.update(found)
    for warm_up in _warm_ups.values():
        warm_up()
    (where / MARKER).touch()


def unload() -> None:
    """Entries run as Python again."""
    _compiled.clear()


def _numba(where: Path) -> Any:
    """The library, set up before its first import: it reads its settings then."""
    os.environ["NUMBA_CPU_NAME"] = "generic"
    os.environ["NUMBA_CPU_FEATURES"] = ""
    os.environ["NUMBA_CACHE_DIR"] = str(where)
    return importlib.import_module("numba")


def _modules() -> Sequence[ModuleType]:
    return [importlib.import_module(name) for name in MODULES]


@functools.cache
def _key() -> str:
    digest = hashlib.sha256()
    for module in _modules():
        digest.update(Path(cast("str", module.__file__)).read_bytes())
    version = importlib.metadata.version
    names = f"py{sys.version_info.major}.{sys.version_info.minor}-numba{version('numba')}-numpy{version('numpy')}"
    return f"{names}-{digest.hexdigest()[:16]}"
