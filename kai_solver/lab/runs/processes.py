"""Processes of their own, which share no memory with the parent and are handed calls.

Ctrl-C in a terminal reaches every process of the command. Here only the parent may decide what it means. So a process
of a pool never gets it, not even while it imports, where Python would print a traceback. When the parent leaves a pool
by an exception, the processes end at once: what they do can take as long as a budget.
"""

import ctypes
import signal
import sys
from collections.abc import Callable
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import get_context
from types import TracebackType
from typing import Any, Literal, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_PR_SET_PDEATHSIG = 1


class Processes(ProcessPoolExecutor):
    """A pool of ``number`` processes, each of which begins by calling ``begin``."""

    def __init__(self, number: int, begin: Callable[..., None] | None = None, arguments: tuple[Any, ...] = ()) -> None:
        # A forked process would have all that the parent has in memory.
        super().__init__(number, mp_context=get_context("spawn"), initializer=_begin, initargs=(begin, arguments))

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Hand over a call. A process that is started for it inherits that SIGINT is blocked."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            return super().submit(fn, *args, **kwargs)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def end(self) -> None:
        """End the processes, whatever they do; calls that have not ended are dropped."""
        processes = list((self._processes or {}).values())  # Python 3.14 has a method for it
        self.shutdown(wait=False, cancel_futures=True)
        for process in processes:
            process.terminate()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> Literal[False]:
        """Wait for what was handed over; after an exception, end it."""
        if kind is not None:
            self.end()
        super().__exit__(kind, error, trace)
        return False


def _begin(begin: Callable[..., None] | None, arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    killed_with_parent()
    if begin is not None:
        begin(*arguments)


def killed_with_parent() -> None:
    """Have this process killed when its parent ends. (Linux; elsewhere it goes on to the end of what it does.)"""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
