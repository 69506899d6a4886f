"""What the rest of the controller needs of an API server, and how it can fail.

Objects are raw JSON (``dict``) on purpose: decoding a pod into the client's typed models costs 0.32 ms and 40 KB, and
one malformed object would spoil a whole list (kubernetes 37, measured 2026-11; docs/decisions.md).
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from kai_solver.cluster.resources import Resource
from kai_solver.errors import KaiSolverError

Object = dict[str, Any]
PatchKind = Literal["merge", "strategic", "json", "apply"]
EventKind = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


class ApiError(KaiSolverError):
    """The API server said no, or nothing.

    Parameters
    ----------
    status
        HTTP status; 0 where there was no answer (refused, reset, timed out).
    reason, message
        Of the server's ``Status`` object (``Conflict``, ``AlreadyExists``, ``Expired``, ...).
    retry_after_s
        How long the server asked to be left alone; None where it did not say.
    """

    def __init__(self, status: int, reason: str, message: str = "", retry_after_s: float | None = None) -> None:
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after_s = retry_after_s
        super().__init__(f"{status or 'no answer'} {reason}: {message}" if message else f"{status} {reason}")

    @property
    def is_missing(self) -> bool:
        """The object is not there (any more), or its kind is not installed."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """The object changed since it was read, is there already, or is not in a state that allows this."""
        return self.status == 409

    @property
    def is_gone(self) -> bool:
        """The asked-for history is no longer kept: list again."""
        return self.status == 410

    @property
    def is_passing(self) -> bool:
        """Worth another try: no answer, too many requests, or a fault of the server's own."""
        return self.status in (0, 408, 425, 429) or self.status >= 500

    @property
    def is_unclear(self) -> bool:
        """What was asked for may have been done all the same: the answer got lost, or the server lost its way."""
        return self.status in (0, 408) or self.status >= 500


class FenceError(ApiError):
    """No request was sent: this process is not the leader (any more), and may not write."""

    def __init__(self) -> None:
        super().__init__(403, "NotLeading", "this process no longer leads")

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list: ``continue_`` is empty on the last."""

    items: list[Object]
    resource_version: str
    continue_: str = ""


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """A change: the object after it (before it where it was deleted); a bookmark has only its resourceVersion."""

    kind: EventKind
    object: Object


class Api(Protocol):
    """An API server. Every method may raise `ApiError`; all may be called from any thread."""

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        """One page of a collection, or of those of one ``name``; `ApiError` ``is_missing``: there is no such kind."""
        ...

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes since ``resource_version`` until ``timeout_s`` or the server ends it; `ApiError` 410: list again."""
        ...

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        ...

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        """A new object; with ``subresource`` (``binding``, ``eviction``) an act on the object of the body's name."""
        ...

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
        """Change some fields of an object, leaving the others, also those we do not know, alone."""
        ...

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete an object, only the one of this ``uid`` where given."""
        ...

    def installed(self) -> frozenset[Resource]:
        """All kinds that the server serves, in the versions it prefers."""
        ...

    def within(self, limit_s: float) -> "Api":
        """The same server by a connection of its own, on which no answer is waited for longer than this."""
        ...

    def served(self, api_version: str) -> frozenset[Resource]:
        """Kinds of one version of one group; none where it is not installed."""
        ...

    def hang_up(self) -> None:
        """Cut all connections: each request and watch in progress fails without an answer; new ones may begin."""
        ...

    def close(self) -> None:
        """Close for good: each later request fails without an answer. Objects from `within` are closed, too."""
        ...


def meta(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """``metadata`` of an object; empty where it is malformed."""
    found = value.get("metadata") if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def key_of(value: Mapping[str, Any]) -> str:
    """``namespace/name``, the name alone without a namespace; empty where there is no name."""
    metadata = meta(value)
    namespace, name = metadata.get("namespace"), metadata.get("name")
    if not isinstance(name, str):
        return ""
    return f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name


def version_of(value: Mapping[str, Any]) -> str:
    """``metadata.resourceVersion``; empty where there is none."""
    found = meta(value).get("resourceVersion")
    return found if isinstance(found, str) else ""
