"""Ctrl-C and the end of a pod: what runs is asked to stop.

In `solve` the second one ends the process; the controller always ends in order, and only SIGKILL is faster.
"""

import faulthandler
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDS_S = 28.0
"""A process that is told to stop ends within this time, whatever hangs: a kubelet kills it after 30 s."""


@contextmanager
def stopping_on_interrupt() -> Iterator[threading.Event]:
    """Event that the first SIGINT (or SIGTERM) sets while the block runs; the handlers are restored afterwards."""
    stop = threading.Event()

    def handle(_number: int, _frame: FrameType | None) -> None:
        if stop.is_set():
            raise KeyboardInterrupt
        stop.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def stop_when_told(stop: threading.Event, seconds: float | None) -> None:
    """Set ``stop`` when the process is interrupted or told to end, and after ``seconds``."""

    def end(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    if seconds is not None:
        timer = threading.Timer(seconds, stop.set)
        timer.daemon = True
        timer.start()


def end_for_sure(stop: threading.Event, limit_s: float = ENDS_S) -> None:
    """End the process ``limit_s`` seconds after ``stop`` is set, with exit code 1, unless it has ended by itself.

    The stacks of all threads go to stderr. This does not need the interpreter, which may hang.
    """

    def wait() -> None:
        stop.wait()
        faulthandler.dump_traceback_later(limit_s, exit=True, file=sys.__stderr__ or 2)

    threading.Thread(target=wait, name="end", daemon=True).start()
