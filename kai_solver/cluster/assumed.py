"""What was done and is not seen yet: between a write and the watch that shows it, cycles count it all the same.

Without this, a cycle that begins before the watch has caught up would give a pod's place away a second time. An
assumption lasts until the API server shows the same, shows that it cannot be (the pod is gone, or another one has its
name), or until it is too old to be believed.
"""

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kai_solver.cluster.api import Object, key_of, meta
from kai_solver.kubeobjects.gpus import group_labels
from kai_solver.kubeobjects.raw import format_time

LONGEST_S = 30.0
"""Seconds after which what nobody confirmed is no longer believed; a watch is behind by far less."""


@dataclass(slots=True)
class _Assumption:
    """One pod's: bound to ``node`` (empty: not), leaving; the last object that it was laid over, and the result.

    ``held``: its binding is under way, however long that takes.
    """

    uid: str
    since_s: float
    node: str = ""
    groups: tuple[str, ...] = ()
    leaving: bool = False
    held: bool = False
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
        self, key: str, uid: str, node: str, now_s: float, groups: tuple[str, ...] = (), *, held: bool = False
    ) -> None:
        """The pod is being bound to ``node``, sharing the devices of ``groups`` there; ``held``: until it ``ended``."""
        with self._lock:
            self._pods[key] = _Assumption(uid, now_s, node=node, groups=groups, held=held)

    def ended(self, key: str, now_s: float) -> None:
        """The pod was bound: the watch should show it soon."""
        with self._lock:
            assumption = self._pods.get(key)
            if assumption is not None:
                assumption.held, assumption.since_s = False, now_s

    def leaves(self, key: str, uid: str, now_s: float) -> None:
        """The pod is being evicted."""
        with self._lock:
            self._pods[key] = _Assumption(uid, now_s, leaving=True)

    def forget(self, key: str) -> None:
        """It was not done after all."""
        with self._lock:
            self._pods.pop(key, None)

    def __len__(self) -> int:
        return len(self._pods)

    def overlay(self, pods: Iterable[Object], now_s: float) -> tuple[Object, ...]:
        """The pods as they will be; pods that nothing is assumed of are the very same objects."""
        with self._lock:
            self._expire(now_s)
            if not self._pods:
                return tuple(pods)
            left = set(self._pods)
            found = tuple(self._laid(pod, left) for pod in pods)
            for key in left:
                del self._pods[key]  # the pod is gone
            return found

    def _expire(self, now_s: float) -> None:
        for key, assumption in list(self._pods.items()):
            if not assumption.held and now_s - assumption.since_s > LONGEST_S:
                del self._pods[key]
                self.expired += 1

    def _laid(self, pod: Object, left: set[str]) -> Object:
        key = key_of(pod)
        assumption = self._pods.get(key)
        if assumption is None:
            return pod
        left.discard(key)
        if _is_settled(pod, assumption):
            del self._pods[key]
            return pod
        if assumption.over is not pod or assumption.result is None:
            assumption.over, assumption.result = pod, _changed(pod, assumption)
        return assumption.result


def _is_settled(pod: Object, assumption: _Assumption) -> bool:
    """Whether the API server has the last word by now."""
    metadata, spec = meta(pod), pod.get("spec")
    if metadata.get("uid") != assumption.uid or metadata.get("deletionTimestamp"):
        return True
    return bool(assumption.node and isinstance(spec, dict) and spec.get("nodeName"))


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
    return changed
