"""Places that pods were promised: kept from cycle to cycle until the pod has its place, or does not come for it.

A pod that waits for others to leave keeps its node by ``status.nominatedNodeName``. A pod that is moved leaves first,
and its controller makes another in its stead, often under another name: until that one is there, the place is held by a
stand-in that no cycle can evict; when it comes, the promise is its. No place is held for a controller that is gone, or
has as many pods as it wants.
"""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.cluster.resources import PODS, Resource
from kai_solver.kubeobjects import names

COMES_WITHIN_S = 60.0
"""How long after a moved pod is gone its successor is waited for."""

STAND_IN = "kai-solver.promised"
"""Scheduler that stand-ins name: none has this name, so that no cycle touches them."""

MayCome = Callable[[Object, Sequence[Object]], bool]
"""Whether the controller of a pod may create another; given all pods of that controller that are there."""


@dataclass(slots=True)
class _Move:
    """A pod on its way: its last object, where it goes, since when it is gone (None: it is still leaving)."""

    pod: Object
    target: str
    gone_s: float | None = None
    successor: str = ""


class Promises:
    """Promises by pod; an overlay for `View`, and a listener of the store. Safe to use from any thread."""

    def __init__(self, may_come: MayCome = lambda _pod, _siblings: True) -> None:
        self._may_come = may_come
        self._lock = threading.Lock()
        self._nominated: dict[str, tuple[str, str]] = {}
        self._moves: dict[str, _Move] = {}
        self.broken = 0
        """How many moved pods never came back."""

    def nominate(self, places: Mapping[str, tuple[str, str]]) -> None:
        """All promises of the newest plan to pods that wait: (uid, node) by pod; earlier ones are void."""
        with self._lock:
            self._nominated = dict(places)

    @property
    def has_nominated(self) -> bool:
        """Whether pods wait for places that others leave."""
        return bool(self._nominated)

    def move(self, pod: Object, target: str) -> None:
        """The pod is being evicted and is to run on ``target`` again."""
        with self._lock:
            self._moves[key_of(pod)] = _Move(pod, target)

    def stays(self, key: str, uid: str) -> None:
        """The pod is not evicted after all."""
        with self._lock:
            move = self._moves.get(key)
            if move is not None and _uid(move.pod) == uid:
                del self._moves[key]

    def clear(self) -> None:
        """No promise stands any more."""
        with self._lock:
            self._nominated.clear()
            self._moves.clear()

    def __len__(self) -> int:
        return len(self._moves)

    def __call__(self, resource: Resource, key: str, _before: Object | None, after: Object | None) -> None:
        """A change in the store: a promise is kept as soon as its pod has a node, for the pod may be gone by the next
        cycle.
        """
        if resource == PODS and after is not None and node_name(after) and self._moves:
            with self._lock:
                self._moves = {moved: move for moved, move in self._moves.items() if move.successor != key}

    @property
    def end_s(self) -> float:
        """Epoch seconds at which the next place is given up if no pod comes for it; infinite if none is held."""
        with self._lock:
            since = [move.gone_s for move in self._moves.values() if move.gone_s is not None and not move.successor]
        return min(since, default=float("inf")) + COMES_WITHIN_S

    def overlay(self, pods: tuple[Object, ...], now_s: float) -> tuple[Object, ...]:
        """The pods with their promised nodes, and stand-ins for those that are still to come."""
        with self._lock:
            if not self._moves and not self._nominated:
                return pods
            keys = [key_of(pod) for pod in pods]
            by_key = dict(zip(keys, pods, strict=True))
            if self._moves:
                self._follow(by_key, now_s)
            promised = {key: node for key, (uid, node) in self._nominated.items() if _uid(by_key.get(key)) == uid}
            promised |= {move.successor: move.target for move in self._moves.values() if move.successor}
            promised |= {key: move.target for key, move in self._moves.items() if move.gone_s is None}
            absent = [move for move in self._moves.values() if move.gone_s is not None and not move.successor]
        keyed = zip(keys, pods, strict=True)
        seen = tuple(_nominated(pod, promised[key]) if key in promised else pod for key, pod in keyed)
        return (*seen, *(_stand_in(move) for move in absent))

    def _follow(self, pods: Mapping[str, Object], now_s: float) -> None:
        """Learn which pods are gone, came back, or have a node; give up on those that do not come."""
        taken = {move.successor for move in self._moves.values()}
        by_maker = _by_maker(pods.values(), {_maker(move.pod) for move in self._moves.values()})
        for key, move in list(self._moves.items()):
            here, siblings = pods.get(key), by_maker.get(_maker(move.pod), [])
            is_gone = here is None or _uid(here) != _uid(move.pod)
            may_come = bool(move.successor) or self._may_come(move.pod, siblings)
            if move.gone_s is None:
                if not is_gone and may_come:
                    continue
                move.gone_s = now_s  # or it still leaves, and was replaced by now
            move.gone_s = min(move.gone_s, now_s)  # if the clock was set back
            if not move.successor:
                move.successor = next((one for one in map(key_of, filter(_waits, siblings)) if one not in taken), "")
                taken.add(move.successor)
            if move.successor:
                self._settle(key, move, pods.get(move.successor))
            elif not may_come:
                del self._moves[key]
            elif now_s - move.gone_s > COMES_WITHIN_S:
                del self._moves[key]
                self.broken += 1

    def _settle(self, key: str, move: _Move, successor: Object | None) -> None:
        """The promise is kept, or its pod no longer exists."""
        if successor is None:
            move.successor = ""
        elif node_name(successor):
            del self._moves[key]


def _by_maker(pods: Iterable[Object], makers: set[str]) -> dict[str, list[Object]]:
    """Pods of these owners, oldest first."""
    found: dict[str, list[Object]] = {}
    for pod in pods:
        if (maker := _maker(pod)) in makers:
            found.setdefault(maker, []).append(pod)
    for siblings in found.values():
        siblings.sort(key=lambda pod: (str(meta(pod).get("creationTimestamp", "")), key_of(pod)))
    return found


def _waits(pod: Object) -> bool:
    return not node_name(pod) and not meta(pod).get("deletionTimestamp")


def _maker(pod: Object) -> str:
    """The pod's controller: namespace and uid; without a controller a pod only comes back under its own name.

    A pod of another namespace that states the same uid does not belong to that controller.
    """
    owners = meta(pod).get("ownerReferences")
    for owner in owners if isinstance(owners, list) else ():
        if isinstance(owner, dict) and owner.get("controller"):
            return f"{meta(pod).get('namespace')} {owner.get('uid')}"
    return f"pod {key_of(pod)}"


def _uid(pod: Object | None) -> str:
    return str(meta(pod).get("uid", "")) if pod is not None else ""


def node_name(pod: Object) -> str:
    """The node of a pod; empty where it has none, or its spec cannot be read."""
    spec = pod.get("spec")
    return str(spec.get("nodeName") or "") if isinstance(spec, dict) else ""


def _nominated(pod: Object, node: str) -> Object:
    status = pod.get("status") if isinstance(pod.get("status"), dict) else {}
    if status and status.get("nominatedNodeName") == node:
        return pod
    return {**pod, "status": {**(status or {}), "nominatedNodeName": node}}


def _stand_in(move: _Move) -> Object:
    """Holds the place: the pod's request on its new node, of a scheduler that does not exist."""
    spec: dict[str, Any] = dict(move.pod.get("spec") or {})
    kept = {name: spec[name] for name in ("containers", "initContainers", "overhead") if name in spec}
    metadata = meta(move.pod)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": metadata.get("namespace"),
            "name": f"{metadata.get('name')}{names.PROMISED}",
            "uid": f"{metadata.get('uid')}{names.PROMISED}",
            "annotations": metadata.get("annotations") or {},
        },
        "spec": {**kept, "nodeName": move.target, "schedulerName": STAND_IN},
        "status": {"phase": "Running"},
    }
