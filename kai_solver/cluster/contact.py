"""Whether the API server answers, and since when it does not."""

import threading
import time
from collections.abc import Callable

import structlog

from kai_solver.cluster.api import ApiError

_LOG = structlog.get_logger(__name__)

SILENT_S = 10.0
"""Silence of this length is logged and reported by ``/readyz``: a server that restarts is silent for less."""


DEAD_S = 2.0
"""After silence of this length, existing connections may be dead: their other end may have dropped them."""


class Contact:
    """The results of all requests to one API server; safe to use from any thread.

    Silence begins when the first request without an answer was sent, and ends with any answer. A refusal is an answer.
    An error of the server (500 and above) is not: a server that cannot reach its etcd returns only such errors.

    Attributes
    ----------
    on_return
        Called when the server answers after `DEAD_S` or more.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.on_return: Callable[[], None] = lambda: None
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._answered_s = float("-inf")
        self._silent_since_s: float | None = None
        self._error = ""
        self._is_reported = False

    def answered(self) -> None:
        """The server answered, or a watch showed something."""
        self._answered_s = self._monotonic()
        if self._silent_since_s is None:
            return
        with self._lock:
            seconds, was_reported = self._seconds(), self._is_reported
            self._silent_since_s, self._is_reported = None, False
        if seconds >= DEAD_S:
            self.on_return()
        if was_reported:
            _LOG.info("the API server answers again", silent_s=round(seconds, 1))

    def ended(self, began_s: float, error: ApiError | None) -> None:
        """A request ended that was sent at ``began_s`` (`now`)."""
        if error is None or not error.is_unclear:
            self.answered()
            return
        with self._lock:
            if self._silent_since_s is None:
                self._silent_since_s = max(began_s, self._answered_s)
            self._error = str(error)
            is_due = not self._is_reported and self._seconds() >= SILENT_S
            self._is_reported |= is_due
        if is_due:
            _LOG.warning("the API server does not answer; waiting for it", why=self.problem)

    def now(self) -> float:
        """The time by its clock."""
        return self._monotonic()

    @property
    def silent_s(self) -> float:
        """For how many seconds the server has not answered; 0 where it answers."""
        with self._lock:
            return self._seconds()

    @property
    def problem(self) -> str:
        """That the server is silent, for how long, and what the last request met; empty where it answers."""
        seconds = self.silent_s
        return f"the API server has not answered for {seconds:.0f} s ({self._error})" if seconds >= SILENT_S else ""

    def _seconds(self) -> float:
        return self._monotonic() - self._silent_since_s if self._silent_since_s is not None else 0.0
