"""The API server over HTTP: the client library's configuration and connections, our own raw JSON."""

import contextlib
import http.client
import os
import socket
import threading
import traceback
import weakref
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

import orjson
import urllib3
from kubernetes import client, config

from kai_solver.cluster.answers import LineTooLongError, lines, parsed
from kai_solver.cluster.api import ApiError, EventKind, Object, Page, PatchKind, WatchEvent
from kai_solver.cluster.resources import Resource
from kai_solver.errors import InputError

CONNECT_S = 5.0
READ_S = 30.0
"""Seconds without a byte after which a request is given up; a half-open connection would wait for ever."""

WATCH_SILENCE_S = 100.0
"""The same for a watch, which then ends without an error, and the next one goes on: a kind of which nothing changes is
silent where the API server sends no bookmarks. A server that is away refuses the next one."""

CHUNK = 1 << 16

_PATCHES: Mapping[PatchKind, str] = {
    "merge": "application/merge-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "json": "application/json-patch+json",
    "apply": "application/apply-patch+yaml",
}
_KINDS = frozenset({"ADDED", "MODIFIED", "DELETED", "BOOKMARK"})


def connect(
    kubeconfig: str = "", context: str = "", *, connections: int = 32, user_agent: str = "kai-solver"
) -> "RestApi":
    """A connection by a kubeconfig file, by the environment, or by the pod's own service account.

    Raises
    ------
    InputError
        No usable configuration; names what was tried.
    """
    settings = client.Configuration()
    if kubeconfig and not any(Path(part).expanduser().exists() for part in kubeconfig.split(os.pathsep)):
        cure = "Name the file that kubectl uses, like ~/.kube/config"
        raise InputError("cannot be read: no such file", file=kubeconfig, cure=cure)
    try:
        if kubeconfig or context:
            config.load_kube_config(kubeconfig or None, context or None, client_configuration=settings)  # type: ignore[no-untyped-call]
        else:
            _load_default(settings)
    except (TypeError, ValueError) as error:
        cure = "Name the file that kubectl uses, like ~/.kube/config"
        raise InputError("is not a kubeconfig file", file=kubeconfig, cure=cure) from error
    except (config.ConfigException, OSError) as error:
        cure = "Name a kubeconfig file with --kubeconfig, or run in a pod with a service account"
        raise InputError(f"cannot find an API server: {str(error).rstrip('.')}", file=kubeconfig, cure=cure) from error
    settings.connection_pool_maxsize = connections
    settings.retries = False
    return RestApi(settings, user_agent)


def bearer_token() -> str:
    """The token of the current kubeconfig's user, or of the pod's own account; empty without one.

    If the kubeconfig names a command for the token, it is run, as ``kubectl`` does.
    """
    settings = client.Configuration()
    try:
        _load_default(settings)
    except (config.ConfigException, OSError, TypeError, ValueError):
        return ""
    return str(settings.get_api_key_with_prefix("authorization") or "").removeprefix("Bearer ")


def _load_default(settings: client.Configuration) -> None:
    """The pod's own account where there is one, as controllers expect; else the user's kubeconfig."""
    try:
        config.load_incluster_config(client_configuration=settings)  # type: ignore[no-untyped-call]
    except config.ConfigException:
        config.load_kube_config(client_configuration=settings)  # type: ignore[no-untyped-call]


class RestApi:
    """`Api` over HTTP; any number of threads may share one."""

    def __init__(self, settings: client.Configuration, user_agent: str = "kai-solver", limit_s: float = READ_S) -> None:
        self._settings = settings
        self._limit_s = limit_s
        self._host = settings.host.rstrip("/")
        self._client = client.ApiClient(settings)
        self._pool = self._client.rest_client.pool_manager
        self._user_agent = user_agent
        self._sockets = _Sockets(self._pool)
        self._within: list[RestApi] = []
        self._is_closed = False
        self._cuts = 0

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        """One page of a collection."""
        fields = {"limit": str(limit)} | ({"continue": continue_} if continue_ else {})
        fields |= {"fieldSelector": f"metadata.name={name}"} if name else {}
        found = self._call("GET", resource.path(namespace), fields=fields)
        metadata, items = found.get("metadata"), found.get("items")
        if not isinstance(metadata, dict) or not isinstance(items, list | None):
            raise ApiError(0, "Malformed", f"{resource.name}: the answer is not a list")
        named = {"apiVersion": resource.api_version, "kind": resource.kind}  # items of a list leave both out
        whole = [named | item if isinstance(item, dict) else item for item in items or ()]
        return Page(whole, str(metadata.get("resourceVersion", "")), str(metadata.get("continue") or ""))

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes since ``resource_version``, bookmarks among them."""
        fields = {
            "watch": "1",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(int(timeout_s)),
        }
        return self._listened(resource, fields, self._cuts)

    def _listened(self, resource: Resource, fields: Mapping[str, str], cuts: int) -> Iterator[WatchEvent]:
        """Events of a watch that was asked for when all connections had been cut ``cuts`` times."""
        answer = self._request("GET", resource.path(), fields=fields, stream=True)
        try:
            if answer.status >= 400:
                raise _refusal(answer.status, answer.read(), answer.headers)
            if cuts != self._cuts:
                raise ApiError(0, "Cut", f"watch of {resource.name}: the connection was cut")
            yield from _events(answer)
        except urllib3.exceptions.ReadTimeoutError:
            return
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            raise _unanswered(error) from error
        finally:
            answer.close()

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        return self._call("GET", resource.path(namespace, name))

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        """A new object, or an act on the object of the body's name."""
        if not subresource:  # without its kind a custom object is refused, though the address says it
            body = {"apiVersion": resource.api_version, "kind": resource.kind, **body}
        name = str(body.get("metadata", {}).get("name", "")) if subresource else ""
        return self._call("POST", resource.path(namespace, name, subresource), body=body)

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
        """Change some fields of an object."""
        fields = {"fieldManager": self._user_agent, "force": "true"} if kind == "apply" else None
        path = resource.path(namespace, name, subresource)
        return self._call("PATCH", path, body=body, fields=fields, content=_PATCHES[kind])

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete an object."""
        body: dict[str, object] = {"apiVersion": "v1", "kind": "DeleteOptions"}
        if uid:
            body["preconditions"] = {"uid": uid}
        if grace_s is not None:
            body["gracePeriodSeconds"] = grace_s
        self._call("DELETE", resource.path(namespace, name), body=body)

    def installed(self) -> frozenset[Resource]:
        """All kinds that the server serves, each in the version it prefers.

        Kinds of one group may be served in different versions (Queue v2, PodGroup v2alpha2): all are asked for.
        """
        found: dict[tuple[str, str], Resource] = {}
        listed = self._call("GET", "/apis")
        try:
            versions = [version for group in listed["groups"] for version in _versions(group)]
        except (AttributeError, KeyError, TypeError) as error:
            raise ApiError(0, "Malformed", f"/apis: the answer is not a list of groups: {error!r}") from error
        for version in ("v1", *versions):
            for kind in self.served(version):
                found.setdefault((kind.group, kind.plural), kind)
        return frozenset(found.values())

    def within(self, limit_s: float) -> "RestApi":
        """The same server by connections of its own: those of others may be half open, and hold no request up."""
        found = RestApi(self._settings, self._user_agent, limit_s)
        self._within.append(found)
        return found

    def served(self, api_version: str) -> frozenset[Resource]:
        """Kinds of one version of one group; none where it is not installed, or its aggregated server is away."""
        path = f"/apis/{api_version}" if "/" in api_version else f"/api/{api_version}"
        try:
            listed = self._call("GET", path)
        except ApiError as error:
            if error.status in (404, 503):
                return frozenset()
            raise
        group, _, version = api_version.rpartition("/")
        try:
            kinds = [one for one in listed.get("resources", ()) if "/" not in one["name"]]
            return frozenset(Resource(group, version, k["name"], k["kind"], bool(k["namespaced"])) for k in kinds)
        except (AttributeError, KeyError, TypeError) as error:
            raise ApiError(0, "Malformed", f"{path}: the answer is not a list of kinds: {error!r}") from error

    def hang_up(self) -> None:
        """Cut all connections; requests and watches in other threads end with an `ApiError`."""
        self._cuts += 1
        self._pool.clear()
        self._sockets.cut()

    def close(self) -> None:
        """Hang up, for good."""
        self._is_closed = True
        self.hang_up()
        for other in self._within:
            other.close()

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        fields: Mapping[str, str] | None = None,
        content: str = "application/json",
    ) -> Object:
        answer = self._request(method, path, body=body, fields=fields, content=content)
        data = answer.data
        if answer.status >= 400:
            raise _refusal(answer.status, data, answer.headers)
        try:
            found = parsed(data) if data else {}
        except orjson.JSONDecodeError as error:
            raise ApiError(0, "Malformed", f"{path}: {error}") from error
        return cast("Object", found) if isinstance(found, dict) else {}

    def _request(
        self,
        method: str,
        path: str,
        *,
        body: object = None,
        fields: Mapping[str, str] | None = None,
        content: str = "application/json",
        stream: bool = False,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": self._user_agent, **self._authorization()}
        data = None
        if body is not None:
            headers["Content-Type"], data = content, orjson.dumps(body)
        query = f"?{urlencode(fields)}" if fields else ""
        read_s = WATCH_SILENCE_S if stream else self._limit_s
        timeout = urllib3.Timeout(connect=min(CONNECT_S, self._limit_s), read=read_s)
        if self._is_closed:
            raise ApiError(0, "Closed", f"{method} {path}: this process sends no more requests")
        try:
            return self._pool.request(
                method,
                f"{self._host}{path}{query}",
                body=data,
                headers=headers,
                timeout=timeout,
                retries=False,
                preload_content=not stream,
            )
        except (urllib3.exceptions.HTTPError, http.client.HTTPException, OSError) as error:
            raise _unanswered(error, f"{method} {path}: ") from error

    def _authorization(self) -> dict[str, str]:
        """The bearer token, renewed by the library where it expires."""
        token = self._settings.get_api_key_with_prefix("BearerToken", alias="authorization")
        return {"Authorization": token} if token else {}


class _InOnePiece(urllib3.connection.HTTPConnection):
    """Sends head and body of a request together.

    The library sends them one after the other: two system calls and two TLS records. With many writing threads each of
    them also waits for the interpreter's lock. Eight threads wrote an event in 0.28 ms in place of 0.40 ms (without
    TLS), and in 0.62 ms in place of 0.68 ms beside a thread that computed (23 November 2026).
    """

    _parts: list[bytes] | None = None
    """What the request under way has sent so far; None between requests."""

    def request(self, *args: Any, **options: Any) -> None:
        self._parts = []
        try:
            super().request(*args, **options)
            parts, self._parts = self._parts, None
            if parts:
                self.send(b"".join(parts))
        finally:
            self._parts = None

    def send(self, data: Any) -> None:
        if self._parts is not None and isinstance(data, bytes):
            self._parts.append(data)
        else:
            super().send(data)


class _Sockets:
    """The connections that a pool made, as far as they are still there."""

    def __init__(self, manager: urllib3.PoolManager) -> None:
        self._lock = threading.Lock()
        self._made: weakref.WeakSet[urllib3.connection.HTTPConnection] = weakref.WeakSet()
        note = self._note

        class Plain(_InOnePiece, urllib3.connection.HTTPConnection):
            def connect(self) -> None:
                super().connect()
                note(self)

        class Secure(_InOnePiece, urllib3.connection.HTTPSConnection):
            def connect(self) -> None:
                super().connect()
                note(self)

        class PlainPool(urllib3.HTTPConnectionPool):
            ConnectionCls = Plain

        class SecurePool(urllib3.HTTPSConnectionPool):
            ConnectionCls = Secure

        manager.pool_classes_by_scheme = {"http": PlainPool, "https": SecurePool}

    def cut(self) -> None:
        """Shut all of them down: a thread that reads or writes gets an error at once.

        This calls the method of the plain socket. The method of a TLS socket removes the encryption first, and a thread
        that writes at this moment would send its token unencrypted.
        """
        with self._lock:
            found = list(self._made)
        for connection in found:
            if isinstance(connection.sock, socket.socket):
                with contextlib.suppress(OSError):  # it is already closed
                    socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)

    def _note(self, connection: urllib3.connection.HTTPConnection) -> None:
        with self._lock:
            self._made.add(connection)


def _versions(group: Mapping[str, Any]) -> Iterable[str]:
    """Versions of a group as ``apiVersion`` names them, the one that the server prefers first."""
    versions = (group["preferredVersion"], *group.get("versions", ()))
    return dict.fromkeys(str(one["groupVersion"]) for one in versions)


def _events(answer: urllib3.BaseHTTPResponse) -> Iterator[WatchEvent]:
    """Lines of a watch, one JSON object each."""
    try:
        for line in lines(answer.stream(CHUNK, decode_content=True)):
            yield _event(line)
    except LineTooLongError as error:
        raise ApiError(0, "Malformed", f"a line of a watch: {error}") from error


def _event(line: bytes) -> WatchEvent:
    try:
        found = cast("Object", parsed(line))
        kind, value = found["type"], found["object"]
    except (orjson.JSONDecodeError, KeyError, TypeError) as error:
        raise ApiError(0, "Malformed", f"a line of a watch: {error}") from error
    if not isinstance(kind, str) or kind not in _KINDS or not isinstance(value, dict):
        status = value if isinstance(value, dict) else {}
        code = status.get("code")
        raise ApiError(
            code if isinstance(code, int) else 0, str(status.get("reason", kind)), str(status.get("message"))
        )
    return WatchEvent(cast("EventKind", kind), value)


def _unanswered(error: Exception, what: str = "") -> ApiError:
    """There was no answer, or no whole one.

    A function of the client library keeps the error in a variable, and the error's trace holds the function: a cycle of
    references. Without this it stays until the garbage collector finds it, with the variables of all functions on the
    way: the connection, the request, what was read by then. These were 70 objects for each request (28 November 2026).
    """
    traceback.clear_frames(error.__traceback__)
    return ApiError(0, type(error).__name__, f"{what}{error}")


def _refusal(status: int, data: bytes, headers: Mapping[str, str]) -> ApiError:
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError:
        found = None
    body = found if isinstance(found, dict) else {}
    after = headers.get("Retry-After", "")
    message = str(body.get("message") or data[:200].decode(errors="replace"))
    return ApiError(status, str(body.get("reason") or status), message, float(after) if after.isdecimal() else None)
