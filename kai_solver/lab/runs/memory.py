"""Memory and CPU time of this process and its children."""

import os
import resource
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

INTERVAL_S = 0.05
_PROC = Path("/proc")


class PeakMemory:
    """Samples resident memory while the block runs; ``peak_mib`` is the largest sum seen.

    Pages that parent and child share are counted in both, so the figure is an upper estimate. None where there is no
    ``/proc``.
    """

    def __init__(self) -> None:
        self.peak_mib: float | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        self._sample()

    def _watch(self) -> None:
        while not self._done.wait(INTERVAL_S):
            self._sample()

    def _sample(self) -> None:
        # This process has memory, so 0 is that there is no /proc.
        self.peak_mib = max(self.peak_mib or 0.0, sum(resident_mib(pid) for pid in family(os.getpid()))) or None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a run in this process took: seconds by both clocks, memory of the whole process with its children."""

    wall_s: float
    cpu_s: float
    peak_mib: float | None


class Meter:
    """Measures what the block takes; ``spent`` is there when it has ended."""

    def __init__(self) -> None:
        self.spent: Spent | None = None
        self._memory = PeakMemory()

    def __enter__(self) -> Self:
        self._memory.__enter__()
        self._start_s, self._cpu_s = time.monotonic(), own_cpu_s()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wall_s, cpu_s = time.monotonic() - self._start_s, own_cpu_s() - self._cpu_s
        self._memory.__exit__(kind, error, trace)
        self.spent = Spent(wall_s, cpu_s, self._memory.peak_mib)


def own_cpu_s() -> float:
    """CPU seconds of this process, and of its children that have ended."""
    both = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(of.ru_utime + of.ru_stime for of in both)


def own_peak_mib() -> float:
    """The most memory that this process, or one of its children that have ended, ever had resident."""
    return max(resource.getrusage(of).ru_maxrss for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024


def family(pid: int) -> list[int]:
    """``pid`` and all its living descendants; one that ends meanwhile may be among them or not."""
    found = [pid]
    for parent in found:
        tasks = _PROC / str(parent) / "task"
        with suppress(OSError):  # the process has ended
            for thread in os.listdir(tasks):  # noqa: PTH208 - called 20 times a second for each run
                with suppress(OSError):  # the thread has ended
                    found += map(int, (tasks / thread / "children").read_text().split())
    return found


def resident_mib(pid: int) -> float:
    """Resident memory of one process, MiB; 0 when it has gone."""
    try:
        pages = int((_PROC / str(pid) / "statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def family_cpu_s(pid: int | None = None) -> float:
    """CPU seconds that ``pid`` (None: this process) and its living descendants have used; 0 without ``/proc``."""
    return sum(_cpu_s(one) for one in family(os.getpid() if pid is None else pid))


def _cpu_s(pid: int) -> float:
    try:
        ticks = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()[11:13]
    except OSError:
        return 0.0
    return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
