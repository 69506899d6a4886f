"""Gangs that could not be bound are left alone for a while, or they would be bound in vain again in every cycle."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

FIRST_S = 1.0
LONGEST_S = 30.0
LONGEST_WAITS = 8.0
"""After waiting in vain a rest is at most so many times as long as the wait was."""


@dataclass(slots=True)
class Resting:
    """By gang, when it is tried again: a second after the first failure, then twice as long each time."""

    clock: Callable[[], float] = time.monotonic
    _until: dict[str, tuple[float, float]] = field(default_factory=dict)
    """How long the last rest was, and when it ends."""
    _asleep: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def failed(self, gang: str, waited_s: float = 0.0) -> None:
        """It rests, from now on; if it waited in vain not shorter than it did."""
        now_s = self.clock()
        with self._lock:
            old = [
                key for key, (rest_s, until_s) in self._until.items() if now_s - until_s > 2 * max(LONGEST_S, rest_s)
            ]
            for key in old:
                del self._until[key]
            last_s, _ = self._until.get(gang, (FIRST_S / 2, 0.0))
            rest_s = min(max(2 * last_s, waited_s), max(LONGEST_S, LONGEST_WAITS * waited_s))
            self._until[gang] = rest_s, now_s + rest_s
            self._asleep.add(gang)

    def succeeded(self, gang: str) -> None:
        """What was is forgotten."""
        with self._lock:
            self._until.pop(gang, None)
            self._asleep.discard(gang)

    def clear(self) -> None:
        """All may be tried at once."""
        with self._lock:
            self._until.clear()
            self._asleep.clear()

    def now(self) -> frozenset[str]:
        """Gangs that rest."""
        now_s = self.clock()
        with self._lock:
            return frozenset(gang for gang, (_, until_s) in self._until.items() if until_s > now_s)

    def woke(self) -> bool:
        """Whether a rest ended since this was last asked."""
        resting = self.now()
        with self._lock:
            woke = self._asleep - resting
            self._asleep -= woke
        return bool(woke)
