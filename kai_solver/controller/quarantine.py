"""Leaves out gangs that repeatedly disturb cycles for a while, with a reason that their owners see.

A gang disturbs a cycle if an unexpected error stops the decision about it, or if its turns take more than their share
of the time while other gangs have no turn. After several such cycles within ten minutes the gang is left out for half a
minute, then twice as long each time. It is tried again at once when its objects change.
"""

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from kai_solver.domain import Gang, Snapshot
from kai_solver.engine.isolating import bare, set_aside
from kai_solver.errors.barrier import Where, in_words
from kai_solver.kubeobjects.raw import format_time

ERRORS, SLOW_CYCLES = 2, 3
"""Errors, and cycles in which it was slow, after which a gang is left out."""

FIRST_S, LONGEST_S = 30.0, 3600.0
"""How long; twice as long each time, while it disturbs the first cycle in which it takes part again."""

WELL_S = 600.0
"""The record of a gang is dropped this long after the last error or slow turn."""

_LOG = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Record:
    """The record of a gang that disturbed a cycle; ``said``: its objects then, as soon as they are seen."""

    why: str = ""
    errors: int = 0
    slow: int = 0
    rests: int = 0
    last_s: float = 0.0
    until_s: float = 0.0
    until: str = ""
    is_bare: bool = False
    said: object = None


@dataclass(slots=True)
class Quarantine:
    """Records by gang; receives errors and slow turns, and is read before each cycle.

    Attributes
    ----------
    clock, monotonic
        Epoch seconds, for texts; and monotonic seconds, for measuring.
    report
        Called with the number of gangs that are left out.
    """

    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    report: Callable[[int], None] = lambda _: None
    _known: dict[str, _Record] = field(default_factory=dict)
    _resting: frozenset[str] = frozenset()
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def caught(self, where: Where, what: str, error: Exception) -> None:
        """A listener of barriers: an error stopped the decision about a gang."""
        if where != "deciding" or "/" not in what:
            return
        with self._lock:
            record = self._record(what)
            record.errors += 1
            record.why = f"an unexpected error stopped the decision about it ({in_words(error)})"
            record.is_bare = self.monotonic() < record.until_s  # it fails even where it is set aside
            if record.errors >= ERRORS:
                self._rest(what, record)

    def slow(self, gang: str, seconds: float) -> None:
        """The turns of a gang took so long that others had none."""
        with self._lock:
            record = self._record(gang)
            record.slow += 1
            record.why = f"the decision about it takes {seconds:.2g} s of each cycle, so other gangs had no turn"
            if record.slow >= SLOW_CYCLES:
                self._rest(gang, record)

    def apply(self, snapshot: Snapshot) -> Snapshot:
        """The cluster without the gangs that are left out now; to be called before each cycle."""
        if not self._known:
            return snapshot
        with self._lock:
            left_out = self._left_out(snapshot.gangs)
        if not left_out:
            return snapshot
        return replace(snapshot, gangs=tuple(self._formed(gang, left_out) for gang in snapshot.gangs))

    def woke(self) -> bool:
        """Whether some gang is to be tried again since this was last asked."""
        now_s = self.monotonic()
        with self._lock:
            resting = frozenset(key for key, record in self._known.items() if now_s < record.until_s)
            woke, self._resting = self._resting - resting, resting
        if woke:
            self.report(len(resting))
        return bool(woke)

    def _record(self, gang: str) -> _Record:
        now_s = self.monotonic()
        record = self._known.get(gang)
        if record is None or now_s - max(record.last_s, record.until_s) > WELL_S:
            record = self._known[gang] = _Record()
        record.last_s = now_s
        return record

    def _rest(self, gang: str, record: _Record) -> None:
        pause_s = min(FIRST_S * 2.0 ** min(record.rests, 20), LONGEST_S)
        record.rests += 1
        record.errors, record.slow = ERRORS - 1, SLOW_CYCLES - 1  # one more, and it is left out again
        record.until_s = self.monotonic() + pause_s
        record.until = format_time(int(self.clock() + pause_s))
        record.said = None
        self._resting |= {gang}
        self.report(len(self._resting))
        _LOG.error("a gang is left out for a while", gang=gang, why=record.why, until=record.until)

    def _left_out(self, gangs: Iterable[Gang]) -> Mapping[str, _Record]:
        """Records of gangs that are here and are left out now; those of gangs that are gone are dropped."""
        now_s = self.monotonic()
        here = {gang.key: gang for gang in gangs if gang.key in self._known}
        for key in self._known.keys() - here.keys():
            if now_s - self._known[key].last_s > WELL_S:
                del self._known[key]
        for key, gang in here.items():
            record, said = self._known[key], _said(gang)
            if record.said is None:
                record.said = said
            elif record.said != said:
                record.said, record.until_s, record.is_bare = said, 0.0, False
        return {key: self._known[key] for key in here if now_s < self._known[key].until_s}

    @staticmethod
    def _formed(gang: Gang, left_out: Mapping[str, _Record]) -> Gang:
        record = left_out.get(gang.key)
        if record is None:
            return gang
        text = f"left out of all decisions until {record.until}, or until it changes: {record.why}"
        return (bare if record.is_bare else set_aside)(gang, text)


def _said(gang: Gang) -> object:
    """What a gang and its pods ask for; not how they stand."""
    pods = sorted(
        (p.key, p.order, p.request, repr(p.gpu), repr(p.constraints), sorted(p.labels.items())) for p in gang.pods
    )
    return gang.uid, gang.root, gang.queue, gang.priority, gang.preemptible, gang.placement, pods
