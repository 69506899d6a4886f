"""Pods that were bound to a node which vanished before they began: they will never run.

Kubernetes' garbage collector removes them after a minute or more. So long no cycle could decide about their gang, which
would run in part.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.binding import Binder, GangSeats, Seat
from kai_solver.cluster.resources import NODES, PODS, Resource
from kai_solver.cluster.store import Store
from kai_solver.errors.barrier import barrier

GONE_S = 5.0
"""A node must be gone for so long: a kubelet that registers again may have begun the pod."""


@dataclass(slots=True)
class Stranded:
    """Finds and releases them; a listener of the store. Only pods count that this process bound."""

    monotonic: Callable[[], float] = time.monotonic
    _bound: dict[str, tuple[str, Seat]] = field(default_factory=dict)
    _missing: dict[str, float] = field(default_factory=dict)
    """Nodes of such pods that were not there at the last look, and since when."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, resource: Resource, key: str, _before: Object | None, after: Object | None) -> None:
        """Note pods that begin or go."""
        if resource == PODS and (after is None or _has_begun(after)):
            with self._lock:
                self._bound.pop(key, None)

    def watch(self, gangs: Iterable[GangSeats]) -> None:
        """These are being bound."""
        with self._lock:
            self._bound |= {seat.key: (gang.gang, seat) for gang in gangs for seat in gang.seats}

    def release(self, store: Store, binder: Binder, runner: Executor) -> None:
        """Look for them, and release those whose binding is over; to be called now and then."""
        with self._lock:
            bound = tuple(self._bound.values())
        now_s = self.monotonic()
        nodes = {seat.node for _, seat in bound}
        self._missing = {node: self._missing.get(node, now_s) for node in nodes if store.get(NODES, node) is None}
        gone = {node for node, since_s in self._missing.items() if now_s - since_s >= GONE_S}
        if not gone:
            return
        busy = binder.open
        seats: dict[str, list[Seat]] = defaultdict(list)
        for gang, seat in bound:
            if seat.node in gone and gang not in busy and _is_bound(store.get(PODS, seat.key), seat):
                seats[gang].append(seat)
        for gang, theirs in seats.items():
            with barrier("binding", gang):
                binder.strand(GangSeats(gang, tuple(theirs), 0), "its node is gone", runner)


def _has_begun(pod: Object) -> bool:
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase", "Pending") != "Pending"


def _is_bound(pod: Object | None, seat: Seat) -> bool:
    if pod is None or meta(pod).get("uid") != seat.uid:
        return False
    spec = pod.get("spec")
    return isinstance(spec, dict) and spec.get("nodeName") == seat.node
