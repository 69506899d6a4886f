"""Logs each error of each object that a barrier stops in a controller, with its trace, and counts them all."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import get_args

import structlog

from kai_solver.errors.barrier import Where, in_words, trace_of
from kai_solver.metrics import Metrics

AGAIN_S = 600.0
"""The same error of the same object is logged again after this time."""

_MOST = 10_000

_LOG = structlog.get_logger(__name__)


@dataclass(slots=True)
class Faults:
    """A listener of barriers."""

    metrics: Metrics
    monotonic: Callable[[], float] = time.monotonic
    _logged: dict[tuple[str, str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Begin every count at 0: otherwise Prometheus would see no increase at the first error of a kind."""
        for where in get_args(Where):
            self.metrics.faults.labels(where)

    def __call__(self, where: Where, what: str, error: Exception) -> None:
        """Count the error, and log it unless that was done recently."""
        self.metrics.faults.labels(where).inc()
        if self._is_news((where, what, type(error).__name__)):
            _LOG.error(
                "unexpected error caught; everything else continues",
                where=where,
                what=what,
                error=in_words(error),
                trace=trace_of(error),
            )

    def _is_news(self, fault: tuple[str, str, str]) -> bool:
        now_s = self.monotonic()
        with self._lock:
            if now_s - self._logged.get(fault, float("-inf")) < AGAIN_S:
                return False
            if len(self._logged) >= _MOST:
                self._logged.clear()
            self._logged[fault] = now_s
            return True
