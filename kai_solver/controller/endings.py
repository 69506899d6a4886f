"""How work ends: whether evicted pods ended by themselves or were killed, and how long finished gangs took in all."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.binding import GangBound
from kai_solver.cluster.evicting import Departed
from kai_solver.cluster.resources import PODS, Resource
from kai_solver.cluster.store import Store
from kai_solver.controller.loop import Cycle, Evicted
from kai_solver.domain import Gang, PodStatus
from kai_solver.metrics import Metrics

_DEFAULT_GRACE_S = 30.0
_LONGEST_GRACE_S = 2**31
_GIVEN_UP_S = 3600.0
_REMEMBERED = 1000
"""Pods that went lately; one may be gone before the last eviction of its cycle has ended."""


@dataclass(frozen=True, slots=True)
class _Leaver:
    since_s: float
    grace_s: float


@dataclass(slots=True)
class Endings:
    """A `Reporter`, and a listener of the store.

    A pod whose containers still run when its grace is over is killed; the API server forgets it then. So a pod that
    is gone before has ended by itself, and one that is gone only after was killed.
    """

    metrics: Metrics
    store: Store
    monotonic: Callable[[], float] = time.monotonic
    _leaving: dict[tuple[str, str], _Leaver] = field(default_factory=dict)
    _gone: dict[tuple[str, str], float] = field(default_factory=dict)
    _complete: set[tuple[str, str]] = field(default_factory=set)
    _teams: set[str] = field(default_factory=set)
    """Queues that have a series."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def cycle(self, cycle: Cycle) -> None:
        """Which gangs are complete. Users may name queues that do not exist: these have no series."""
        queues = {queue.name for queue in cycle.snapshot.queues}
        for team in self._teams - queues:
            self.metrics.completion.remove(team)
        self._teams &= queues
        ending = [gang for gang in cycle.snapshot.gangs if gang.pods and gang.pods[0].status is PodStatus.SUCCEEDED]
        done = {(gang.key, gang.uid): gang for gang in ending if _is_complete(gang)}
        for identity, gang in done.items():
            if identity not in self._complete and gang.created_s and gang.queue in queues:
                self._teams.add(gang.queue)
                self.metrics.completion.labels(gang.queue).observe(max(0.0, cycle.snapshot.now_s - gang.created_s))
        self._complete = set(done)

    def bound(self, outcome: GangBound) -> None:
        """Nothing."""

    def evicted(self, evicted: Evicted) -> None:
        """Note the pods that were evicted."""
        for outcome in evicted.outcomes:
            if not outcome.refused:
                self._leaves(outcome)
        now_s = self.monotonic()
        with self._lock:
            self._leaving = {k: v for k, v in self._leaving.items() if now_s - v.since_s < _GIVEN_UP_S}

    def _leaves(self, outcome: Departed) -> None:
        key, uid = identity = outcome.departure.key, outcome.departure.uid
        pod = self.store.get(PODS, key)
        with self._lock:
            self._leaving[identity] = _Leaver(outcome.at_s, _grace_s(pod))
            ended_s = self._gone.get(identity, self.monotonic())
        if pod is None or meta(pod).get("uid") != uid:
            self._ended(identity, ended_s)

    def __call__(self, resource: Resource, key: str, before: Object | None, after: Object | None) -> None:
        """A change in the store."""
        if resource == PODS and before is not None:
            uid = str(meta(before).get("uid", ""))
            if after is None or meta(after).get("uid") != uid:
                self._ended((key, uid), self.monotonic())

    def _ended(self, identity: tuple[str, str], now_s: float) -> None:
        with self._lock:
            leaver = self._leaving.pop(identity, None)
            if leaver is None:
                self._gone[identity] = now_s
                if len(self._gone) > _REMEMBERED:
                    del self._gone[next(iter(self._gone))]
                return
        took_s = max(0.0, now_s - leaver.since_s)  # it may be seen to be gone before the answer says that it leaves
        self.metrics.grace.observe(took_s)
        self.metrics.kills.labels("gracefully" if took_s < leaver.grace_s else "killed").inc()


def _is_complete(gang: Gang) -> bool:
    return all(pod.status is PodStatus.SUCCEEDED for pod in gang.pods)


def _grace_s(pod: Object | None) -> float:
    """Seconds that the pod has to end: as its deletion says, else as its spec does."""
    stated = meta(pod).get("deletionGracePeriodSeconds") if pod is not None else None
    spec: object = pod.get("spec") if pod is not None else None
    if stated is None and isinstance(spec, Mapping):
        stated = spec.get("terminationGracePeriodSeconds")
    if not isinstance(stated, int | float) or not 0 <= stated <= _LONGEST_GRACE_S:
        return _DEFAULT_GRACE_S
    return float(stated)
