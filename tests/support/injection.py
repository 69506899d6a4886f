"""Points at which an error can be thrown, found at run time: all public functions and methods of rooms.

A function is changed in place (its code object), so that every module that imported it by name calls the changed one.
"""

import importlib
import inspect
import pkgutil
import sys
import threading
import types
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import kai_solver
from kai_solver.domain import Gang, Pod
from kai_solver.kubeobjects.raw import Raw
from kai_solver.planstate.allocation_units import AllocationUnit
from kai_solver.problem import GangShape

_LOOKING = threading.local()
SERVER = "kai_solver.cluster.memory"
START_AND_END = {
    "kai_solver.controller.app": ("_meet", "_begin", "_serve", "_make_webhook", "_drain"),
    "kai_solver.controller.deciding": ("__enter__", "__exit__"),
    "kai_solver.controller.loop": ("_start",),
}
"""Functions that start and end a controller, by module: an error there is an error of the whole process."""

WHOLE = frozenset(
    {
        "controller.app.Controller.run",
        "controller.app.Controller.scheduler",
        "controller.keeper.Keeper.keep",
        "controller.loop.Scheduler.run",
    }
)
"""Functions that run the loop, and threads; what they call is guarded."""

_DEEP = 2


class ThrownError(Exception):
    """Nobody thought of this."""


@dataclass(frozen=True)
class Point:
    """A function by its room and its name."""

    room: str
    name: str
    function: types.FunctionType = field(compare=False, repr=False)

    def __str__(self) -> str:
        return self.name


def points(rooms: Iterable[str]) -> list[Point]:
    """All public functions, and public methods of public classes, that the rooms define."""
    found: dict[int, Point] = {}
    for room in rooms:
        package = importlib.import_module(f"kai_solver.{room}")
        names = [info.name for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
        for name in (package.__name__, *names):
            module = sys.modules.get(name) or importlib.import_module(name)
            for where, function in _functions(module):
                point = Point(room, f"{name.removeprefix('kai_solver.')}.{where}", function)
                if not function.__code__.co_freevars:
                    found.setdefault(id(function), point)
    return sorted(found.values(), key=lambda point: point.name)


def _functions(module: types.ModuleType) -> Iterator[tuple[str, types.FunctionType]]:
    for name, value in list(vars(module).items()):
        if name.startswith("_") or getattr(value, "__module__", None) != module.__name__:
            continue
        if inspect.isclass(value):
            for method, member in list(vars(value).items()):  # Looking at a class of fields may complete it.
                function = _function(member)
                if function is not None and not method.startswith("_"):
                    yield f"{name}.{method}", function
        else:
            function = _function(value)
            if function is not None:
                yield name, function


def _function(value: Any) -> types.FunctionType | None:
    if isinstance(value, property):
        value = value.fget
    value = getattr(value, "func", value) if not isinstance(value, types.FunctionType) else value
    value = (
        inspect.unwrap(getattr(value, "__func__", value)) if callable(value) or hasattr(value, "__func__") else value
    )
    return value if isinstance(value, types.FunctionType) else None


Act = Callable[[Point, tuple[Any, ...], dict[str, Any]], None]
"""Called before a function; raises what the function is to raise."""


@contextmanager
def hooked(found: Iterable[Point], act: Act) -> Iterator[None]:
    """All calls of the functions go through ``act`` first."""
    before = [(point.function, point.function.__code__) for point in found]
    try:
        for point in found:
            _hook(point, act)
        yield
    finally:
        for function, code in before:
            function.__code__ = code


def _hook(point: Point, act: Act) -> None:
    function = point.function
    original = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, function.__defaults__, function.__closure__
    )
    original.__kwdefaults__ = function.__kwdefaults__

    def through(args: tuple[Any, ...], options: dict[str, Any]) -> Any:
        if not getattr(_LOOKING, "now", False):  # a look at the arguments may call what is changed, too
            _LOOKING.now = True
            try:
                act(point, args, options)
            finally:
                _LOOKING.now = False
        return original(*args, **options)

    def call(*args: Any, **options: Any) -> Any:
        found: Any = "through"
        return found(args, options)

    constants = tuple(through if value == "through" else value for value in call.__code__.co_consts)
    function.__code__ = call.__code__.replace(co_consts=constants, co_name=function.__name__)


def is_about(values: Iterable[Any], keys: frozenset[str], depth: int = _DEEP) -> bool:
    """Whether one of the ``values`` is of the gang or pod of one of these keys (``namespace/name``)."""
    return any(_is_of(value, keys, depth) for value in values)


def _is_of(value: Any, keys: frozenset[str], depth: int) -> bool:
    if isinstance(value, str):
        return value in keys
    if isinstance(value, Gang | Pod):
        return value.key in keys
    if isinstance(value, GangShape):
        return value.gang.key in keys
    if isinstance(value, Raw):
        return _is_of(value.value, keys, depth)
    if isinstance(value, dict):
        metadata = value.get("metadata")
        return isinstance(metadata, dict) and f"{metadata.get('namespace')}/{metadata.get('name')}" in keys
    for name in ("key", "gang", "pod", "member"):
        found = getattr(value, name, None)
        is_one = isinstance(found, str | Gang | Pod | GangShape) or (name == "member" and found is not None)
        if depth and is_one and _is_of(found, keys, depth - 1):
            return True
    return False


def about_gang(args: tuple[Any, ...], options: dict[str, Any], keys: frozenset[str]) -> bool:
    """The same of a call's arguments; an allocation unit counts if an argument has the problem that names its gang."""
    values = (*args, *options.values())
    if is_about(values, keys):
        return True
    allocation_units = [value for value in values if isinstance(value, AllocationUnit)]
    problem = next((found for value in values if (found := _problem_of(value)) is not None), None)
    return problem is not None and any(
        problem.gangs[allocation_unit.gang].gang.key in keys for allocation_unit in allocation_units
    )


def _problem_of(value: Any) -> Any:
    for path in (
        "gangs",
        "problem.gangs",
        "state.problem.gangs",
        "context.problem.gangs",
        "outcome.state.problem.gangs",
    ):
        here = value
        above = None
        for name in path.split("."):
            above, here = here, getattr(here, name, None)
        if isinstance(here, tuple):
            return above
    return None


@dataclass
class Counted:
    """How often each point was called, and how often about some keys; ``is_apart`` as `Thrower` has it."""

    keys: frozenset[str]
    is_apart: bool = False
    calls: Counter[Point] = field(default_factory=Counter)
    about: Counter[Point] = field(default_factory=Counter)

    def __call__(self, point: Point, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if self.is_apart and is_spared(point):
            return
        self.calls[point] += 1
        if about_gang(args, options, self.keys):
            self.about[point] += 1


def is_spared(point: Point) -> bool:
    """Whether the test, its API server, or the start or end of the controller makes the call that is looked at.

    A controller which cannot start ends with an error, and the kubelet starts it again.
    """
    if point.name in WHOLE or threading.current_thread() is threading.main_thread() or _is_of_server():
        return True
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None:
        if frame.f_code.co_name in START_AND_END.get(str(frame.f_globals.get("__name__")), ()):
            return True
        frame = frame.f_back
    return False


def _is_of_server() -> bool:
    """Whether the API server in memory makes the call that is looked at."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") == __name__:
        frame = frame.f_back
    callers = (frame, frame.f_back if frame else None)  # the changed function, and its caller
    return any(found is not None and found.f_globals.get("__name__") == SERVER for found in callers)


@dataclass
class Thrower:
    """Throws at one point: at its ``at``-th call, or (None) at all calls about ``keys``, or (no keys) at all calls.

    ``is_apart``: what is tested runs in threads of its own; the calls that `is_spared` names are spared.
    """

    point: Point
    keys: frozenset[str] = frozenset()
    at: int | None = None
    is_apart: bool = False
    calls: int = 0
    thrown: int = 0

    def __call__(self, point: Point, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        if self.is_apart and is_spared(point):
            return
        self.calls += 1
        is_due = not self.keys or about_gang(args, options, self.keys)
        if self.calls == self.at or (self.at is None and is_due):
            self.thrown += 1
            raise ThrownError(point.name)


def rooms() -> tuple[str, ...]:
    """All rooms of the scheduler."""
    return tuple(info.name for info in pkgutil.iter_modules(kai_solver.__path__) if info.ispkg)
