"""A clock of CPU time, for machines that others use at the same time."""

import os
import time

from kai_solver.lab.runs.memory import family

WORKERS = 2
"""The solver's children work on so many cores at once."""
_LOOK_S = 0.05


class CpuClock:
    """Seconds of CPU time of this process, and of its children divided by the cores that they use.

    What a cycle would take on an idle machine. Where the cycle ends by the clock, it is an upper
    estimate: CP-SAT in the child still stops by the wall clock, so on a busy machine it gets less than its budget.
    Never runs backwards, also when a child ends.
    """

    def __init__(self) -> None:
        self._of_children: dict[int, float] = {}
        self._looked_s = -1.0

    def __call__(self) -> float:
        """Read the clock."""
        own_s = time.process_time()
        if own_s - self._looked_s > _LOOK_S:
            self._looked_s = own_s
            for pid in family(os.getpid())[1:]:
                self._of_children.setdefault(pid, 0.0)
        for pid in self._of_children:
            self._of_children[pid] = _process_cpu_s(pid, self._of_children[pid])
        return own_s + sum(self._of_children.values()) / WORKERS


def _process_cpu_s(pid: int, known_s: float) -> float:
    """CPU seconds of a process (Linux: the clock with this number); what was known where it has gone."""
    try:
        return max(known_s, time.clock_gettime((~pid << 3) | 2))
    except OSError:
        return known_s
