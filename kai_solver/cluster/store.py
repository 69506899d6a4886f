"""The objects of a cluster as this process knows them: filled by reflectors, read by cycles."""

import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kai_solver.cluster.api import Object, WatchEvent, key_of
from kai_solver.cluster.resources import (
    CONFIG_MAPS,
    CSI_STORAGE_CAPACITIES,
    KAI_CONFIGS,
    NODES,
    POD_GROUPS,
    PODS,
    QUEUES,
    SCHEDULING_SHARDS,
    Resource,
)
from kai_solver.cluster.trim import trimmed
from kai_solver.domain import Notice
from kai_solver.errors.barrier import caught
from kai_solver.kubeobjects import names

Listener = Callable[[Resource, str, Object | None, Object | None], None]
"""Called with a change: kind, key, the object before and after (None where there was, or is, none)."""


class Store:
    """Objects by kind and key; safe to use from any thread.

    Objects are shared, not copied: callers must not change one in place. Objects that come in are trimmed in place.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._objects: dict[Resource, dict[str, Object]] = {}
        self._synced: set[Resource] = set()
        self._listeners: list[Listener] = []
        self._missed: set[Resource] = set()
        self.malformed: dict[Resource, int] = {}
        """How many objects had no name since their kind was last listed: they cannot be kept, and spoil nothing."""

    def listen(self, listener: Listener) -> None:
        """Call ``listener`` with every change from now on, in the thread of the reflector that saw it."""
        self._listeners.append(listener)

    def replace(self, resource: Resource, items: Iterable[Object]) -> None:
        """What a list gave: all objects of the kind that there are."""
        self.malformed.pop(resource, None)
        fresh = {key: _kept(resource, key, item) for item in items if (key := self._key(resource, item))}
        with self._lock:
            old = self._objects.get(resource, {})
            self._objects[resource] = fresh
            self._synced.add(resource)
        for key in old.keys() | fresh.keys():
            self._notify(resource, key, old.get(key), fresh.get(key))

    def apply(self, resource: Resource, event: WatchEvent) -> None:
        """One change that a watch gave."""
        key = self._key(resource, event.object)
        if not key:
            return
        after = None if event.kind == "DELETED" else _kept(resource, key, event.object)
        with self._lock:
            kept = self._objects.setdefault(resource, {})
            before = kept.pop(key, None) if after is None else kept.get(key)
            if after is not None:
                kept[key] = after
        self._notify(resource, key, before, after)

    def all(self, resource: Resource) -> tuple[Object, ...]:
        """All objects of the kind, in the order in which they came."""
        with self._lock:
            return tuple(self._objects.get(resource, {}).values())

    def get(self, resource: Resource, key: str) -> Object | None:
        """One object by ``namespace/name`` (``name`` where the kind has no namespaces)."""
        with self._lock:
            return self._objects.get(resource, {}).get(key)

    def is_synced(self, resources: Iterable[Resource]) -> bool:
        """Whether each of the kinds was listed once, or is known not to be installed."""
        with self._lock:
            return self._synced.issuperset(resources)

    def outdate(self) -> None:
        """The content may be out of date: no kind counts as listed until it is listed again."""
        with self._lock:
            self._synced.clear()

    def missed(self, resource: Resource) -> bool:
        """Whether an object of the kind was lost to an unexpected error since this was last asked: list it again."""
        with self._lock:
            is_missed = resource in self._missed
            self._missed.discard(resource)
        return is_missed

    def notices(self) -> tuple[Notice, ...]:
        """What cannot be kept, kind by kind."""
        why = "has no name, or is not an object: the API server, or a proxy before it, is faulty"
        counts = self.malformed.copy()
        return tuple(Notice("set-aside", f"{kind.kind} without a name", f"{why} ({n})") for kind, n in counts.items())

    def _key(self, resource: Resource, item: object) -> str:
        key = ""
        try:
            key = key_of(item) if isinstance(item, dict) else ""
        except Exception as error:
            caught("watching", resource.kind, error)
            with self._lock:
                self._missed.add(resource)
        if not key:
            self.malformed[resource] = self.malformed.get(resource, 0) + 1
        return key

    def _notify(self, resource: Resource, key: str, before: Object | None, after: Object | None) -> None:
        if before is after:
            return
        for listener in self._listeners:
            try:
                listener(resource, key, before, after)
            except Exception as error:  # the other listeners get it, and the watch goes on
                caught("watching", f"{resource.kind} {key}", error)


def _kept(resource: Resource, key: str, item: Object) -> Object:
    """The object, lighter where that can be: it is read, and set aside, in the cycle."""
    try:
        return trimmed(resource, item)
    except Exception as error:
        caught("watching", f"{resource.kind} {key}", error)
        return item


def is_worth_a_cycle(resource: Resource, before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether a change can make a difference to what is decided; heartbeats and our own notes on objects cannot."""
    if resource == CSI_STORAGE_CAPACITIES:
        return False  # drivers write them all the time; the next cycle sees them
    if before is None or after is None:
        return True
    if resource == CONFIG_MAPS:
        return before.get("data") != after.get("data")  # trimmed; older leader elections write them every two seconds
    try:
        return _essence(resource, before) != _essence(resource, after)
    except Exception:
        return True  # malformed: the cycle names the object


def is_as_expected(expected: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether a pod of which a change was worth a cycle only is where it was expected, begins there, or leaves it.

    ``expected``: as it was, with what was done to it laid over. Such a change frees nothing, takes nothing and helps
    no pod that waits: it is only reported, and there is time for that.
    """
    try:
        begins = _phase(expected), _phase(after)
        if not after["spec"].get("nodeName") or not (begins[0] == begins[1] or begins == ("Pending", "Running")):
            return False
        return _expected_of(expected) == _expected_of(after)
    except Exception:
        return False  # malformed: the cycle names the object


def _expected_of(pod: Mapping[str, Any]) -> object:
    """What of a pod can be expected: that it is being deleted, and not until when; nothing of its status."""
    metadata = pod.get("metadata") or {}
    leaves = bool(metadata.get("deletionTimestamp"))
    return _essence(PODS, {**pod, "metadata": {**metadata, "deletionTimestamp": leaves}, "status": None})


def is_over(before: Mapping[str, Any] | None, after: Mapping[str, Any] | None) -> bool:
    """Whether a pod had ended before, and is gone or does not run again: its place was free since then."""
    return before is not None and has_ended(before) and (after is None or has_ended(after))


def has_ended(pod: Mapping[str, Any]) -> bool:
    """Whether a pod runs no more and holds nothing."""
    try:
        return _phase(pod) in ("Succeeded", "Failed")
    except Exception:
        return False  # malformed: the cycle names the object


def _phase(pod: Mapping[str, Any]) -> str:
    return (pod.get("status") or {}).get("phase") or "Pending"


_NOTES = frozenset({names.LAST_START, names.LAST_EVICTION, names.STALE_SINCE})
"""Annotations that we write ourselves, of what we know already."""


def _of_others(annotations: Any) -> Any:
    if not annotations or _NOTES.isdisjoint(annotations):
        return annotations or None
    return {name: value for name, value in annotations.items() if name not in _NOTES} or None


def _essence(resource: Resource, value: Mapping[str, Any]) -> object:
    """What of an object a decision depends on."""
    metadata = value.get("metadata") or {}
    named = (metadata.get("labels"), _of_others(metadata.get("annotations")), metadata.get("deletionTimestamp"))
    status = value.get("status") or {}
    if resource == NODES:
        conditions = [(found.get("type"), found.get("status")) for found in status.get("conditions") or ()]
        return (*named, value.get("spec"), status.get("allocatable"), conditions)
    if resource == PODS:
        return (*named, value.get("spec"), status.get("phase"), status.get("nominatedNodeName"))
    if resource in (QUEUES, POD_GROUPS, SCHEDULING_SHARDS, KAI_CONFIGS):
        return (*named, value.get("spec"))
    return {name: part for name, part in value.items() if name != "metadata"}, named
