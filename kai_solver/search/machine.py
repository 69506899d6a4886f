"""How fast this machine is, beside the one on which the seconds of steps were measured.

How long victims, places and questions take was measured per variable, on one machine. Another one may take half of
it, or twice as much: then time would be kept for them in vain, or they would have too little.

Whether victims are chosen at all on openb, with 180,000 variables, does not follow it. With 0.6 of these seconds they
took the last of 10 s in vain: evicted work of its urgent gangs was 199,000 to 202,000, and is 170,000 (2026-12-01).
"""

import time
from collections import deque
from statistics import median

import numpy as np

WORK_S = 3.5e-4
"""Seconds of the little work there. Where it takes 0.22 ms, a greedy cycle of 5,000 loaded nodes takes 0.6 of what it
took there, and the benchmark's calibration 11 ms in place of 18 (2026-11-30; in the week before 13 to 28 ms)."""
LEAST, MOST = 0.5, 2.0
"""Bounds of `slowness`: a short loop says no more about steps of a second."""
AGAIN_S = 0.5
"""Seconds after which it is measured once more, in 1 ms. Of 15 processes on a busy machine, three that measured it once
for all found 1.6 to 3 times of what the others did (2026-12-01)."""
_TRIES, _AT_FIRST, _KEPT = 3, 3, 9

_measured: deque[float] = deque(maxlen=_KEPT)
_measured_at_s = float("-inf")


def slowness() -> float:
    """Seconds that a step takes here, for each that it takes on that machine: the median of the newest measurements."""
    global _measured_at_s
    now_s = time.monotonic()
    if now_s - _measured_at_s >= AGAIN_S:
        for _ in range(1 if _measured else _AT_FIRST):
            _measured.append(min(_timed() for _ in range(_TRIES)) / WORK_S)
        _measured_at_s = now_s
    return min(MOST, max(LEAST, median(_measured)))


def _timed() -> float:
    """Seconds of a little work, plain Python and numpy about half and half."""
    start_s = time.perf_counter()
    values = np.arange(5_000, dtype=np.int64) * 7919 % 100_003
    sum(number * number % 7 for number in range(5_000))
    for _ in range(2):
        np.sort(values)
    return time.perf_counter() - start_s
