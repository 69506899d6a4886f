"""An `Api` around another one that sends no request without the lead, for all code that acts on the cluster."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kai_solver.cluster.api import Api, FenceError, Object, Page, PatchKind, WatchEvent
from kai_solver.cluster.resources import Resource


class FencedApi:
    """Each request asks ``fence`` first, and raises `FenceError` where it says no.

    This includes requests that only read: code that acts must not wait for an answer after its lead has ended.
    """

    def __init__(self, api: Api, fence: Callable[[], bool]) -> None:
        self._api = api
        self._fence = fence

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        """A new object, or an act on one."""
        self._check()
        return self._api.create(resource, namespace, body, subresource=subresource)

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
        self._check()
        return self._api.patch(resource, namespace, name, body, kind=kind, subresource=subresource)

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete an object."""
        self._check()
        self._api.delete(resource, namespace, name, uid=uid, grace_s=grace_s)

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        """One page of a collection."""
        self._check()
        return self._api.page(resource, namespace=namespace, limit=limit, continue_=continue_, name=name)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes of a collection."""
        self._check()
        return self._api.watch(resource, resource_version, timeout_s)

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        self._check()
        return self._api.get(resource, namespace, name)

    def installed(self) -> frozenset[Resource]:
        """All kinds that the server serves."""
        self._check()
        return self._api.installed()

    def served(self, api_version: str) -> frozenset[Resource]:
        """Kinds of one version of one group."""
        self._check()
        return self._api.served(api_version)

    def within(self, limit_s: float) -> "FencedApi":
        """The same server by a connection of its own."""
        return FencedApi(self._api.within(limit_s), self._fence)

    def hang_up(self) -> None:
        """Cut all connections."""
        self._api.hang_up()

    def close(self) -> None:
        """Hang up, for good."""
        self._api.close()

    def _check(self) -> None:
        if not self._fence():
            raise FenceError
