"""Evictions through the Eviction API: budgets hold, rates are limited, whoever is refused is left alone for a while.

First the pod is told why (condition ``DisruptionTarget``, as kube-scheduler does it), then it is evicted: no pod ever
leaves without its cause. Who may stay after all is told that, too.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.resources import PODS
from kai_solver.kubeobjects.raw import format_time

TARGET, REASON = "DisruptionTarget", "PreemptionByScheduler"
"""Condition of a pod that is to leave, and its reason as kube-scheduler has it."""

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0
"""How long a pod that a disruption budget protects is not asked for again: twice as long after each refusal."""

FORGOTTEN_S = 600.0
"""A pod that nobody asked for so long after it might have been asked for again is as if it had never been refused."""


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

    @property
    def cause(self) -> str:
        """By which rule, why, and for whom."""
        where = f"; it goes to {self.target} for {', '.join(self.helps)}" if self.target else ""
        return f"{self.rule}: {self.message}{where}"


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
            self._refusals = {
                key: found for key, found in self._refusals.items() if now_s < found.until_s + FORGOTTEN_S
            }
            return frozenset(key for key, refusal in self._refusals.items() if now_s < refusal.until_s)

    def evict(self, departure: Departure) -> Departed:
        """Ask for one eviction; a failure is told, never raised."""
        try:
            for act in (self._announce, self._send):
                if not self.fence():
                    return Departed(departure, "this process no longer leads")
                act(departure)
        except ApiError as error:
            return self._failed(departure, error)
        self.assumed.leaves(departure.key, departure.uid, self.clock())
        with self._lock:
            self._refusals.pop(departure.key, None)
        return Departed(departure)

    def _announce(self, departure: Departure) -> None:
        self._tell(departure, "True", REASON, departure.cause)

    def _send(self, departure: Departure) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": departure.name, "namespace": departure.namespace},
            "deleteOptions": {"preconditions": {"uid": departure.uid}},
        }
        self.api.create(PODS, departure.namespace, body, subresource="eviction")

    def _tell(self, departure: Departure, status: str, reason: str, message: str) -> None:
        """Say on the pod whether it is to leave, and why."""
        condition = {"type": TARGET, "status": status, "reason": reason, "message": message}
        condition["lastTransitionTime"] = format_time(int(self.clock()))
        metadata = {"uid": departure.uid} if departure.uid else {}
        body = {"metadata": metadata, "status": {"conditions": [condition]}}
        self.api.patch(PODS, departure.namespace, departure.name, body, kind="strategic", subresource="status")

    def _failed(self, departure: Departure, error: ApiError) -> Departed:
        if error.is_missing or error.is_conflict:
            return Departed(departure, "the pod is gone")
        with contextlib.suppress(ApiError):  # Kubernetes itself takes it back after two minutes
            self._tell(departure, "False", "EvictionRefused", str(error))
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
