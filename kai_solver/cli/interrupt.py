"""Ctrl-C: the first one asks the engine to stop with the best plan so far, the second one ends the process."""

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
