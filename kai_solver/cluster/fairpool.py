"""A pool of threads of which no namespace takes all: pods that wait in vain must not hold up those of others."""

import functools
import threading
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")
MOST = 3
"""A namespace holds at most so many times as many threads as are free: of 64 the first one 48, the next one 12."""


class FairPool(Executor):
    """Threads for calls of many namespaces.

    The namespace that holds the fewest threads comes first. The calls of one namespace are made in order.

    Parameters
    ----------
    size
        How many threads.
    namespace
        The namespace of a call, by its arguments.
    """

    def __init__(self, size: int, name: str, namespace: Callable[..., str]) -> None:
        self._size = size
        self._namespace = namespace
        self._pool = ThreadPoolExecutor(size, name)
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._held: Counter[str] = Counter()
        self._is_closed = False
        self._is_cut = False
        self._changed = threading.Condition()

    def submit(self, fn: Callable[..., Result], /, *args: Any, **kwargs: Any) -> "Future[Result]":
        """Call it when its turn comes."""
        future: Future[Result] = Future()
        with self._changed:
            if self._is_closed:
                raise RuntimeError("cannot schedule new futures after shutdown")
            call = functools.partial(fn, *args, **kwargs)
            self._waiting.setdefault(self._namespace(*args), deque()).append((future, call))
            self._begin()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Take nothing new."""
        with self._changed:
            self._is_closed = True
            self._is_cut |= cancel_futures
            if cancel_futures:
                for future, _ in [each for waiting in self._waiting.values() for each in waiting]:
                    future.cancel()
                self._waiting.clear()
            while wait and self._waiting:
                self._changed.wait()
            if not self._waiting:
                self._pool.shutdown(wait=False)
        if wait:
            self._pool.shutdown()

    def _begin(self) -> None:
        """Begin all that may begin now."""
        while self._waiting:
            namespace = min(self._waiting, key=lambda each: self._held[each])
            if self._held[namespace] >= MOST * (self._size - self._held.total()):
                return
            waiting = self._waiting[namespace]
            future, call = waiting.popleft()
            if not waiting:
                del self._waiting[namespace]
            self._held[namespace] += 1
            self._pool.submit(self._run, namespace, future, call)

    def _run(self, namespace: str, future: "Future[Any]", call: Callable[[], Any]) -> None:
        if self._is_cut:
            future.cancel()
        try:
            if future.set_running_or_notify_cancel():
                _fulfil(future, call)
        finally:
            with self._changed:
                self._held[namespace] -= 1
                if not self._held[namespace]:
                    del self._held[namespace]
                self._begin()
                if self._is_closed and not self._waiting:
                    self._pool.shutdown(wait=False)
                self._changed.notify_all()


def _fulfil(future: "Future[Any]", call: Callable[[], Any]) -> None:
    try:
        result = call()
    except BaseException as error:
        future.set_exception(error)
        if not isinstance(error, Exception):
            raise
    else:
        future.set_result(result)
