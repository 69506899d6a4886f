"""Statuses and notes on objects: written only where they say something that does not stand there already.

What stands is known from the store, and from the answers to our own writes until the watch has caught up with them. So
a wish that changes nothing costs no request, and one that is refused as outdated is built again from the
newest object.
"""

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kai_solver.cluster.api import Api, ApiError, Object, PatchKind, key_of, meta, version_of
from kai_solver.cluster.resources import Resource
from kai_solver.cluster.store import Store
from kai_solver.cluster.trim import trimmed
from kai_solver.cluster.writer import Order, Wish, Writer
from kai_solver.units import parse_whole

Change = Callable[[Object], Mapping[str, Any] | None]
"""From what stands to the patch that it needs; None where it needs none. It may be asked more than once."""

TRIES = 3
BEHIND_S = 30.0
"""How long an object that we made is taken to be there though no watch shows it."""

_ANSWERS = 5000


class Statuses:
    """Wishes about objects that the store keeps. Any thread may wish; one thread writes."""

    def __init__(self, api: Api, store: Store, writer: Writer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._store = store
        self._writer = writer
        self._monotonic = monotonic
        self._answers: dict[tuple[Resource, str], tuple[Object, float]] = {}
        self._lock = threading.Lock()

    def patch(
        self,
        resource: Resource,
        key: str,
        change: Change,
        *,
        topic: str,
        uid: str = "",
        subresource: str = "status",
        kind: PatchKind = "merge",
        order: Order = Order.SOON,
        every_s: float = 0.0,
    ) -> None:
        """Have ``change`` made; a newer wish with this ``topic`` for the object takes its place.

        Parameters
        ----------
        uid
            Of the one object that is meant; another one of this name is left alone.
        """
        name = (resource.name, key, topic)
        current = self.known(resource, key)
        if current is None or not _is(current, uid) or change(current) is None:
            self._writer.cancel(name)
            return

        def act() -> bool:
            return self._changed(resource, key, change, uid, subresource, kind)

        self._writer.wish(Wish(name, act, order, every_s))

    def cancel(self, resource: Resource, key: str, topic: str) -> None:
        """Nothing is wanted any more."""
        self._writer.cancel((resource.name, key, topic))

    def create(
        self,
        resource: Resource,
        body: Object,
        *,
        order: Order = Order.SOON,
        then: Callable[[], None] = lambda: None,
    ) -> None:
        """Have the object made, where there is none of its name; ``then`` is called once it is made."""
        key = key_of(body)
        if self.known(resource, key) is not None:
            return

        def act() -> bool:
            if self.known(resource, key) is not None:
                return False
            try:
                made = self._api.create(resource, str(meta(body).get("namespace", "")), body)
            except ApiError as error:
                if error.is_conflict:
                    return False  # another client made it
                raise
            self._note(resource, key, made)
            then()
            return True

        self._writer.wish(Wish((resource.name, key, "create"), act, order))

    def tidy(self) -> None:
        """Forget answers with which the watch has caught up; to be called repeatedly.

        After a burst there are no more writes that would do so: 5,000 objects would stay.
        """
        with self._lock:
            while self._answers and self._is_seen(*next(iter(self._answers))):
                del self._answers[next(iter(self._answers))]

    def known(self, resource: Resource, key: str) -> Object | None:
        """The newest that is known of an object: as the store has it, or as the server answered our last write."""
        stored = self._store.get(resource, key)
        with self._lock:
            answer, since_s = self._answers.get((resource, key), (None, 0.0))
            is_news = answer is not None and _number(answer) > (_number(stored) if stored is not None else 0)
            if is_news and (stored is not None or self._monotonic() - since_s < BEHIND_S):
                return answer
            self._answers.pop((resource, key), None)
            return stored

    def _changed(
        self, resource: Resource, key: str, change: Change, uid: str, subresource: str, kind: PatchKind
    ) -> bool:
        namespace, _, name = key.rpartition("/")
        current = self.known(resource, key)
        for _ in range(TRIES):
            body = change(current) if current is not None and _is(current, uid) else None
            if body is None:
                return False
            if uid:
                body = {**body, "metadata": {**body.get("metadata", {}), "uid": uid}}
            try:
                answer = self._api.patch(resource, namespace, name, body, kind=kind, subresource=subresource)
            except ApiError as error:
                if error.is_missing:
                    return False
                if not error.is_conflict:
                    raise
                current = self._read(resource, namespace, name)
                continue
            self._note(resource, key, answer)
            return True
        return False

    def _read(self, resource: Resource, namespace: str, name: str) -> Object | None:
        try:
            return trimmed(resource, self._api.get(resource, namespace, name))
        except ApiError as error:
            if error.is_missing:
                return None
            raise

    def _note(self, resource: Resource, key: str, answer: Object) -> None:
        with self._lock:
            self._answers.pop((resource, key), None)
            self._answers[resource, key] = (trimmed(resource, answer), self._monotonic())
            while len(self._answers) > _ANSWERS or self._is_seen(*next(iter(self._answers))):
                del self._answers[next(iter(self._answers))]

    def _is_seen(self, resource: Resource, key: str) -> bool:
        """Whether the watch had its time, and is not behind our last write."""
        answer, since_s = self._answers[resource, key]
        if self._monotonic() - since_s < BEHIND_S:
            return False
        stored = self._store.get(resource, key)
        return stored is None or _number(stored) >= _number(answer)


def condition_of(value: Mapping[str, Any], kind: str) -> Mapping[str, Any] | None:
    """The condition of a type in an object's status; None where there is none, or the status is malformed."""
    status = value.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    for condition in found if isinstance(found, list) else ():
        if isinstance(condition, dict) and condition.get("type") == kind:
            return condition
    return None


def _is(value: Object, uid: str) -> bool:
    return not uid or meta(value).get("uid") == uid


def _number(value: Object) -> int:
    """Resource versions are numbers in practice, and by contract since Kubernetes 1.35."""
    return parse_whole(version_of(value), 20) or 0
