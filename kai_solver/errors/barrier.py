"""Barriers: an unexpected error is reported and affects only its object or gang, and everything else goes on.

An error that the program raises on purpose (`KaiSolverError`) is handled where it is expected. A barrier stops all
other errors. Barriers enclose the reading of each object, the decision about each gang, each write, and each part that
runs by itself. Listeners get the errors: a controller logs and counts them; tests fail, unless they throw them.
"""

import threading
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Literal

Where = Literal[
    "reading", "deciding", "explaining", "ordering", "binding", "evicting", "reporting", "watching", "running"
]
"""Activities: each has one barrier, and one value of a metric's label."""

Caught = Callable[[Where, str, Exception], None]
"""Called with an error that a barrier stopped: the activity, the affected object, gang or part, the error."""

_LONGEST = 200
_FRAMES = 40

_listeners: tuple[Caught, ...] = ()
_lock = threading.Lock()


def caught(where: Where, what: str, error: Exception) -> str:
    """Pass ``error``, which affected ``what``, to all listeners; returns the error in a few words."""
    for listener in _listeners:
        listener(where, what, error)
    return in_words(error)


@contextmanager
def barrier(where: Where, what: str) -> Iterator[None]:
    """Stop every error of the block here; not for hot paths, where a plain ``except`` is cheaper."""
    try:
        yield
    except Exception as error:
        caught(where, what, error)


@contextmanager
def listening(listener: Caught) -> Iterator[None]:
    """``listener`` gets the errors that barriers of this process stop, in any thread."""
    listen(listener)
    try:
        yield
    finally:
        unlisten(listener)


def listen(listener: Caught) -> None:
    """Add ``listener``: it gets the errors that barriers of this process stop. It must not raise."""
    global _listeners
    with _lock:
        _listeners = (*_listeners, listener)


def unlisten(listener: Caught) -> None:
    """Remove ``listener``."""
    global _listeners
    with _lock:
        _listeners = tuple(known for known in _listeners if known != listener)


def in_words(error: BaseException) -> str:
    """The class of an error and what it says, in one printable line of at most 200 characters."""
    said = "".join(c if c.isprintable() else " " for c in str(error)[: 2 * _LONGEST])
    name = type(error).__name__
    line = f"{name}: {said.strip()}" if said.strip() else name
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def trace_of(error: BaseException) -> str:
    """Where an error came from; the frames in the middle of a deep recursion are left out."""
    return "".join(traceback.format_exception(error, limit=-_FRAMES))
