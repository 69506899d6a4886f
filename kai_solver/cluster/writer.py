"""Writes that can wait: statuses, events and notes on objects, in the background, few and late.

A wish that is not yet written is replaced by a newer one for the same thing. Between two writes there is a pause, 20
times as long while gangs are being bound. Several threads may write, but never the same thing at once. What fails for a
while is tried again, later each time, and after all that has not failed. What fails for good is dropped and counted: a
report is lost, no action, and the next cycle reports again. Both are told, seldom: see `Writer.complain`.

All writes wait only where the server itself is in trouble. A fault of its own (500) may be that of a webhook for some
objects alone, and may last for days: no other object waits for that.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum

from kai_solver.cluster.api import ApiError, FenceError
from kai_solver.errors.barrier import caught

LONGEST_WAIT_S = 30.0
_FIRST_WAIT_S = 0.2
_BUSY = 20
"""How many times as long the pauses are while gangs are being bound, and after writes of a kind that fails."""

_SEVERAL = 3
"""A kind fails where so many of its objects failed since one was written last."""

_AWAY = (0, 429, 503)
"""Answers that say nothing of the object: the server is away, or has too much to do."""

REMEMBERED_S = 600.0
"""How long it is remembered when a key was written: no wish waits longer for its turn (`Wish.every_s`)."""

TOLD_AGAIN_S = 3600.0
"""A failure is told again after so long."""

_MOST_TOLD = 10
"""Objects of one kind that are named in warnings with one reason in that time: without a right, every write fails."""

_TOLD_TRIES = 8
"""Failed tries in a row after which that is told: about a minute, so a webhook that restarts is not."""

_IDLE_S = 0.5


class Order(IntEnum):
    """What is written first."""

    NOW = 0
    SOON = 1
    LATER = 2
    LATE = 3
    LAST = 4


Key = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wish:
    """Something to write.

    Attributes
    ----------
    key
        What it is about: a newer wish with the same key takes its place. First the kind, last what is written of the
        object.
    act
        Does it; False where there was nothing to do. May raise `ApiError`.
    every_s
        Not sooner than so long after the last write with this key; at most `REMEMBERED_S`.
    """

    key: Key
    act: Callable[[], bool]
    order: Order = Order.SOON
    every_s: float = 0.0


@dataclass(slots=True)
class Counts:
    """How many wishes were written, dropped since the server refused them for good, or since there were too many.

    ``failed``: tries that failed and are made again.
    """

    written: int = 0
    failed: int = 0
    refused: int = 0
    dropped: int = 0


@dataclass(slots=True)
class Writer:
    """Wishes and their writer: some threads call `step` again and again; any thread may wish.

    Attributes
    ----------
    fence
        Nothing is written where it says no.
    busy
        Whether gangs are being bound: they come first.
    rate
        The most writes a second, of all threads together.
    most
        So many may wait; beyond it events and sums (`Order.LATER`, `Order.LAST`) are dropped.
    complain
        Called where writes of an object were refused for good, or fail again and again: for each object and reason once
        an hour, and for at most 10 objects of a kind with one reason.
    """

    fence: Callable[[], bool]
    busy: Callable[[], bool] = lambda: False
    rate: float = 100.0
    most: int = 20_000
    monotonic: Callable[[], float] = time.monotonic
    complain: Callable[[Key, ApiError], None] = lambda _key, _error: None
    counts: Counts = field(default_factory=Counts)
    _wishes: dict[Key, Wish] = field(default_factory=dict)
    _ready: list[tuple[bool, int, int, Key]] = field(default_factory=list)
    """What is due: what has failed, or is of a kind that fails, comes after all else."""
    _later: list[tuple[float, int, Key]] = field(default_factory=list)
    _queued: dict[Key, Order] = field(default_factory=dict)
    """Keys in these heaps, also of wishes that were cancelled: they are not put in again."""
    _failed: dict[Key, tuple[int, float]] = field(default_factory=dict)
    """How often the writes of a key failed in a row, and when the next try is due."""
    _failing: dict[str, set[Key]] = field(default_factory=dict)
    """By kind, keys that failed since one of the kind was written; not more than `_SEVERAL`."""
    _written_s: dict[Key, float] = field(default_factory=dict)
    _told: dict[tuple[str, str], dict[Key, float]] = field(default_factory=dict)
    """By kind and reason, the objects of which a failure was told, and when."""
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)
    _writing: set[Key] = field(default_factory=set)
    _held: set[Key] = field(default_factory=set)
    """Keys whose newer wish waits until the older one is written."""
    _next_s: float = float("-inf")
    """When the next write is due."""
    _rested_s: float = float("-inf")
    """Until when a server that failed is left alone."""
    _failures: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._wishes)

    @property
    def is_behind(self) -> bool:
        """Whether wishes are due that no thread has begun to write."""
        return bool(self._ready)

    def wish(self, wish: Wish) -> None:
        """Write it when its turn comes, instead of an older one with this key."""
        with self._lock:
            known = self._wishes.get(wish.key)
            if known is None and wish.order in (Order.LATER, Order.LAST) and len(self._wishes) >= self.most:
                self.counts.dropped += 1
                return
            self._wishes[wish.key] = wish
            before = self._queued.get(wish.key)
            if before is None or wish.order < before:
                self._queue(wish)

    def waits(self, key: Key) -> bool:
        """Whether a wish with this key is still to be written."""
        return key in self._wishes

    def cancel(self, key: Key) -> None:
        """There is nothing to write any more."""
        with self._lock:
            self._wishes.pop(key, None)

    def forget(self, key: Key) -> None:
        """There is nothing to write any more, and no wish with this key will come: forget when it was written, too."""
        with self._lock:
            self._wishes.pop(key, None)
            self._written_s.pop(key, None)
            self._failed.pop(key, None)

    def step(self) -> float | None:
        """Write the next wish; seconds to pause before the next one, None where none is due."""
        if not self.fence():
            return _IDLE_S
        if (rest_s := self._rested_s - self.monotonic()) > 0:
            return rest_s
        wish = self._next()
        if wish is None:
            return None
        try:
            return self._written(wish)
        finally:
            self._release(wish.key)

    def _written(self, wish: Wish) -> float:
        """Write it; seconds to pause."""
        try:
            written = wish.act()
        except FenceError:
            self._again(wish)
            return _IDLE_S
        except ApiError as error:
            return self._refused(wish, error)
        except Exception as error:  # an object of unforeseen form: the others are written all the same
            caught("reporting", " ".join(wish.key), error)
            return self._refused(wish, ApiError(400, type(error).__name__, str(error)))
        with self._lock:
            self._failures = 0
            self._failed.pop(wish.key, None)
            if not written:
                return 0.0
            self._failing.pop(wish.key[0], None)
            self.counts.written += 1
            self._forget()
            self._written_s.pop(wish.key, None)
            self._written_s[wish.key] = self.monotonic()
            return self._pause_s((_BUSY if self.busy() else 1) / self.rate)

    def _pause_s(self, least_s: float) -> float:
        """Seconds until the next write is due: ``least_s`` after the one that was due last."""
        now_s = self.monotonic()
        self._next_s = max(self._next_s, now_s) + least_s
        return self._next_s - now_s

    def drain(self, limit_s: float) -> None:
        """Write what is due without pauses, for at most ``limit_s`` seconds; a server that fails ends it."""
        ends_s = self.monotonic() + limit_s
        while self._failures == 0 and self.monotonic() < ends_s and self.fence() and self.step() is not None:
            pass

    def _queue(self, wish: Wish) -> None:
        due_s = self._due_s(wish)
        self._queued[wish.key] = wish.order
        if due_s <= self.monotonic():
            self._push(wish)
        else:
            heapq.heappush(self._later, (due_s, next(self._numbers), wish.key))

    def _push(self, wish: Wish) -> None:
        """It is due."""
        is_last = wish.key in self._failed or self._fails(wish.key)
        heapq.heappush(self._ready, (is_last, wish.order, next(self._numbers), wish.key))

    def _fails(self, key: Key) -> bool:
        """Whether its kind fails."""
        return len(self._failing.get(key[0], ())) >= _SEVERAL

    def _next(self) -> Wish | None:
        """The first of those that are due, which is taken off; a key in a heap without a wish was cancelled."""
        with self._lock:
            while self._later and self._later[0][0] <= self.monotonic():
                key = heapq.heappop(self._later)[2]
                if key in self._wishes:
                    self._push(self._wishes[key])
                else:
                    self._queued.pop(key, None)
            while self._ready:
                is_last, _, _, key = heapq.heappop(self._ready)
                self._queued.pop(key, None)
                wish = self._wishes.get(key)
                if wish is None:
                    continue
                if key in self._writing:
                    self._held.add(key)
                elif self._due_s(wish) > self.monotonic() or (self._fails(key) and not is_last):
                    self._queue(wish)
                else:
                    self._writing.add(key)
                    return self._wishes.pop(key)
        return None

    def _release(self, key: Key) -> None:
        """It is written: a newer wish with this key may follow."""
        with self._lock:
            self._writing.discard(key)
            if key in self._held:
                self._held.discard(key)
                if key in self._wishes:
                    self._queue(self._wishes[key])

    def _due_s(self, wish: Wish) -> float:
        last_s = self._written_s.get(wish.key)
        due_s = float("-inf") if last_s is None else last_s + wish.every_s
        return max(due_s, self._failed[wish.key][1]) if wish.key in self._failed else due_s

    def _refused(self, wish: Wish, error: ApiError) -> float:
        """Seconds to pause."""
        if error.is_passing:
            return self._put_off(wish, error)
        with self._lock:
            self._failed.pop(wish.key, None)
            self.counts.refused += 1
            is_news = self._is_news(wish.key, error)
            pause_s = self._pause_s(1 / self.rate)
        if is_news:
            self.complain(wish.key, error)
        return pause_s

    def _is_news(self, key: Key, error: ApiError) -> bool:
        """Whether to tell of a failure; if so it is noted as told."""
        now_s, told = self.monotonic(), self._told.setdefault((key[0], error.reason), {})
        while told and (first := next(iter(told.items())))[1] <= now_s - TOLD_AGAIN_S:
            del told[first[0]]
        subject = key[:-1] or key
        if subject in told or len(told) >= _MOST_TOLD:
            return False
        told[subject] = now_s
        return True

    def _put_off(self, wish: Wish, error: ApiError) -> float:
        """Have it tried again later; seconds to pause, for all threads where the server is in trouble."""
        with self._lock:
            self._forget()
            times = self._failed.pop(wish.key, (0, 0.0))[0] + 1
            self._failed[wish.key] = times, self.monotonic() + _wait_s(times, error)
            failing = self._failing.setdefault(wish.key[0], set())
            if len(failing) < _SEVERAL:
                failing.add(wish.key)
            is_failing = self._fails(wish.key)
            self.counts.failed += 1
            is_long = times >= _TOLD_TRIES and error.status not in _AWAY
            is_news = is_long and self._is_news(wish.key, error)
        self._again(wish)
        if is_news:
            self.complain(wish.key, error)
        if error.status in _AWAY:
            return self._rest_s(error)
        with self._lock:
            return self._pause_s((_BUSY if is_failing or self.busy() else 1) / self.rate)

    def _rest_s(self, error: ApiError) -> float:
        """Seconds that the server is left alone, by all threads; writes that fail together count as one failure."""
        with self._lock:
            now_s = self.monotonic()
            if now_s >= self._rested_s:
                self._failures += 1
                self._rested_s = now_s + _wait_s(self._failures, error)
            return self._rested_s - now_s

    def _again(self, wish: Wish) -> None:
        """It is tried again, unless there is a newer one by now."""
        with self._lock:
            if wish.key not in self._wishes:
                self._wishes[wish.key] = wish
                self._queue(wish)

    def _forget(self) -> None:
        """Forget what was written, or failed, long ago; the oldest are first."""
        since_s = self.monotonic() - REMEMBERED_S
        while self._written_s and (first := next(iter(self._written_s.items())))[1] <= since_s:
            del self._written_s[first[0]]
        while self._failed and (oldest := next(iter(self._failed.items())))[1][1] <= since_s:
            del self._failed[oldest[0]]


def _wait_s(times: int, error: ApiError) -> float:
    """Until the next try after so many failures: as long as the server asked for, or twice as long each time."""
    wait_s: float = _FIRST_WAIT_S * 2 ** min(times, 10)
    return min(LONGEST_WAIT_S, max(wait_s, error.retry_after_s or 0.0))
