"""Keeps one kind of object up to date: list, then watch, for ever (the pattern of client-go's reflector)."""

import random
import threading
import time
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, retry_if_exception, stop_when_event_set, wait_random_exponential

from kai_solver.cluster.api import Api, ApiError, Object, WatchEvent, version_of
from kai_solver.cluster.resources import Resource
from kai_solver.cluster.store import Store
from kai_solver.errors.barrier import barrier

WATCH_S = 290.0
"""How long a watch may last; the server ends it then, and the next one goes on from where it stopped."""

BACKOFF_S = 0.2
LONGEST_BACKOFF_S = 30.0
ABSENT_S = 30.0
"""How often a kind that is not installed is asked for."""

REFUSED_S = 5.0
"""A kind that is refused for this time counts as empty."""

MISSED_PAUSE_S = 5.0
"""How long after an unexpected error that lost an object the kind is listed again."""

LOOK_S = 0.5
"""How often a resting reflector checks whether it must list again."""

SHORTEST_S = 1.0
"""A watch that ends sooner is a server, or a proxy, in trouble: the next one waits a moment."""

Complaint = Callable[[Resource, ApiError], None]


class Reflector:
    """Fills a store with one kind.

    Parameters
    ----------
    stop
        Set to end it.
    is_optional
        A kind that we may not see is as if there were nothing of it; `complain` hears of it once.
    complain
        Called with every failure; the reflector goes on after a wait with jitter, twice as long each time.
    """

    def __init__(
        self,
        api: Api,
        resource: Resource,
        store: Store,
        stop: threading.Event,
        complain: Complaint = lambda _resource, _error: None,
        *,
        is_optional: bool = False,
    ) -> None:
        self._api = api
        self.resource = resource
        self._store = store
        self._stop = stop
        self._complain = complain
        self._is_optional = is_optional
        self._is_reported = False
        self._refused_since_s: float | None = None
        self._version = ""
        self._again = 0
        """How often it was asked to list again: what began before is no longer kept."""
        self._turn = threading.Lock()
        self._retrying = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, ApiError)),
            wait=wait_random_exponential(multiplier=BACKOFF_S, max=LONGEST_BACKOFF_S),
            stop=stop_when_event_set(stop),
            sleep=self._rest,
            before_sleep=self._report,
            retry_error_callback=lambda _: None,
        )

    def run(self) -> None:
        """List and watch until asked to stop; never raises `ApiError`."""
        while not self._stop.is_set():
            if not self._version:
                self._retrying(self._list)
            else:
                self._retrying(self._watch)

    def renew(self) -> None:
        """List again, now. The caller then cuts the connection, so that nothing waits for an earlier list or watch."""
        with self._turn:
            self._again += 1
            self._version, self._refused_since_s = "", None

    def _list(self) -> None:
        """Read the whole collection, page by page; a kind that is not installed is empty."""
        items: list[Object] = []
        continue_, again, is_second = "", self._again, False
        while not self._stop.is_set() and again == self._again:
            try:
                page = self._api.page(self.resource, continue_=continue_)
            except ApiError as error:
                if self._may_be_without(error):
                    self._be_without(error, again)
                    return
                if error.is_gone and continue_ and not is_second:
                    # The list took too long; its pages are of one moment or of none. Twice in a row it is a server in
                    # trouble, which is left alone for a while.
                    items, continue_, is_second = [], "", True
                    continue
                raise
            items.extend(page.items)
            continue_ = page.continue_
            if not continue_:
                with self._turn:
                    if again == self._again:
                        self._store.replace(self.resource, items)
                        self._version = page.resource_version
                        self._refused_since_s = None
                if self._store.missed(self.resource):
                    self._list_again()
                elif not page.resource_version:
                    raise ApiError(500, "NoVersion", "a list without resourceVersion: its changes cannot be watched")
                return

    def _may_be_without(self, error: ApiError) -> bool:
        """Whether there is no such kind here. Kinds of the core always exist: a server that denies it is not ready.

        A refusal counts after `REFUSED_S`: a server that has just started does not know our rights yet.
        """
        if error.status != 403 or not self._is_optional:
            return error.is_missing and bool(self.resource.group)
        now_s = time.monotonic()
        if self._refused_since_s is None:
            self._refused_since_s = now_s
        return now_s - self._refused_since_s >= REFUSED_S

    def _be_without(self, error: ApiError, again: int) -> None:
        """There is nothing of the kind, for a while."""
        if not (error.is_missing or self._is_reported):
            self._complain(self.resource, error)
            self._is_reported = True
        with self._turn:
            if again == self._again:
                self._store.replace(self.resource, ())
        self._rest(ABSENT_S)

    def _watch(self) -> None:
        """Follow the changes of one watch; what is too old to be followed is listed again."""
        started = time.monotonic()
        with self._turn:
            version, again = self._version, self._again
        if not version:
            return
        try:
            watch = self._api.watch(self.resource, version, WATCH_S)  # from now on a cut ends it
            if again != self._again:
                return
            for event in watch:
                if self._stop.is_set() or not self._heard(event, again):
                    return
                if self._store.missed(self.resource):
                    self._list_again()
                    return
        except ApiError as error:
            if not (error.is_gone or error.is_missing):
                raise
            self._forget_version(again)
            self._complain(self.resource, error)
        if time.monotonic() - started < SHORTEST_S:
            self._rest(random.uniform(0, SHORTEST_S))  # noqa: S311 - jitter, no secret

    def _list_again(self) -> None:
        """After an unexpected error: the next list, after a pause, has the object that was lost."""
        again = self._again
        self._rest(MISSED_PAUSE_S)
        self._forget_version(again)

    def _forget_version(self, again: int) -> None:
        """Have the kind listed next, unless it was asked for since ``again``."""
        with self._turn:
            self._version = "" if again == self._again else self._version

    def _heard(self, event: WatchEvent, again: int) -> bool:
        """Keep a change; False where the watch began before it was asked to list again."""
        with self._turn:
            if again != self._again:
                return False
            with barrier("watching", self.resource.kind):
                self._version = version_of(event.object) or self._version
            if event.kind != "BOOKMARK":
                self._store.apply(self.resource, event)
        return True

    def _report(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if isinstance(error, ApiError):
            self._complain(self.resource, error)

    def _rest(self, seconds: float) -> None:
        """Wait, until it is asked to stop or to list again."""
        ends_s, again = time.monotonic() + seconds, self._again
        while again == self._again and (left_s := ends_s - time.monotonic()) > 0:
            if self._stop.wait(min(LOOK_S, left_s)):
                return
