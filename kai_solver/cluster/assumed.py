"""What was done and is not seen yet: between a write and the watch that shows it, cycles count it all the same.

Without this, a cycle that begins before the watch has caught up would give a pod's place away a second time. An
assumption lasts until the API server shows the same, or shows that it cannot be (the pod is gone, or another one has
its name). A binding is believed however long that takes, for a watch may be silent for minutes; what is not
known (was it bound, will it leave) only for a while.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.kubeobjects.gpus import group_labels
from kai_solver.kubeobjects.raw import format_time

LONGEST_S = 30.0
"""Seconds after which what is not certain is no longer believed; a watch is seldom behind by so much."""


@dataclass(slots=True)
class _Assumption:
    """One pod's: bound to ``node`` (empty: not), leaving; the last object that it was laid over, and the result.

    ``certain``: it stands until it is seen or taken back; else it is believed for `LONGEST_S`.
    """

    uid: str
    since_s: float
    node: str = ""
    groups: tuple[str, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    leaving: bool = False
    certain: bool = False
    over: Object | None = None
    result: Object | None = None


class Assumed:
    """Assumptions by pod; safe to use from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pods: dict[str, _Assumption] = {}
        self.expired = 0
        """How many were never confirmed."""

    def bound(
        self,
        key: str,
        uid: str,
        node: str,
        now_s: float,
        groups: tuple[str, ...] = (),
        annotations: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """The pod is being bound to ``node``, or is, with ``annotations``; sharing the devices of ``groups`` there."""
        with self._lock:
            self._pods[key] = _Assumption(uid, now_s, node, groups, annotations, certain=True)

    def doubted(self, key: str, uid: str, now_s: float) -> None:
        """It counts for a while only, also after `forget`: the outcome is not known, or will be seen."""
        with self._lock:
            assumption = self._certain(key, uid)
            if assumption is not None:
                assumption.certain, assumption.since_s = False, now_s

    def leaves(self, key: str, uid: str, now_s: float, *, certain: bool = False) -> None:
        """The pod is being deleted, and has the place that it was given until it is gone.

        ``certain``: it counts until it is seen, or until `doubted` or `forget` is called.
        """
        with self._lock:
            before = self._pods.get(key)
            given = before if before is not None and before.uid == uid else _Assumption(uid, now_s)
            place = given.node, given.groups, given.annotations
            self._pods[key] = _Assumption(uid, now_s, *place, leaving=True, certain=certain)

    def forget(self, key: str, uid: str) -> None:
        """The pod was not bound after all."""
        with self._lock:
            if self._certain(key, uid) is not None:
                del self._pods[key]

    def stays(self, key: str, uid: str) -> None:
        """The pod does not leave after all."""
        with self._lock:
            if self._certain(key, uid) is not None:
                self._drop(key)

    def clear(self) -> None:
        """Nothing is assumed any more: everything is read again."""
        with self._lock:
            self._pods.clear()

    def __len__(self) -> int:
        return len(self._pods)

    def expected(self, pod: Object) -> Object:
        """The pod as it will be, as far as something is assumed of it; else the very same object."""
        with self._lock:
            assumption = self._pods.get(key_of(pod))
            return pod if assumption is None or _is_settled(pod, assumption) else _changed(pod, assumption)

    def overlay(self, pods: Iterable[Object], now_s: float) -> tuple[Object, ...]:
        """The pods as they will be; pods that nothing is assumed of are the very same objects.

        ``now_s``: when ``pods`` were looked at, or before: what was assumed later they do not refute.
        """
        with self._lock:
            self._expire(now_s)
            if not self._pods:
                return tuple(pods)
            left = set(self._pods)
            found = tuple(self._laid(pod, left, now_s) for pod in pods)
            for key in left:
                self._settle(key, now_s)  # the pod is gone
            return found

    def _certain(self, key: str, uid: str) -> _Assumption | None:
        """What is assumed of this pod for certain; another one of that name is not meant."""
        assumption = self._pods.get(key)
        return assumption if assumption is not None and assumption.certain and assumption.uid == uid else None

    def _expire(self, now_s: float) -> None:
        for key, assumption in list(self._pods.items()):
            if not assumption.certain and now_s - assumption.since_s > LONGEST_S:
                self._drop(key)
                self.expired += 1

    def _drop(self, key: str) -> None:
        """Drop the assumption; a pod that stays keeps its place, even if no watch has shown its binding yet."""
        old = self._pods.pop(key)
        if old.leaving and old.node:
            self._pods[key] = _Assumption(old.uid, old.since_s, old.node, old.groups, old.annotations, certain=True)

    def _laid(self, pod: Object, left: set[str], now_s: float) -> Object:
        key = key_of(pod)
        assumption = self._pods.get(key)
        if assumption is None:
            return pod
        left.discard(key)
        if _is_settled(pod, assumption):
            self._settle(key, now_s)
            return pod
        if assumption.over is not pod or assumption.result is None:
            assumption.over, assumption.result = pod, _changed(pod, assumption)
        return assumption.result

    def _settle(self, key: str, now_s: float) -> None:
        if self._pods[key].since_s <= now_s:
            del self._pods[key]


def _is_settled(pod: Object, assumption: _Assumption) -> bool:
    """Whether the API server has the last word by now."""
    metadata, spec = meta(pod), pod.get("spec")
    if metadata.get("uid") != assumption.uid or metadata.get("deletionTimestamp"):
        return True
    return bool(assumption.node and not assumption.leaving and isinstance(spec, dict) and spec.get("nodeName"))


def _changed(pod: Object, assumption: _Assumption) -> Object:
    metadata: dict[str, Any] = dict(meta(pod))
    spec = pod.get("spec")
    changed: dict[str, Any] = {**pod, "metadata": metadata}
    if assumption.leaving:
        metadata["deletionTimestamp"] = format_time(assumption.since_s)
    if assumption.node:
        changed["spec"] = {**(spec if isinstance(spec, dict) else {}), "nodeName": assumption.node}
    if assumption.groups:
        metadata["labels"] = (metadata.get("labels") or {}) | group_labels(assumption.groups)
    if assumption.annotations:
        metadata["annotations"] = (metadata.get("annotations") or {}) | dict(assumption.annotations)
    return changed
