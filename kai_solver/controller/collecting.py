"""Python's garbage collector at fixed times, as its thresholds hardly ever let it run (`kai_solver.cli`)."""

import gc
import threading
import time

EVERY_S = 60.0
SHARE = 200
"""A collection takes at most this part of the time: where it takes long, it comes seldom."""


def collect_until(stop: threading.Event, every_s: float = EVERY_S) -> None:
    """Collect every minute until ``stop`` is set.

    Decisions in which CP-SAT takes part leave some cycles of references. Without collections a leading replica grew by
    2.2 MiB a minute, and the one that waits to lead did not grow (27 November 2026, half an hour of random work).
    """
    pause_s = every_s
    while not stop.wait(pause_s):
        began_s = time.monotonic()
        gc.collect()
        pause_s = max(every_s, SHARE * (time.monotonic() - began_s))
