"""Functions over plain arrays (kernels) that run as Python, or compiled by numba with the same result.

A kernel is written once, as a Python function over numpy arrays, numbers and named tuples of them. It runs as what it
is until kernels are loaded, so a small instance never imports numba. Afterwards each call of an `entry` runs compiled
code. Kernels call other kernels, and nothing else of ours.

What numba compiled is kept in one file (`kept`), whose name has the versions and the text of all kernels in it, and of
the modules that they have constants of: what was compiled from other text is never found. The code is for a generic
CPU, since the file may come with an image that was built on another machine: 20,000 tries of chains on openb's urgent
gangs took 11.0 to 12.7 s of CPU with it, and 17.6 to 17.8 s with code for the machine itself, an AMD EPYC with AVX-512
(2026-11-23). ``kai-solver compile`` makes the file (130 to 210 s of CPU, 3.9 MB; 2026-11-30). A cycle only reads it
(0.4 s, 138 MiB with numba and LLVM), and decides by the uncompiled functions where it is not there.
"""

import functools
import hashlib
import importlib
import importlib.metadata
import importlib.util
import os
import pickle
import platform
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar, cast

from kai_solver.compiled import kept
from kai_solver.errors import InputError, InternalError
from kai_solver.errors.barrier import caught

P = ParamSpec("P")
R = TypeVar("R")

MODULES: Final[tuple[str, ...]] = (
    "kai_solver.chains.seats",
    "kai_solver.chains.search",
    "kai_solver.actions.board.order",
    "kai_solver.actions.board.room",
    "kai_solver.actions.board.rights",
    "kai_solver.actions.board.rows",
    "kai_solver.actions.board.leaving",
    "kai_solver.actions.board.costs",
    "kai_solver.actions.board.hopeless",
    "kai_solver.actions.board.victims",
    "kai_solver.actions.board.turns",
    "kai_solver.fairness.kernels",
    "kai_solver.actions.sharing.sweeps",
)
"""Modules with kernels."""
CONSTANTS: Final = (
    "kai_solver.chains.arrays",
    "kai_solver.actions.board.arrays",
    "kai_solver.actions.board.smallest",
    "kai_solver.actions.sharing.tables",
    "kai_solver.units.shares",
)
"""Other modules that kernels have constants of."""
FOLDER_VARIABLE: Final = "KAI_SOLVER_KERNELS"
"""Names the folder for compiled kernels; ``~/.cache/kai-solver/kernels`` where it is not set."""
LARGE_NODES: Final = 200
"""Nodes of a cluster from which on kernels are loaded: importing numba and reading them takes 0.4 s of CPU once
(2026-11-23). With kernels on 300 loaded nodes, as they are and as real twins, cycles of 2 s admit 1,623 gangs on twelve
clusters instead of 1,600, and the greedy takes half of the time (2026-11-28)."""

_CPU = "generic"
_kernels: list[Callable[..., Any]] = []
_warm_ups: dict[Callable[..., Any], Callable[[], Any]] = {}
_uncounted: set[Callable[..., Any]] = set()
"""Entries that make no arrays."""
_compiled: dict[Callable[..., Any], Callable[..., Any]] = {}
_lock = threading.Lock()
_broken: set[Path] = set()
"""Files that could not be loaded."""


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Register a function that kernels call. It stays a plain Python function."""
    _kernels.append(_of_a_module(function))
    return function


def entry(warm_up: Callable[[], Any], *, allocates: bool = True) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register a function that other code calls: compiled once kernels are loaded, and as Python before.

    Parameters
    ----------
    warm_up
        Calls it once, on arrays as small as can be and of the types that it will get: numba compiles it for those, and
        types that do not convert to them raise TypeError once it is loaded.
    allocates
        False: neither it nor a kernel that it calls makes an array, so no references to arrays are counted. Ejection
        chains, whose many small kernels take named tuples of arrays, are five times as fast by it (2026-11-23).
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        _warm_ups[_of_a_module(function)] = warm_up
        if not allocates:
            _uncounted.add(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            return cast("R", _compiled.get(function, function)(*args, **kwargs))

        return call

    return register


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """An `entry` as the Python function that it is, also once kernels are loaded."""
    return cast("Callable[P, R]", cast("Any", function).__wrapped__)


def is_wanted(nodes: int) -> bool:
    """Whether a cycle of a cluster with so many nodes should run compiled."""
    return bool(MODULES) and nodes >= LARGE_NODES


def is_loaded() -> bool:
    """Whether entries run compiled."""
    return bool(_compiled)


def is_cached() -> bool:
    """Whether compiled kernels of this version are there, so that loading takes a second and not half a minute."""
    try:
        return kept.read(file()) is not None
    except InputError:
        return False


def folder() -> Path:
    """Where compiled kernels are kept.

    Raises
    ------
    InputError
        The variable is not set, and there is no home.
    """
    stated = os.environ.get(FOLDER_VARIABLE)
    if stated:
        return Path(stated)
    try:
        return Path.home() / ".cache" / "kai-solver" / "kernels"
    except RuntimeError:
        cure = f"Set {FOLDER_VARIABLE} to a folder"
        raise InputError("no home folder to keep compiled kernels in", cure=cure) from None


def file() -> Path:
    """The file in `folder` for kernels of this version."""
    return folder() / _name()


def load() -> None:
    """Read compiled kernels, or compile them; entries run compiled from now on."""
    if not load_kept():
        with _lock:
            _compile()


def load_kept() -> bool:
    """Let entries run compiled if compiled kernels are kept; whether they do. Never compiles, and never raises."""
    with _lock:
        try:
            return bool(_compiled) or _load_kept()
        except InputError:  # There is no folder.
            return False
        except Exception as error:
            caught("running", "compiled kernels", error)
            return False


def compile_all() -> Path:
    """Compile all kernels and keep them; the file.

    Raises
    ------
    InputError
        They cannot be kept.
    """
    where = file()
    kept.check_place(where)
    with _lock:
        data = _compile()
    kept.write(where, data)
    return where


def _of_a_module(function: Callable[P, R]) -> Callable[P, R]:
    if function.__module__ not in MODULES:
        raise InternalError(f"{function.__module__} has a kernel, {function.__name__}, and is not in compiled.MODULES")
    return function


def _load_kept() -> bool:
    where = file()
    data = None if where in _broken else kept.read(where)
    if data is None:
        return False
    try:
        numba = _numba()
        found, dispatchers = pickle.loads(data), _dispatchers(numba)  # noqa: S301 - as trusted as the code beside it
        for function, dispatcher in dispatchers.items():
            dispatcher.targetctx.refresh()  # Makes what compiled code refers to known.
            for parts in found[_path(function)]:
                result = numba.core.compiler.CompileResult._rebuild(dispatcher.targetctx, *parts)  # noqa: SLF001
                dispatcher.add_overload(result)
            dispatcher.disable_compile()
    except Exception:
        _broken.add(where)
        raise
    _compiled.update(dispatchers)
    return True


def _compile() -> bytes:
    """Let entries run compiled; what was compiled, to be kept."""
    numba = _numba()
    if numba.config.CPU_NAME != _CPU:
        raise InternalError("numba was imported before, for this CPU alone: what it compiles cannot be kept")
    dispatchers = _dispatchers(numba)
    _compiled.update(dispatchers)
    try:
        for warm_up in _warm_ups.values():
            warm_up()
    except BaseException:
        _compiled.clear()
        raise
    found = {}
    for function, dispatcher in dispatchers.items():
        dispatcher.disable_compile()
        found[_path(function)] = [_parts(result) for result in dispatcher.overloads.values()]
    return cast("bytes", numba.core.serialize.dumps(found))


def _dispatchers(numba: Any) -> dict[Callable[..., Any], Any]:
    """For each entry numba's function that calls compiled code by the types of the arguments."""
    for name in MODULES:
        importlib.import_module(name)
    while _kernels:
        numba.extending.register_jitable(_kernels.pop())
    return {function: numba.njit(nogil=True, _nrt=function not in _uncounted)(function) for function in _warm_ups}


def _parts(result: Any) -> tuple[Any, ...]:
    """Compiled code as numba's own cache writes it, without what is not needed to run it.

    That is a note on types, which names folders; and LLVM's code, by which other functions could be compiled with it.
    Only the name by which Python calls it is looked up there. With all of it the file had 10.9 MB, and reading it took
    0.7 s and not 0.4, and 50 MiB more memory (2026-11-30).
    """
    library, described, environment, signature, is_object_mode, lifted, _note, *rest = result._reduce()  # noqa: SLF001
    name, kind, (machine_code, _llvm_code) = library
    named = f'define void @"{described.llvm_cpython_wrapper_name}"() {{ ret void }}'
    library = name, kind, (machine_code, importlib.import_module("llvmlite.binding").parse_assembly(named).as_bitcode())
    return library, described, environment, signature, is_object_mode, lifted, "", *rest


def _numba() -> Any:
    """The library, set up before its first import: it reads its settings then."""
    stated = {"NUMBA_CPU_NAME": _CPU, "NUMBA_CPU_FEATURES": ""}
    before = {name: os.environ.get(name) for name in stated}
    os.environ.update(stated)
    try:
        return importlib.import_module("numba")
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.update({name: value})


def _path(function: Callable[..., Any]) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _source(module: str) -> Path:
    """Where the text of a module is; no package that it is in is imported for that."""
    package, *inner = module.split(".")
    origin = Path(cast("str", cast("Any", importlib.util.find_spec(package)).origin))
    if not inner:
        return origin
    place = origin.parent.joinpath(*inner)
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


@functools.cache
def _name() -> str:
    digest = hashlib.sha256()
    for module in (__name__, *MODULES, *CONSTANTS):
        digest.update(_source(module).read_bytes())
    versions = "-".join(f"{name}{importlib.metadata.version(name)}" for name in ("numba", "llvmlite", "numpy"))
    python = f"py{sys.version_info.major}.{sys.version_info.minor}-{platform.system()}-{platform.machine()}"
    return f"{python}-{versions}-{digest.hexdigest()[:16]}.kernels".lower()
