"""An API server in memory: for ``controller --embedded``, for simulated days, and for tests without Kubernetes.

It keeps the promises that a scheduler leans on: resource versions that grow, watches that can be too old, optimistic
locking, names that are unique, binding once, evictions held back by budgets, deletion with grace.
"""

import copy
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kai_solver.cluster import resources
from kai_solver.cluster.api import ApiError, Object, Page, PatchKind, WatchEvent, key_of, meta
from kai_solver.cluster.resources import Resource
from kai_solver.kubeobjects.raw import format_time

KEPT_EVENTS = 100_000
"""Changes kept for watches; a client that is further behind must list again."""

EVENT_OBJECTS = 5_000
"""Objects of the kind Event that are kept."""

BUILT_IN: tuple[Resource, ...] = tuple(value for value in vars(resources).values() if isinstance(value, Resource))


class MemoryApi:
    """`Api` without a server.

    Parameters
    ----------
    served
        Kinds that are installed.
    now
        Epoch seconds.
    """

    def __init__(self, served: tuple[Resource, ...] = BUILT_IN, now: Callable[[], float] = time.time) -> None:
        self._served = frozenset(served)
        self._now = now
        self._lock = threading.RLock()
        self._news = {resource: threading.Condition(self._lock) for resource in served}
        self._version = 0
        self._closed = False
        self._cuts = 0
        self._objects: dict[Resource, dict[str, Object]] = {resource: {} for resource in served}
        self.accounts: dict[str, frozenset[str]] = {}
        """Tokens that are known, and the non-resource URLs that each may get; a token is its user's name as well."""
        self._history: deque[tuple[int, Resource, WatchEvent]] = deque(maxlen=KEPT_EVENTS)

    def install(self, resource: Resource) -> None:
        """Serve one more kind from now on."""
        with self._lock:
            self._objects[resource] = {}
            self._news[resource] = threading.Condition(self._lock)
            self._served |= {resource}

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        """One page; pages go on at a position, as nothing is expected to change between them."""
        with self._lock:
            kept = self._kind(resource).values()
            found = [
                item for item in kept if namespace in ("", _namespace(item)) and name in ("", meta(item).get("name"))
            ]
            start = int(continue_ or 0)
            page = [copy.deepcopy(item) for item in found[start : start + limit]]
            more = str(start + limit) if start + limit < len(found) else ""
            return Page(page, str(self._version), more)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes since ``resource_version``; waits for more until ``timeout_s``."""
        return self._listened(resource, int(resource_version or 0), timeout_s, self._cuts)

    def _listened(self, resource: Resource, seen: int, timeout_s: float, cuts: int) -> Iterator[WatchEvent]:
        ends_s = time.monotonic() + timeout_s
        while True:
            with self._lock:
                self._kind(resource)  # installed at all?
                if self._cuts != cuts:
                    raise ApiError(0, "Cut", "the connection was cut")
                if self._history and len(self._history) == KEPT_EVENTS and seen < self._history[0][0] - 1:
                    raise ApiError(410, "Expired", f"too old resource version: {seen}")
                news = self._since(resource, seen)
                if not news:
                    left_s = ends_s - time.monotonic()
                    if left_s <= 0 or self._closed:
                        return
                    self._news[resource].wait(left_s)
                    continue
            for version, event in news:
                seen = version
                yield event

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        with self._lock:
            return copy.deepcopy(self._one(resource, namespace, name))

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        """A new object, a binding or an eviction."""
        if subresource:
            return self._act(resource, namespace, body, subresource)
        if resource in (resources.TOKEN_REVIEWS, resources.SUBJECT_ACCESS_REVIEWS):
            return self._review(body["spec"])
        with self._lock:
            value: Object = {"apiVersion": resource.api_version, "kind": resource.kind, **copy.deepcopy(dict(body))}
            metadata = value.setdefault("metadata", {})
            if resource.namespaced:
                metadata.setdefault("namespace", namespace)
            if "generateName" in metadata and not metadata.get("name"):
                metadata["name"] = f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
            key = key_of(value)
            if not key:
                raise ApiError(422, "Invalid", "metadata.name: Required value")
            if key in self._kind(resource):
                raise ApiError(409, "AlreadyExists", f'{resource.plural} "{metadata["name"]}" already exists')
            metadata |= {"uid": str(uuid.uuid4()), "creationTimestamp": format_time(self._now())}
            if resource == resources.PODS:
                value.setdefault("status", {}).setdefault("phase", "Pending")
            if resource == resources.EVENTS:
                self._forget_events()
            return self._write("ADDED", resource, key, value)

    def _review(self, spec: Mapping[str, Any]) -> Object:
        """The user of a token, or whether a user may get a non-resource URL, or has rights to a resource."""
        if "token" in spec:
            is_known = spec["token"] in self.accounts
            return {"status": {"authenticated": is_known, "user": {"username": spec["token"]} if is_known else {}}}
        path = spec.get("nonResourceAttributes", {}).get("path") or spec.get("resourceAttributes", {}).get("resource")
        return {"status": {"allowed": path in self.accounts.get(spec.get("user", ""), ())}}

    def _forget_events(self) -> None:
        """Servers keep events for an hour; here it is the newest that are kept."""
        kept = self._objects.get(resources.EVENTS, {})
        while len(kept) >= EVENT_OBJECTS:
            del kept[next(iter(kept))]

    def patch(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        body: object,
        *,
        kind: PatchKind = "merge",
        subresource: str = "",
    ) -> Object:
        """Merge ``body`` into an object: its status by ``status`` alone, and no other part of it by that.

        Except for annotations and labels of pods, which a server takes with the status, too.
        """
        if not isinstance(body, Mapping):
            raise ApiError(415, "UnsupportedMediaType", "only merge and strategic patches are kept in memory")
        with self._lock:
            value = copy.deepcopy(self._one(resource, namespace, name))
            wanted = meta(body).get("resourceVersion")
            if wanted is not None and wanted != value["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", "the object has been modified; please apply your changes to the latest")
            if meta(body).get("uid", meta(value).get("uid")) != meta(value).get("uid"):
                raise ApiError(409, "Conflict", "the UID in the precondition does not match the UID in record")
            before = copy.deepcopy(value)
            writable = {part: body[part] for part in body if (part == "status") == (subresource == "status")}
            if resource == resources.PODS and subresource == "status":
                taken = {part: meta(body)[part] for part in ("annotations", "labels") if part in meta(body)}
                writable |= {"metadata": taken} if taken else {}
            value = _merged(value, writable, by_type=kind == "strategic")
            value["metadata"]["resourceVersion"] = before["metadata"]["resourceVersion"]
            return self._write("MODIFIED", resource, key_of(value), value) if value != before else value

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete an object; a pod on a node only gets its deletionTimestamp, its kubelet ends it."""
        with self._lock:
            value = copy.deepcopy(self._one(resource, namespace, name))
            if uid and meta(value).get("uid") != uid:
                raise ApiError(409, "Conflict", "the UID in the precondition does not match the UID in record")
            spec = value.get("spec", {})
            grace = spec.get("terminationGracePeriodSeconds", 30) if grace_s is None else grace_s
            if resource == resources.PODS and spec.get("nodeName") and grace > 0:
                if "deletionTimestamp" not in value["metadata"]:
                    ends = format_time(self._now() + grace)
                    value["metadata"] |= {"deletionTimestamp": ends, "deletionGracePeriodSeconds": grace}
                    self._write("MODIFIED", resource, key_of(value), value)
                return
            self._write("DELETED", resource, key_of(value), value)

    def installed(self) -> frozenset[Resource]:
        """All kinds that are served."""
        return self._served

    def within(self, limit_s: float) -> "MemoryApi":  # noqa: ARG002 - as the protocol has it
        """Itself: it answers at once."""
        return self

    def served(self, api_version: str) -> frozenset[Resource]:
        """Kinds of one version of one group."""
        return frozenset(kind for kind in self._served if kind.api_version == api_version)

    def hang_up(self) -> None:
        """Cut all watches; requests are answered at once."""
        with self._lock:
            self._cuts += 1
            self._wake()

    def close(self) -> None:
        """End all watches."""
        with self._lock:
            self._closed = True
            self._wake()

    def _wake(self) -> None:
        for news in self._news.values():
            news.notify_all()

    def _act(self, resource: Resource, namespace: str, body: Mapping[str, Any], subresource: str) -> Object:
        name = str(meta(body).get("name", ""))
        if (resource, subresource) == (resources.PODS, "binding"):
            return self._bind(namespace, name, body)
        if (resource, subresource) == (resources.PODS, "eviction"):
            options = body.get("deleteOptions") or {}
            uid = str((options.get("preconditions") or {}).get("uid", ""))
            with self._lock:
                self._heed_budgets(self._one(resource, namespace, name))
                self._note_eviction(namespace, name, uid)
            self.delete(resource, namespace, name, uid=uid, grace_s=options.get("gracePeriodSeconds"))
            return {"kind": "Status", "status": "Success"}
        raise ApiError(404, "NotFound", f"no subresource {subresource} of {resource.plural}")

    def _note_eviction(self, namespace: str, name: str, uid: str) -> None:
        """The server's own condition replaces one that was written before."""
        said = {"reason": "EvictionByEvictionAPI", "message": "Eviction API: evicting"}
        condition = {"type": "DisruptionTarget", "status": "True", **said}
        body = {"metadata": {"uid": uid} if uid else {}, "status": {"conditions": [condition]}}
        # The server's own write, and no request of a client: a class that notes or refuses those has no part in it.
        MemoryApi.patch(self, resources.PODS, namespace, name, body, kind="strategic", subresource="status")

    def _bind(self, namespace: str, name: str, body: Mapping[str, Any]) -> Object:
        """As the registry of pods does: once, never where the pod is being deleted or gated."""
        with self._lock:
            value = copy.deepcopy(self._one(resources.PODS, namespace, name))
            uid = meta(body).get("uid")
            if uid and uid != meta(value)["uid"]:
                raise ApiError(409, "Conflict", "the UID in the precondition does not match the UID in record")
            spec = value.setdefault("spec", {})
            if spec.get("nodeName") or meta(value).get("deletionTimestamp") or spec.get("schedulingGates"):
                raise ApiError(409, "Conflict", f"pod {name} is assigned, being deleted, or has scheduling gates")
            spec["nodeName"] = body["target"]["name"]
            conditions = value.setdefault("status", {}).setdefault("conditions", [])
            value["status"]["conditions"] = _by_type(conditions, [_bound(self._now())])
            value["metadata"].setdefault("annotations", {}).update(meta(body).get("annotations") or {})
            self._write("MODIFIED", resources.PODS, key_of(value), value)
            return {"kind": "Status", "status": "Success"}

    def _heed_budgets(self, pod: Object) -> None:
        for budget in self._objects.get(resources.DISRUPTION_BUDGETS, {}).values():
            wanted = (budget.get("spec", {}).get("selector") or {}).get("matchLabels") or {}
            labels = meta(pod).get("labels") or {}
            if _namespace(budget) != _namespace(pod) or not wanted.items() <= labels.items():
                continue
            if budget.get("status", {}).get("disruptionsAllowed", 0) < 1:
                raise ApiError(
                    429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget"
                )

    def _kind(self, resource: Resource) -> dict[str, Object]:
        if resource not in self._served:
            raise ApiError(404, "NotFound", "the server could not find the requested resource")
        return self._objects[resource]

    def _one(self, resource: Resource, namespace: str, name: str) -> Object:
        key = f"{namespace}/{name}" if resource.namespaced else name
        found = self._kind(resource).get(key)
        if found is None:
            raise ApiError(404, "NotFound", f'{resource.plural} "{name}" not found')
        return found

    def _write(self, kind: Any, resource: Resource, key: str, value: Object) -> Object:
        self._version += 1
        value["metadata"]["resourceVersion"] = str(self._version)
        if kind == "DELETED":
            self._objects[resource].pop(key, None)
        else:
            self._objects[resource][key] = value
        self._history.append((self._version, resource, WatchEvent(kind, copy.deepcopy(value))))
        self._news[resource].notify_all()
        return copy.deepcopy(value)

    def _since(self, resource: Resource, seen: int) -> list[tuple[int, WatchEvent]]:
        """Changes of one kind after ``seen``, oldest first."""
        found: list[tuple[int, WatchEvent]] = []
        for version, changed, event in reversed(self._history):
            if version <= seen:
                break
            if changed == resource:
                found.append((version, event))
        return found[::-1]


def _bound(now_s: float) -> dict[str, str]:
    """The condition that the registry of pods sets with a binding."""
    return {"type": "PodScheduled", "status": "True", "lastTransitionTime": format_time(int(now_s))}


def _namespace(value: Mapping[str, Any]) -> str:
    return str(meta(value).get("namespace", ""))


def _merged(value: Any, patch: Any, *, by_type: bool) -> Any:
    """JSON merge patch (RFC 7386); null removes."""
    if not isinstance(patch, Mapping):
        return copy.deepcopy(patch)
    result = dict(value) if isinstance(value, dict) else {}
    for name, part in patch.items():
        if part is None:
            result.pop(name, None)
        elif by_type and name == "conditions" and isinstance(part, list):
            result[name] = _by_type(result.get(name) or [], part)
        else:
            result[name] = _merged(result.get(name), part, by_type=by_type)
    return result


def _by_type(conditions: list[Any], news: list[Any]) -> list[Any]:
    kept = {condition["type"]: condition for condition in conditions}
    for condition in news:
        kept[condition["type"]] = kept.get(condition["type"], {}) | condition
    return list(kept.values())
