"""Which gangs wait for which pods to leave.

A gang whose pods must all start together waits for the last pod that is evicted for it. A cycle after each of the
others would only find that it still waits. So a pod that leaves is news at once if it is the last one, or if anything
else waits for its node; otherwise a cycle follows later (`loop.Pace.late_s`).
"""

import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kai_solver.cluster.evicting import Departure
from kai_solver.controller.orders import needed_pods
from kai_solver.domain import Bind, Plan, Snapshot


@dataclass(frozen=True, slots=True)
class Waiting:
    """A gang with promised places; ``is_whole``: it needs all of them before any of its pods can start."""

    gang: str
    nodes: frozenset[str]
    is_whole: bool


def waiting_gangs(snapshot: Snapshot, plan: Plan) -> tuple[Waiting, ...]:
    """Gangs that ``plan`` promises places that others leave; it was made from ``snapshot``."""
    promised: dict[str, list[Bind]] = defaultdict(list)
    for bind in plan.binds:
        if bind.nominated:
            promised[bind.gang].append(bind)
    gangs = {gang.key: gang for gang in snapshot.gangs} if promised else {}
    return tuple(
        Waiting(key, frozenset(bind.node for bind in binds), needed_pods(gangs[key], len(binds)) >= len(binds))
        for key, binds in promised.items()
    )


@dataclass(frozen=True, slots=True)
class _Leaving:
    departure: Departure
    node: str
    gangs: frozenset[str]
    """Whole gangs that it leaves for, and that have a promised place on its node."""


class Awaited:
    """Pods that leave, by uid, and how many each gang still waits for. Safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, _Leaving] = {}
        self._left: Counter[str] = Counter()
        self._promised: dict[str, frozenset[str]] = {}
        """By node, the gangs that have a promised place there."""

    def renew(
        self, departures: Iterable[Departure], waiting: Iterable[Waiting], node_of: Callable[[str, str], str]
    ) -> None:
        """The newest plan: ``departures`` begin, and ``waiting`` are all gangs that have promised places.

        ``node_of``: node of a pod by key and uid; empty if it is not there any more. What an earlier plan ordered goes
        on, for the gangs that still wait on that node.
        """
        waiting = tuple(waiting)
        nodes_of = {one.gang: one.nodes for one in waiting if one.is_whole}
        promised: dict[str, set[str]] = defaultdict(set)
        for one in waiting:
            for node in one.nodes:
                promised[node].add(one.gang)
        with self._lock:  # also while pods are looked up: one that leaves in between would be missed
            known = {uid: pod.departure for uid, pod in self._pods.items()}
            known |= {departure.uid: departure for departure in departures if departure.uid}
            self._promised = {node: frozenset(gangs) for node, gangs in promised.items()}
            self._pods, self._left = {}, Counter()
            for uid, departure in known.items():
                node = node_of(departure.key, uid)
                gangs = frozenset(gang for gang in departure.helps if node in nodes_of.get(gang, ()))
                if gangs:
                    self._pods[uid] = _Leaving(departure, node, gangs)
                    self._left.update(gangs)

    def gone(self, uid: str) -> bool:
        """The pod has left, or stays after all. True if all that waits for its node waits for other pods, too."""
        with self._lock:
            pod = self._pods.pop(uid, None)
            if pod is None:
                return False
            self._left.subtract(pod.gangs)
            return self._promised.get(pod.node, pod.gangs) <= pod.gangs and all(self._left[g] > 0 for g in pod.gangs)

    def clear(self) -> None:
        """No gang waits for a pod."""
        self.renew((), (), lambda _key, _uid: "")

    def __len__(self) -> int:
        return len(self._pods)
