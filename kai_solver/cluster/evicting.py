"""Evictions through the Eviction API: budgets hold, rates are limited, whoever is refused is left alone for a while."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.resources import PODS

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0
"""How long a pod that a disruption budget protects is not asked for again: twice as long after each refusal."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that a plan sends away, and for whom.

    ``rule``: ``reclaim``, ``preempt``, ``consolidation`` or ``stalegangeviction``; ``message``: the event's text;
    ``target``: where it goes, empty where it only leaves; ``queue``: its own, whose rate it counts towards.
    """

    namespace: str
    name: str
    uid: str
    gang: str
    queue: str
    rule: str
    message: str = ""
    helps: tuple[str, ...] = ()
    target: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Departed:
    """What became of it: gone or going; else why not, and whether a budget said so."""

    departure: Departure
    refused: str = ""
    by_budget: bool = False


@dataclass(frozen=True, slots=True)
class Rates:
    """The most pods that may be evicted in one cycle, in all and of one queue; 0: no limit."""

    per_cycle: int = 0
    per_queue: int = 0


@dataclass(slots=True)
class _Refusal:
    times: int = 0
    until_s: float = 0.0


@dataclass(slots=True)
class Evictor:
    """Sends pods away; safe to use from any thread."""

    api: Api
    assumed: Assumed
    fence: Callable[[], bool]
    rates: Rates = Rates()
    clock: Callable[[], float] = time.time
    _refusals: dict[str, _Refusal] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def within_rates(self, departures: Iterable[Departure]) -> tuple[list[Departure], list[Departure]]:
        """Which of them may go in this cycle, and which must wait for a later one.

        The pods of one gang that leave for the same others stay together: a gang that loses half of its pods now and
        the rest later would stand still for nothing. Where even the first such group is more than the limit it goes
        all the same, alone, or it would wait for ever.
        """
        groups: dict[tuple[str, tuple[str, ...]], list[Departure]] = {}
        for departure in departures:
            groups.setdefault((departure.gang, departure.helps), []).append(departure)
        going: list[Departure] = []
        waiting: list[Departure] = []
        by_queue: Counter[str] = Counter()
        for group in groups.values():
            queue = group[0].queue
            fits = self._fits(len(going) + len(group), self.rates.per_cycle) or not going
            fits &= self._fits(by_queue[queue] + len(group), self.rates.per_queue) or not by_queue[queue]
            (going if fits else waiting).extend(group)
            by_queue[queue] += len(group) if fits else 0
        return going, waiting

    def protected(self, now_s: float) -> frozenset[str]:
        """Pods (``namespace/name``) that were refused lately and are not to be asked for yet."""
        with self._lock:
            return frozenset(key for key, refusal in self._refusals.items() if now_s < refusal.until_s)

    def evict(self, departure: Departure) -> Departed:
        """Ask for one eviction; a failure is told, never raised."""
        if not self.fence():
            return Departed(departure, "this process no longer leads")
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": departure.name, "namespace": departure.namespace},
            "deleteOptions": {"preconditions": {"uid": departure.uid}},
        }
        try:
            self.api.create(PODS, departure.namespace, body, subresource="eviction")
        except ApiError as error:
            return self._failed(departure, error)
        self.assumed.leaves(departure.key, departure.uid, self.clock())
        with self._lock:
            self._refusals.pop(departure.key, None)
        return Departed(departure)

    def _failed(self, departure: Departure, error: ApiError) -> Departed:
        if error.is_missing or error.is_conflict:
            return Departed(departure, "the pod is gone")
        by_budget = error.status == 429 and "budget" in error.message.lower()
        with self._lock:
            refusal = self._refusals.setdefault(departure.key, _Refusal())
            refusal.times += 1
            wait_s = FIRST_WAIT_S * 2 ** min(refusal.times - 1, 10)
            refusal.until_s = self.clock() + min(LONGEST_WAIT_S, max(wait_s, error.retry_after_s or 0.0))
        return Departed(departure, str(error), by_budget)

    @staticmethod
    def _fits(count: int, limit: int) -> bool:
        return not limit or count <= limit
