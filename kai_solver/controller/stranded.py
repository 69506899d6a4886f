"""Pods that were bound to a node which vanished before they began: nobody will ever run them.

Kubernetes' garbage collector removes them after a minute or more. So long nobody could decide about their gang, which
would run in part.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.binding import Binder, GangSeats, Seat
from kai_solver.cluster.resources import NODES, PODS, Resource
from kai_solver.cluster.store import Store


@dataclass(slots=True)
class Stranded:
    """Finds and releases them; a listener of the store.

    Only pods count that this process bound, and nodes that it saw go: one that it has not seen yet may be on its way.
    """

    _bound: dict[str, tuple[str, Seat]] = field(default_factory=dict)
    _gone: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, resource: Resource, key: str, _before: Object | None, after: Object | None) -> None:
        """Note nodes that go and come, and pods that begin or go."""
        if resource not in (NODES, PODS):
            return
        with self._lock:
            if resource == NODES:
                (self._gone.add if after is None else self._gone.discard)(key)
            elif after is None or _has_begun(after):
                self._bound.pop(key, None)

    def watch(self, gangs: Iterable[GangSeats]) -> None:
        """These are being bound."""
        with self._lock:
            self._bound |= {seat.key: (gang.gang, seat) for gang in gangs for seat in gang.seats}

    def release(self, store: Store, binder: Binder, runner: Executor) -> bool:
        """Release those whose binding is over; True where some are still being bound."""
        with self._lock:
            found = [(gang, seat) for gang, seat in self._bound.values() if seat.node in self._gone]
        busy = binder.open
        seats: dict[str, list[Seat]] = defaultdict(list)
        for gang, seat in found:
            if gang not in busy and _is_bound(store.get(PODS, seat.key), seat):
                seats[gang].append(seat)
        for gang, theirs in seats.items():
            binder.strand(GangSeats(gang, tuple(theirs), 0), "its node is gone", runner)
        return any(gang in busy for gang, _ in found)


def _has_begun(pod: Object) -> bool:
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase", "Pending") != "Pending"


def _is_bound(pod: Object | None, seat: Seat) -> bool:
    if pod is None or meta(pod).get("uid") != seat.uid:
        return False
    spec = pod.get("spec")
    return isinstance(spec, dict) and spec.get("nodeName") == seat.node
