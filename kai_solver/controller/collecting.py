"""Python's garbage collector at fixed times, as its thresholds hardly ever let it run (`kai_solver.cli`)."""

import gc
import threading
import time

from kai_solver.controller.process import give_heap_back

EVERY_S = 60.0
SHARE = 200
"""A collection takes at most this part of the time: where it takes long, it comes seldom."""


def collect_until(stop: threading.Event, every_s: float = EVERY_S) -> None:
    """Collect every minute until ``stop`` is set, and give back what is free then.

    Few cycles of references are left, but an installed rule or a library may make some. Without collections a leading
    replica grew by 2.2 MiB a minute (27 November 2026, half an hour of random work). What is free lies between blocks
    in use: glibc keeps it, and places for larger blocks are added.
    """
    pause_s = every_s
    while not stop.wait(pause_s):
        began_s = time.monotonic()
        gc.collect()
        give_heap_back()
        pause_s = max(every_s, SHARE * (time.monotonic() - began_s))
