"""Kubernetes events (``v1``): an event that is repeated raises a count, and is written again only after a while.

An event's name follows from its object and its text, so that a new process finds the events of its predecessor.
"""

import hashlib
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from kai_solver.cluster.api import Api, ApiError
from kai_solver.cluster.resources import EVENTS, Resource
from kai_solver.cluster.writer import REMEMBERED_S, Key, Order, Wish, Writer
from kai_solver.kubeobjects.raw import format_time

Known = TypeVar("Known", bound=Hashable)

AGAIN_S = REMEMBERED_S
"""Seconds between two writes of the same event, however often it is repeated. It is remembered for as long."""

CHANGED_S = 60.0
"""Seconds between two events about one object that have the same reason and differ in their words."""

LONGEST = 1024
"""Characters of a message that an API server takes."""

GONE_S = 30.0
"""How long an event about an object that is gone is remembered at least; and seconds between two looks for such."""

_REMEMBERED = 20_000


@dataclass(frozen=True, slots=True)
class About:
    """The object that an event is about; ``uid`` may be empty where it is not known."""

    resource: Resource
    namespace: str
    name: str
    uid: str = ""


@dataclass(slots=True)
class _Tally:
    """How often an event was reported, and whether the server has it."""

    name: str
    count: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    is_there: bool = False


@dataclass(slots=True)
class Events:
    """Reports events, from one thread; several may write them.

    Attributes
    ----------
    component
        Their reporting component.
    is_there
        Whether an object is there, as far as is known.
    """

    api: Api
    writer: Writer
    component: str
    clock: Callable[[], float] = time.time
    is_there: Callable[[About], bool] = lambda _: True
    _tallies: dict[tuple[About, str, str], _Tally] = field(default_factory=dict)
    """By object, reason and message."""
    _latest: dict[tuple[About, str], _Tally] = field(default_factory=dict)
    """By object and reason."""
    _tidy_s: float = float("-inf")

    def report(
        self,
        about: About,
        severity: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        annotations: Mapping[str, str] | None = None,
        *,
        state: bool = False,
        order: Order = Order.LATER,
    ) -> None:
        """Write an event, or raise its count.

        Parameters
        ----------
        state
            It says how things are, not what happened: of several that wait to be written only the newest is.
        """
        message = message if len(message) <= LONGEST else f"{message[: LONGEST - 3]}..."
        tally = self._count(about, reason, message)
        is_same = self._latest.pop((about, reason), None) is tally
        self._latest[about, reason] = tally
        self._forget()
        body = self._body(about, severity, reason, message, annotations or {})
        key = _key(about, reason) if state else _key(about, reason, tally.name)
        every_s = AGAIN_S if is_same or not state else CHANGED_S
        self.writer.wish(Wish(key, lambda: self._write(tally, body), order, every_s))

    def _count(self, about: About, reason: str, message: str) -> _Tally:
        identity = (about, reason, message)
        tally = self._tallies.pop(identity, None)
        if tally is None:
            parts = (about.resource.kind, about.namespace, about.name, about.uid, reason, message)
            digest = hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:16]
            tally = _Tally(f"{about.name[:230].rstrip('-.')}.{digest}", first_s=self.clock())
        self._tallies[identity] = tally
        tally.count += 1
        tally.last_s = self.clock()
        return tally

    def tidy(self) -> None:
        """Forget events about objects that are gone, but for those that are still to be made; to be called repeatedly.

        They do not come again, and how often they were repeated lately is not written any more. Otherwise the events of
        ten minutes are remembered: 7,000 where 45 gangs come and go in a minute (28 November 2026).
        """
        now_s = self.clock()
        if now_s < self._tidy_s:
            return
        self._tidy_s = now_s + GONE_S
        old = [(*identity, tally) for identity, tally in self._tallies.items() if tally.last_s <= now_s - GONE_S]
        gone = {about for about in {entry[0] for entry in old} if not self.is_there(about)}
        for about, reason, message, tally in old:
            if about not in gone:
                continue
            keys = [_key(about, reason, tally.name)]
            if self._latest.get((about, reason)) is tally:
                keys.append(_key(about, reason))
            if tally.is_there or not any(map(self.writer.waits, keys)):
                del self._tallies[about, reason, message]
                if len(keys) > 1:
                    del self._latest[about, reason]
                for key in keys:
                    self.writer.forget(key)

    def _forget(self) -> None:
        """Forget events that were not repeated for long, and the oldest of too many; the oldest are first.

        The API server has them: where such an event comes again, its count is asked for.
        """
        since_s = self.clock() - AGAIN_S
        _drop(self._tallies, since_s)
        _drop(self._latest, since_s)

    def _body(
        self, about: About, severity: str, reason: str, message: str, annotations: Mapping[str, str]
    ) -> dict[str, Any]:
        subject = {
            "apiVersion": about.resource.api_version,
            "kind": about.resource.kind,
            "namespace": about.namespace,
            "name": about.name,
            "uid": about.uid,
        }
        return {
            "metadata": {"namespace": about.namespace or "default", "annotations": dict(annotations)},
            "involvedObject": {name: value for name, value in subject.items() if value},
            "type": severity,
            "reason": reason,
            "message": message,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "reportingInstance": self.component,
        }

    def _write(self, tally: _Tally, body: dict[str, Any]) -> bool:
        """Make the event, or raise its count."""
        namespace = body["metadata"]["namespace"]
        try:
            if tally.is_there or not self._made(tally, body):
                self.api.patch(EVENTS, namespace, tally.name, self._times(tally))
        except ApiError as error:
            if not (error.is_missing and tally.is_there):
                raise
            tally.is_there, tally.count = False, 1  # the server forgets events after an hour
            return self._write(tally, body)
        tally.is_there = True
        return True

    def _made(self, tally: _Tally, body: dict[str, Any]) -> bool:
        """Whether the event was made; else it was there already, and what it counted is added."""
        namespace = body["metadata"]["namespace"]
        metadata = {**body["metadata"], "name": tally.name}
        times = {**self._times(tally), "firstTimestamp": format_time(int(tally.first_s))}
        try:
            self.api.create(EVENTS, namespace, {**body, **times, "metadata": metadata})
        except ApiError as error:
            if not error.is_conflict:
                raise
            before = self.api.get(EVENTS, namespace, tally.name).get("count")
            tally.count += before if isinstance(before, int) else 0
            tally.is_there = True
            return False
        return True

    @staticmethod
    def _times(tally: _Tally) -> dict[str, Any]:
        return {"count": tally.count, "lastTimestamp": format_time(int(tally.last_s))}


def _key(about: About, reason: str, *event: str) -> Key:
    """Of wishes about one object and reason, or about one event of these."""
    return (EVENTS.name, about.resource.kind, about.namespace, about.name, about.uid, reason, *event)


def _drop(kept: dict[Known, _Tally], since_s: float) -> None:
    while len(kept) > _REMEMBERED or next(iter(kept.values())).last_s < since_s:
        del kept[next(iter(kept))]
