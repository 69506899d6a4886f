"""How long the API server takes to answer, and whether it does: an `Api` around another one."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from kai_solver.cluster.api import Api, ApiError, Object, Page, PatchKind, WatchEvent
from kai_solver.cluster.contact import Contact
from kai_solver.cluster.resources import Resource

Observe = Callable[[str, float], None]
"""Called with a request that ended, well or not: its verb as in RBAC, and seconds."""


class TimedApi:
    """Reports all requests to ``contact``; to ``observe`` all but discovery and watches, which last long."""

    def __init__(
        self,
        api: Api,
        observe: Observe,
        clock: Callable[[], float] = time.perf_counter,
        contact: Contact | None = None,
    ) -> None:
        self._api = api
        self._observe = observe
        self._clock = clock
        self.contact = contact or Contact()

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        """One page of a collection."""
        with self._timed("list"):
            return self._api.page(resource, namespace=namespace, limit=limit, continue_=continue_, name=name)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        """Changes of a collection."""
        return self._listened(self._api.watch(resource, resource_version, timeout_s))

    def _listened(self, watch: Iterator[WatchEvent]) -> Iterator[WatchEvent]:
        began_s = self.contact.now()
        try:
            for event in watch:
                self.contact.answered()
                yield event
        except ApiError as error:
            self.contact.ended(began_s, error)
            raise

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """One object."""
        with self._timed("get"):
            return self._api.get(resource, namespace, name)

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        """A new object, or an act on one; bindings and evictions are verbs of their own here."""
        with self._timed(subresource or "create"):
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
        with self._timed("patch"):
            return self._api.patch(resource, namespace, name, body, kind=kind, subresource=subresource)

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        """Delete an object."""
        with self._timed("delete"):
            self._api.delete(resource, namespace, name, uid=uid, grace_s=grace_s)

    def installed(self) -> frozenset[Resource]:
        """All kinds that the server serves."""
        with self._heard():
            return self._api.installed()

    def served(self, api_version: str) -> frozenset[Resource]:
        """Kinds of one version of one group."""
        with self._heard():
            return self._api.served(api_version)

    def within(self, limit_s: float) -> "TimedApi":
        """The same server by a connection of its own."""
        return TimedApi(self._api.within(limit_s), self._observe, self._clock, self.contact)

    def hang_up(self) -> None:
        """Cut all connections."""
        self._api.hang_up()

    def close(self) -> None:
        """Hang up, for good."""
        self._api.close()

    @contextmanager
    def _timed(self, verb: str) -> Iterator[None]:
        began_s = self._clock()
        try:
            with self._heard():
                yield
        finally:
            self._observe(verb, self._clock() - began_s)

    @contextmanager
    def _heard(self) -> Iterator[None]:
        began_s = self.contact.now()
        try:
            yield
        except ApiError as error:
            self.contact.ended(began_s, error)
            raise
        self.contact.ended(began_s, None)
