"""Evictions through the Eviction API: budgets hold, rates are limited, refused pods are left alone for a while.

They go on beside the cycles, for a webhook may take its time: a pod counts as leaving from the moment at
which that is decided, until the answer is there.

First the pod gets the reason (condition ``DisruptionTarget``, as kube-scheduler does it), then it is evicted: no pod
leaves without a reason. The Eviction API then writes over it; the event of the pod keeps the reason. If the pod stays
after all, its condition says that, too.
"""

import contextlib
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError, FenceError, meta
from kai_solver.cluster.assumed import Assumed
from kai_solver.cluster.resources import PODS
from kai_solver.errors.barrier import barrier, caught
from kai_solver.kubeobjects.raw import format_time

TARGET, REASON = "DisruptionTarget", "PreemptionByScheduler"
"""Condition of a pod that is to leave, and its reason as kube-scheduler has it."""

FIRST_WAIT_S = 5.0
LONGEST_WAIT_S = 300.0
"""How long a pod that a disruption budget protects is not asked for again: twice as long after each refusal."""

FORGOTTEN_S = 600.0
"""Seconds after which a refusal is forgotten, unless the pod's eviction is asked for again."""


FRESH_S = 10.0
"""Seconds after its decision from which an eviction is not asked for any more: the reasons may be gone."""


@dataclass(frozen=True, slots=True)
class Departure:
    """A pod that a plan evicts or moves, and the workload that needs its place.

    ``rule``: ``reclaim``, ``preempt``, ``consolidation``, ``drain`` or ``stalegangeviction``; ``message``: the text of
    the event; ``target``: where it goes, empty where it only leaves; ``queue``: its own; the eviction counts
    towards the rate of that queue.
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
        """The rule, the reason, and the workload that needs the place."""
        gangs = f" for {', '.join(self.helps)}" if self.helps else ""
        where = f"; it goes to {self.target}{gangs}" if self.target else ""
        return f"{self.rule}: {self.message}{where}"


@dataclass(frozen=True, slots=True)
class Departed:
    """What became of it: gone or going since ``at_s`` (monotonic); else why not, and what says so.

    ``put_off``: the API server was not asked; it is decided again.
    """

    departure: Departure
    refused: str = ""
    by_budget: bool = False
    put_off: bool = False
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Rates:
    """The most pods that may be evicted in one cycle, in all and of one queue; 0: no limit."""

    per_cycle: int = 0
    per_queue: int = 0


@dataclass(slots=True)
class _Refusal:
    """``wait_s``: how long the pod is left alone after the last one, which ends at ``until_s``."""

    times: int = 0
    wait_s: float = 0.0
    until_s: float = 0.0


Reported = Callable[[tuple[Departed, ...]], None]


@dataclass(slots=True)
class _Batch:
    """Evictions that were decided together; ``done`` is called when the last one has ended."""

    size: int
    ordered_s: float
    done: Reported
    ended: list[Departed] = field(default_factory=list)


@dataclass(slots=True)
class Evictor:
    """Evicts pods; safe to use from any thread.

    ``budgets_count``: whether disruption budgets of a namespace hold evictions.
    """

    api: Api
    assumed: Assumed
    fence: Callable[[], bool]
    rates: Rates = Rates()
    clock: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic
    budgets_count: Callable[[str], bool] = lambda _: True
    _open: dict[tuple[str, str], Departure] = field(default_factory=dict)
    """Evictions under way, by the pod's key and uid."""
    _refusals: dict[str, _Refusal] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def at_work(self) -> bool:
        """Whether evictions are under way."""
        return bool(self._open)

    def submit(self, departures: Sequence[Departure], runner: Executor, done: Reported) -> None:
        """Evict them in ``runner``; they count as leaving from now on. ``done`` is called there when all ended."""
        batch, now_s = _Batch(len(departures), self.monotonic(), done), self.clock()
        for departure in departures:
            self.assumed.leaves(departure.key, departure.uid, now_s, certain=True)
        with self._lock:
            self._open |= {(departure.key, departure.uid): departure for departure in departures}
        for departure in departures:
            runner.submit(self._in_turn, departure, batch)

    def _in_turn(self, departure: Departure, batch: _Batch) -> None:
        key, uid = departure.key, departure.uid
        outcome = Departed(departure, "earlier evictions took too long", put_off=True)
        with barrier("evicting", key):
            if self.monotonic() - batch.ordered_s <= FRESH_S:
                outcome = self.evict(departure)
            if outcome.refused:
                self.assumed.stays(key, uid)
            else:
                self.assumed.doubted(key, uid, self.clock())
        with self._lock:
            batch.ended.append(outcome)
            is_whole = len(batch.ended) == batch.size
        if is_whole:
            with barrier("evicting", departure.key):
                batch.done(tuple(batch.ended))
        with self._lock:
            del self._open[key, uid]

    def within_rates(self, departures: Iterable[Departure]) -> tuple[list[Departure], list[Departure]]:
        """Which of them may go in this cycle, and which must wait for a later one.

        The pods of one gang that leave for the same others stay together: a gang that loses half of its pods now and
        the rest later would stand still for nothing. Where even the first such group is more than the limit it goes
        all the same, alone, or it would wait for ever. Those that are still under way count.
        """
        groups: dict[tuple[str, tuple[str, ...]], list[Departure]] = {}
        for departure in departures:
            groups.setdefault((departure.gang, departure.helps), []).append(departure)
        going: list[Departure] = []
        waiting: list[Departure] = []
        with self._lock:
            by_queue = Counter(departure.queue for departure in self._open.values())
        for group in groups.values():
            queue, count = group[0].queue, by_queue.total()
            fits = self._fits(count + len(group), self.rates.per_cycle) or not count
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
            for refusal in self._refusals.values():
                refusal.until_s = min(refusal.until_s, now_s + refusal.wait_s)  # if the clock was set back
            return frozenset(key for key, refusal in self._refusals.items() if now_s < refusal.until_s)

    def evict(self, departure: Departure) -> Departed:
        """Ask for one eviction; a failure is returned, never raised."""
        try:
            for act in (self._announce, self._send):
                if not self.fence():
                    return Departed(departure, str(FenceError()))
                act(departure)
        except FenceError as error:
            return Departed(departure, str(error))
        except ApiError as error:
            if not self.fence():  # the connection was cut: nothing was refused
                return Departed(departure, str(FenceError()))
            return self._failed(departure, error)
        except Exception as error:  # an object of unforeseen form: it is left alone for a while, too
            caught("evicting", departure.key, error)
            return self._failed(departure, ApiError(400, type(error).__name__, str(error)))
        with self._lock:
            self._refusals.pop(departure.key, None)
        return Departed(departure, at_s=self.monotonic())

    def _announce(self, departure: Departure) -> None:
        self._write_condition(departure, "True", REASON, departure.cause)

    def _send(self, departure: Departure) -> None:
        body = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": departure.name, "namespace": departure.namespace},
            "deleteOptions": {"preconditions": {"uid": departure.uid}},
        }
        try:
            if self.budgets_count(departure.namespace):
                self.api.create(PODS, departure.namespace, body, subresource="eviction")
            else:  # the Eviction API would heed them all the same
                self.api.delete(PODS, departure.namespace, departure.name, uid=departure.uid)
        except ApiError as error:
            if not (error.is_unclear and self._is_leaving(departure)):
                raise

    def _is_leaving(self, departure: Departure) -> bool:
        """Whether the pod leaves, or is gone: only the answer got lost. Else it stays, as far as can be seen."""
        try:
            pod = meta(self.api.get(PODS, departure.namespace, departure.name))
        except ApiError as error:
            return error.is_missing
        return bool(pod.get("deletionTimestamp")) or departure.uid not in ("", pod.get("uid"))

    def _write_condition(self, departure: Departure, status: str, reason: str, message: str) -> None:
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
            self._write_condition(departure, "False", "EvictionRefused", str(error))
        by_budget = error.status == 429 and "budget" in error.message.lower()
        with self._lock:
            refusal = self._refusals.setdefault(departure.key, _Refusal())
            refusal.times += 1
            wait_s = FIRST_WAIT_S * 2 ** min(refusal.times - 1, 10)
            refusal.wait_s = min(LONGEST_WAIT_S, max(wait_s, error.retry_after_s or 0.0))
            refusal.until_s = self.clock() + refusal.wait_s
        return Departed(departure, str(error), by_budget)

    @staticmethod
    def _fits(count: int, limit: int) -> bool:
        return not limit or count <= limit
