"""What rules ask of the cluster: from memory where that will do, live before an object is refused because of it."""

import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as TooLate
from typing import TypeVar

import structlog

from kai_solver.cluster.api import Api, ApiError, Object, meta
from kai_solver.cluster.resources import NAMESPACES, QUEUES, RUNTIME_CLASSES
from kai_solver.cluster.store import Store
from kai_solver.errors import nearest
from kai_solver.kubeobjects.raw import Raw

_LOG = structlog.get_logger(__name__)

PATIENCE_S = 2.0
"""Seconds for a question to the API server; it waits for our answer meanwhile, and gives up after five."""

REMEMBERED_S = 60.0
"""How long the answer whether a runtime class exists is believed."""

_NAMED = 5

Answer = TypeVar("Answer")


class Lookup:
    """Queues, namespaces and runtime classes, as far as admission needs them.

    Parameters
    ----------
    store
        What reflectors know; it may be a moment behind.
    """

    def __init__(self, api: Api, store: Store, patience_s: float = PATIENCE_S) -> None:
        self._api = api
        self._store = store
        self._patience_s = patience_s
        self._pool = ThreadPoolExecutor(4, "admission")
        self._runtime_classes: dict[str, tuple[float, bool]] = {}

    def queue(self, name: str) -> Object | None:
        """A queue, as far as is known."""
        return self._store.get(QUEUES, name)

    def queues(self) -> tuple[Object, ...]:
        """All queues that are known."""
        return self._store.all(QUEUES)

    def has_queue(self, name: str) -> bool:
        """Whether there is a queue of this name; True, too, where that is not known."""
        return self.queue(name) is not None or self._exists(lambda: self._api.get(QUEUES, "", name))

    def namespace_labels(self, name: str) -> dict[str, str]:
        """Labels of a namespace; none where it is not there, or not known."""
        found = self._store.get(NAMESPACES, name) or self._ask(lambda: self._api.get(NAMESPACES, "", name))
        return Raw(found).strings("metadata.labels") if found else {}

    def has_runtime_class(self, name: str) -> bool:
        """Whether there is a runtime class of this name; False, too, where that is not known."""
        asked_s, found = self._runtime_classes.get(name, (0.0, False))
        if not asked_s or time.monotonic() > asked_s + REMEMBERED_S:
            found = self._ask(lambda: self._api.get(RUNTIME_CLASSES, "", name)) is not None
            self._runtime_classes[name] = (time.monotonic(), found)
        return found

    def close(self) -> None:
        """Ask no more."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _exists(self, get: Callable[[], Object]) -> bool:
        """False only where the API server says that there is no such object."""
        future = self._pool.submit(get)
        try:
            future.result(self._patience_s)
        except ApiError as error:
            _say_forbidden(error)
            return not error.is_missing
        except TooLate:
            future.cancel()
        return True

    def _ask(self, question: Callable[[], Answer]) -> Answer | None:
        """The answer; None where there is none in time."""
        future = self._pool.submit(question)
        try:
            return future.result(self._patience_s)
        except ApiError as error:
            _say_forbidden(error)
            return None
        except TooLate:
            future.cancel()
            return None


def _say_forbidden(error: ApiError) -> None:
    """Log a missing right: without an answer no request is refused, so the fault would go unnoticed."""
    if error.status == 403:
        _LOG.warning("admission may not ask the API server", error=str(error))


def names_of(objects: Iterable[Object]) -> list[str]:
    """Names, sorted."""
    return sorted(str(meta(value).get("name", "")) for value in objects)


def hint(name: str, names: list[str]) -> str:
    """``Did you mean ...?``, else what there is."""
    close = nearest(name, names)
    if close:
        return f"Did you mean {close!r}?"
    more = ", ..." if len(names) > _NAMED else ""
    return f"There are: {', '.join(names[:_NAMED])}{more}" if names else "There is no other"
