"""Watches the API server with its own eyes, by raw HTTP, and objects to what must never be.

It shares no code with the scheduler. While the API server is away it misses nothing, because it goes on where its watch
ended. A server that was started again may have forgotten that: then it lists anew and knows every pod that is there;
what came and went meanwhile it cannot have seen (``blind`` counts how often).
"""

import http.client
import json
import re
import ssl
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

GPU = "nvidia.com/gpu"
GANG = "test/gang"
"""Label of pods: the gang they belong to."""
LEAST = "test/least"
"""Label of pods: the fewest of their gang that may run."""

Pod = dict[str, Any]
ENDED = ("Succeeded", "Failed")

CAUSES = re.compile(
    r"(reclaim|preempt): Pod \S+ was preempted by (higher priority )?workload \S+"
    r"|(consolidation|reclaim|preempt): Pod \S+ was .*; it goes to \S+ for \S+"
    r"|drain: Pod \S+ was .*; it goes to \S+"
    r"|stalegangeviction: Workload doesn't meet the minimum required number of pods",
    re.DOTALL,
)
"""What a pod must have been told before it is evicted: by which rule, why, and for whom."""

FIRST_SAID = "PreemptionByScheduler"
"""Reason of the condition that says so; the Eviction API writes over it."""


@dataclass(slots=True)
class Checker:
    """What was seen and what was wrong.

    Attributes
    ----------
    may_leave
        Whether this pod may be evicted, in this test.
    partly_s
        How long a gang may hold fewer than its least pods while it has some; not counted is the time in which the API
        server does not answer, as nobody could do anything about it then.
    rate
        The most pods that may be evicted within so many seconds; none: no limit.
    clock
        Seconds, for all that lasts.
    """

    url: str
    authority: Path
    token: str
    may_leave: Callable[[Pod], bool] = lambda pod: False
    partly_s: float = 15.0
    rate: tuple[int, float] | None = None
    clock: Callable[[], float] = time.monotonic
    complaints: list[str] = field(default_factory=list)
    pods: dict[str, Pod] = field(default_factory=dict)
    bindings: dict[str, str] = field(default_factory=dict)
    evicted: dict[str, Pod] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    blind: Counter[str] = field(default_factory=Counter)
    away_since_s: float = float("inf")
    """Since when the API server does not answer."""
    _room: dict[str, int] = field(default_factory=dict)
    _taken: Counter[str] = field(default_factory=Counter)
    _partly_since: dict[str, float] = field(default_factory=dict)
    _evictions_s: deque[float] = field(default_factory=deque)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stop: threading.Event = field(default_factory=threading.Event)
    _listed: dict[str, threading.Event] = field(default_factory=lambda: defaultdict(threading.Event))

    def start(self) -> None:
        """Begin to watch; returns when all there is was seen."""
        for kind, see in (("nodes", self.see_node), ("pods", self.see_pod)):
            threading.Thread(target=self._follow, args=(kind, see), daemon=True).start()
            if not self._listed[kind].wait(30):
                self._object(f"{kind} could not be listed")

    def stop(self) -> None:
        """Look a last time, and end: nothing is objected to any more."""
        self.look(self.clock())
        self._stop.set()

    def bound(self, wanted: Callable[[Pod], bool] = lambda pod: True) -> list[Pod]:
        """Pods that are there and hold a place."""
        with self._lock:
            return [pod for pod in self.pods.values() if _node(pod) and wanted(pod)]

    def see_node(self, kind: str, node: dict[str, Any]) -> None:
        """A node: its room counts as the most that it ever advertised."""
        name, gpus = node["metadata"]["name"], int(node.get("status", {}).get("allocatable", {}).get(GPU, 0))
        with self._lock:
            self._room[name] = max(gpus, self._room.get(name, 0))

    def see_pod(self, kind: str, pod: Pod) -> None:
        """A pod after a change, or before it was deleted."""
        uid, now_s = pod["metadata"]["uid"], self.clock()
        with self._lock:
            before = self.pods.get(uid)
            if before is not None and _holds(before):
                self._taken[_node(before)] -= _gpus(before)
            if kind == "DELETED":
                self.pods.pop(uid, None)
            else:
                self.pods[uid] = pod
                self._check_place(uid, pod)
            self._check_eviction(uid, pod, now_s)
            self._check_gang(pod, now_s)

    def look(self, now_s: float) -> None:
        """Object to gangs that have stood in part for too long."""
        with self._lock:
            is_away = self.away_since_s <= now_s
            for gang, since_s in () if is_away else list(self._partly_since.items()):
                if now_s - since_s > self.partly_s:
                    self._object(f"gang {gang} runs in part for {now_s - since_s:.1f} s")
                    self._partly_since[gang] = float("inf")

    def _check_place(self, uid: str, pod: Pod) -> None:
        node = _node(pod)
        if not node:
            return
        if self.bindings.setdefault(uid, node) != node:
            self._object(f"pod {_name(pod)} was bound to {self.bindings[uid]} and to {node}")
        if _holds(pod):
            self._taken[node] += _gpus(pod)
            if self._taken[node] > self._room.get(node, 0):
                room = self._room.get(node, 0)
                self._object(f"node {node} has {room} GPUs and promised {self._taken[node]}, last to {_name(pod)}")

    def _check_eviction(self, uid: str, pod: Pod, now_s: float) -> None:
        """First the pod is told, then it is evicted: the API server's own condition, or a deletion that follows.

        Who is deleted by Kubernetes itself, as its node is gone or lost, has that for a reason, and is nobody's victim.
        """
        told = _target(pod)
        if told.get("reason") == FIRST_SAID and CAUSES.match(told.get("message", "")):
            self.causes[uid] = told["message"]
        is_deleted = told.get("reason") == FIRST_SAID and "deletionTimestamp" in pod["metadata"]
        if not (is_deleted or told.get("reason") == "EvictionByEvictionAPI") or uid in self.evicted:
            return
        self.evicted[uid] = pod
        if not self.may_leave(pod):
            self._object(f"pod {_name(pod)} was evicted without a cause")
        elif uid not in self.causes and not self.blind["pods"]:
            self._object(f"pod {_name(pod)} was evicted without a word who, why and by which rule")
        self._check_rate(now_s)

    def _check_rate(self, now_s: float) -> None:
        if self.rate is None:
            return
        most, within_s = self.rate
        self._evictions_s.append(now_s)
        while self._evictions_s[0] < now_s - within_s:
            self._evictions_s.popleft()
        if len(self._evictions_s) > most:
            self._object(f"{len(self._evictions_s)} pods were evicted within {within_s:g} s, {most} may be")

    def _check_gang(self, pod: Pod, now_s: float) -> None:
        labels = pod["metadata"].get("labels") or {}
        gang, least = labels.get(GANG), int(labels.get(LEAST, 1))
        if not gang:
            return
        pods = [one for one in self.pods.values() if (one["metadata"].get("labels") or {}).get(GANG) == gang]
        held = sum(map(_holds, pods))
        if 0 < held < least and not any(map(_succeeded, pods)):  # of a gang that ends, some end first
            self._partly_since.setdefault(gang, now_s)
        else:
            self._partly_since.pop(gang, None)

    def _lost(self) -> None:
        """The server does not answer."""
        with self._lock:
            self.away_since_s = min(self.away_since_s, self.clock())

    def _found(self) -> None:
        """It answers; for how gangs stood in between nobody can be blamed."""
        with self._lock:
            away_s = max(0.0, self.clock() - self.away_since_s)
            self.away_since_s = float("inf")
            self._partly_since = {gang: since_s + away_s for gang, since_s in self._partly_since.items()}

    def _object(self, complaint: str) -> None:
        if complaint not in self.complaints and not self._stop.is_set():
            self.complaints.append(complaint)

    def _follow(self, kind: str, see: Callable[[str, dict[str, Any]], None]) -> None:
        """List once, then watch without a gap, over whatever happens to the server."""
        version = ""
        while not self._stop.is_set():
            try:
                if not version:
                    version = self._list(kind, see)
                    self._listed[kind].set()
                for event in self._events(kind, version):
                    if self._stop.is_set():
                        return
                    version = self._take(kind, event, see)
                    self.look(self.clock())
                    if not version:
                        break
            except (OSError, http.client.HTTPException, json.JSONDecodeError):
                self._lost()
                self._stop.wait(0.1)

    def _take(self, kind: str, event: Mapping[str, Any], see: Callable[[str, dict[str, Any]], None]) -> str:
        """See an event; the version to go on from, none where it is to list anew."""
        found = event["object"]
        if event["type"] == "ERROR":
            if found.get("code") == 410:
                self.blind[kind] += 1
                return ""
            raise http.client.HTTPException(str(found.get("message")))
        if event["type"] != "BOOKMARK":
            see(event["type"], found)
        return str(found["metadata"]["resourceVersion"])

    def _list(self, kind: str, see: Callable[[str, dict[str, Any]], None]) -> str:
        connection = self._ask(f"/api/v1/{kind}")
        try:
            with connection.getresponse() as answer:
                if answer.status != 200:
                    raise http.client.HTTPException(str(answer.status))
                found = json.loads(answer.read())
        finally:
            connection.close()
        self._found()
        if kind == "pods":
            there = {item["metadata"]["uid"] for item in found["items"]}
            for gone in [pod for uid, pod in self.pods.items() if uid not in there]:
                see("DELETED", gone)
        for item in found["items"]:
            see("ADDED", item)
        return str(found["metadata"]["resourceVersion"])

    def _events(self, kind: str, version: str) -> Iterator[Mapping[str, Any]]:
        asked = f"/api/v1/{kind}?watch=1&allowWatchBookmarks=true&resourceVersion={version}&timeoutSeconds=20"
        connection = self._ask(asked)
        try:
            with connection.getresponse() as answer:
                if answer.status == 410:
                    yield {"type": "ERROR", "object": {"code": 410}}
                    return
                if answer.status != 200:
                    raise http.client.HTTPException(str(answer.status))
                self._found()
                while line := answer.readline():
                    yield json.loads(line)
        finally:
            connection.close()

    def _ask(self, path: str) -> http.client.HTTPSConnection:
        parts = urlsplit(self.url)
        context = ssl.create_default_context(cafile=str(self.authority))
        connection = http.client.HTTPSConnection(str(parts.hostname), parts.port, timeout=25, context=context)
        try:
            connection.request("GET", path, headers={"Authorization": f"Bearer {self.token}"})
        except BaseException:
            connection.close()  # The server went between the handshake and the request.
            raise
        return connection


def _name(pod: Pod) -> str:
    return f"{pod['metadata'].get('namespace', '')}/{pod['metadata']['name']}"


def _node(pod: Pod) -> str:
    return str(pod["spec"].get("nodeName") or "")


def _target(pod: Pod) -> dict[str, Any]:
    """The condition that says that the pod is to leave; empty where there is none."""
    conditions = pod.get("status", {}).get("conditions") or ()
    found = (one for one in conditions if one["type"] == "DisruptionTarget" and one.get("status") == "True")
    return next(found, {})


def _holds(pod: Pod) -> bool:
    """Whether it holds what it asked for: it has a place and has not ended."""
    return bool(_node(pod)) and pod.get("status", {}).get("phase") not in ENDED


def _succeeded(pod: Pod) -> bool:
    return bool(pod.get("status", {}).get("phase") == "Succeeded")


def _gpus(pod: Pod) -> int:
    return sum(int(one.get("resources", {}).get("limits", {}).get(GPU, 0)) for one in pod["spec"]["containers"])
