"""Ctrl-C and the end of a pod: what runs is asked to stop.

In `solve` the second one ends the process; the controller always ends in order, and is killed by who has no patience.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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
