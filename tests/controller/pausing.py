"""An API server in memory that stops answering at any request that a test chooses, as seen by its clients."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from typing import Any, TypeVar

from kai_solver.cluster.api import ApiError, Object, Page, PatchKind, WatchEvent, version_of
from kai_solver.cluster.memory import MemoryApi
from kai_solver.cluster.resources import LEASES, Resource

Answer = TypeVar("Answer")
LOOK_S = 0.02
IMPATIENT_S = 0.2
"""How long a client waits that was made with a limit, whichever: tests have no time."""

DEAD_S = 1.0
"""How long a request waits on a connection without its other end; on all others it waits without end."""


class Outage(Enum):
    """What becomes of the request at which it begins, and of those that come while it lasts."""

    STOPPED = "carried out when the server goes on, whoever waits for that"
    ANSWER_LOST = "the first is carried out at once, and not answered; the others as with a stopped server"
    HALF_OPEN = "never carried out, also later: connections that were there are dead"


class PausingServer:
    """Around the real cluster (``truth``); an outage begins at request number ``at`` (from 1; 0: never).

    ``is_fenced``: says whether the client that writes may; late writes are noted in ``faults``.
    """

    def __init__(self, truth: MemoryApi, at: int = 0, outage: Outage = Outage.STOPPED) -> None:
        self.truth = truth
        self.at = at
        self.outage = outage
        self.stages: list[str] = []
        """What was asked, in order."""
        self.is_fenced: Callable[[], bool] = lambda: False
        self.faults: list[str] = []
        self.is_away = False
        self.news = threading.Condition()
        self._outages = 0
        self._abandoned: list[Callable[[], object]] = []
        self._late: Counter[int] = Counter()

    def heal(self) -> None:
        """Continue: first with requests whose clients no longer wait."""
        with self.news:
            for act in self._abandoned:
                try:
                    act()
                except ApiError:
                    continue  # refused, without an answer
            self._abandoned.clear()
            self.is_away, self._outages = False, self._outages + 1
            self.news.notify_all()

    def began(self, stage: str) -> bool:
        """Note a request; whether the outage begins with it."""
        with self.news:
            self.stages.append(stage)
            begins = len(self.stages) == self.at
            self.is_away |= begins
            return begins

    def note_write(self, stage: str) -> None:
        """A thread may be on its way when the lead ends; a second time it should have known."""
        if self.is_fenced():
            self._late[threading.get_ident()] += 1
            if self._late[threading.get_ident()] > 1:
                self.faults.append(f"{stage} without the lead")

    def answered(self, client: "PausingClient", is_write: bool, act: Callable[[], Answer], first: bool) -> Answer:
        """The answer, when there is one; `ApiError` where the client waits no longer."""
        limit_s = min(client.limit_s, DEAD_S) if self.outage is Outage.HALF_OPEN else client.limit_s
        cuts, since, ends_s = client.cuts, self._outages, time.monotonic() + limit_s
        is_done = first and self.outage is Outage.ANSWER_LOST
        if is_done:
            act()
        with self.news:
            while self.is_away or (self.outage is Outage.HALF_OPEN and since != self._outages):
                left_s = ends_s - time.monotonic()
                if client.cuts != cuts or left_s <= 0:
                    if is_write and not is_done and self.is_away and self.outage is not Outage.HALF_OPEN:
                        self._abandoned.append(act)
                    raise ApiError(0, "TimedOut", "the server does not answer")
                self.news.wait(min(left_s, 5.0))
        if is_done:
            raise ApiError(0, "Reset", "the answer got lost")
        return act()


class PausingClient:
    """`Api` of one client; a request waits without end, but for those of clients with a limit."""

    def __init__(self, server: PausingServer, limit_s: float = float("inf")) -> None:
        self.server = server
        self.limit_s = limit_s
        self.cuts = 0
        self._is_closed = False
        self._within: list[PausingClient] = []

    def page(
        self, resource: Resource, *, namespace: str = "", limit: int = 500, continue_: str = "", name: str = ""
    ) -> Page:
        truth = self.server.truth
        ask = lambda: truth.page(resource, namespace=namespace, limit=limit, continue_=continue_, name=name)  # noqa: E731
        return self._asked("list", False, ask)

    def watch(self, resource: Resource, resource_version: str, timeout_s: float) -> Iterator[WatchEvent]:
        return self._listened(resource, resource_version, time.monotonic() + timeout_s, self.cuts)

    def _listened(self, resource: Resource, version: str, ends_s: float, cuts: int) -> Iterator[WatchEvent]:
        self._asked("watch", False, lambda: None)
        server, since, dead_s = self.server, self.server._outages, 0.0
        while time.monotonic() < ends_s and not self._is_closed:
            if self.cuts != cuts:
                raise ApiError(0, "Cut")
            is_dead = server.outage is Outage.HALF_OPEN and since != server._outages
            if is_dead and time.monotonic() > dead_s:
                raise ApiError(0, "TimedOut")
            dead_s = dead_s if is_dead else time.monotonic() + DEAD_S
            if server.is_away or is_dead:
                time.sleep(LOOK_S)
                continue
            for event in server.truth.watch(resource, version, LOOK_S):
                version = version_of(event.object)
                yield event

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        return self._asked(f"get {resource.plural}", False, lambda: self.server.truth.get(resource, namespace, name))

    def create(self, resource: Resource, namespace: str, body: Mapping[str, Any], *, subresource: str = "") -> Object:
        act = lambda: self.server.truth.create(resource, namespace, body, subresource=subresource)  # noqa: E731
        return self._written(f"create {resource.plural} {subresource}", resource, act)

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
        truth = self.server.truth
        act = lambda: truth.patch(resource, namespace, name, body, kind=kind, subresource=subresource)  # noqa: E731
        return self._written(f"patch {resource.plural} {subresource}", resource, act)

    def delete(
        self, resource: Resource, namespace: str, name: str, *, uid: str = "", grace_s: int | None = None
    ) -> None:
        act = lambda: self.server.truth.delete(resource, namespace, name, uid=uid, grace_s=grace_s)  # noqa: E731
        self._written(f"delete {resource.plural}", resource, act)

    def installed(self) -> frozenset[Resource]:
        return self._asked("discovery", False, self.server.truth.installed)

    def served(self, api_version: str) -> frozenset[Resource]:
        return self._asked("discovery", False, lambda: self.server.truth.served(api_version))

    def within(self, limit_s: float) -> "PausingClient":
        self._within.append(PausingClient(self.server, IMPATIENT_S))
        return self._within[-1]

    def hang_up(self) -> None:
        with self.server.news:
            self.cuts += 1
            self.server.news.notify_all()

    def close(self) -> None:
        self._is_closed = True
        self.hang_up()
        for other in self._within:
            other.close()

    def _written(self, stage: str, resource: Resource, act: Callable[[], Answer]) -> Answer:
        if resource != LEASES:
            self.server.note_write(stage)
        return self._asked(stage, True, act)

    def _asked(self, stage: str, is_write: bool, act: Callable[[], Answer]) -> Answer:
        if self._is_closed:
            raise ApiError(0, "Closed")
        first = self.server.began(stage)
        return self.server.answered(self, is_write, act, first)
