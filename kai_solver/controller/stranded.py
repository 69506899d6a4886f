"""Pods that were bound to a node which vanished before they began: no kubelet will ever run them.

Kubernetes' garbage collector removes them after a minute or more. Until then no cycle could decide about their gang,
which would run in part.
"""

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.binding import Binder, GangPlacement, Placement
from kai_solver.cluster.resources import NODES, PODS, Resource
from kai_solver.cluster.resting import Resting
from kai_solver.cluster.store import Store
from kai_solver.errors.barrier import barrier

GONE_S = 5.0
"""Seconds for which a node must be gone: a kubelet that registers again may have begun the pod."""


@dataclass(slots=True)
class Stranded:
    """Finds and releases them; a listener of the store. Only pods count that this process bound."""

    monotonic: Callable[[], float] = time.monotonic
    _bound: dict[str, tuple[str, Placement]] = field(default_factory=dict)
    _missing: dict[str, float] = field(default_factory=dict)
    """Nodes of such pods that were not there at the last look, and since when."""
    _resting: Resting = field(init=False)
    """Pods that were released and are there all the same: something keeps them, or the server refuses."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._resting = Resting(self.monotonic)

    def __call__(self, resource: Resource, key: str, _before: Object | None, after: Object | None) -> None:
        """Note pods that begin or go."""
        if resource == PODS and (after is None or _has_begun(after)):
            with self._lock:
                self._bound.pop(key, None)

    def watch(self, gangs: Iterable[GangPlacement]) -> None:
        """These are being bound."""
        with self._lock:
            self._bound |= {placement.key: (gang.gang, placement) for gang in gangs for placement in gang.placements}

    def release(self, store: Store, binder: Binder, runner: Executor) -> None:
        """Look for them, and release those whose binding is over; to be called repeatedly."""
        with self._lock:
            # A pod that went before its binding was ordered is no news any more, and would be kept for ever.
            self._bound = {
                key: entry for key, entry in self._bound.items() if _is_there(store.get(PODS, key), entry[1])
            }
            bound = tuple(self._bound.values())
        now_s = self.monotonic()
        nodes = {placement.node for _, placement in bound}
        self._missing = {node: self._missing.get(node, now_s) for node in nodes if store.get(NODES, node) is None}
        gone = {node for node, since_s in self._missing.items() if now_s - since_s >= GONE_S}
        if not gone:
            return
        busy, resting = binder.open, self._resting.now()
        placements: dict[str, list[Placement]] = defaultdict(list)
        for gang, placement in bound:
            if placement.node not in gone or gang in busy or placement.key in resting:
                continue
            if _stays(store.get(PODS, placement.key), placement):
                placements[gang].append(placement)
                self._resting.failed(placement.key)
        for gang, stranded in placements.items():
            with barrier("binding", gang):
                binder.strand(GangPlacement(gang, tuple(stranded), 0), "its node is gone", runner)


def _has_begun(pod: Object) -> bool:
    status = pod.get("status")
    return isinstance(status, dict) and status.get("phase", "Pending") != "Pending"


def _is_there(pod: Object | None, placement: Placement) -> bool:
    return pod is not None and meta(pod).get("uid") == placement.uid


def _stays(pod: Object | None, placement: Placement) -> bool:
    """Whether the pod is on its node, and is not being deleted."""
    if pod is None or not _is_there(pod, placement) or meta(pod).get("deletionTimestamp"):
        return False
    spec = pod.get("spec")
    return isinstance(spec, dict) and spec.get("nodeName") == placement.node
