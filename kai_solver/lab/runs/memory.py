"""Memory and CPU time of this process and its children."""

import os
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

INTERVAL_S = 0.05
_PROC = Path("/proc")


class PeakMemory:
    """Samples resident memory while the block runs; ``peak_mib`` is the largest sum seen.

    Pages that parent and child share are counted in both, so the figure is an upper estimate. 0 where there is no
    ``/proc``.
    """

    def __init__(self) -> None:
        self.peak_mib = 0.0
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
        self.peak_mib = max(self.peak_mib, sum(resident_mib(pid) for pid in family(os.getpid())))


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
