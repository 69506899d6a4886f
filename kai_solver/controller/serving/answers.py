"""Answers, and routes that consist only of an answer."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

FRESH_S = 0.25
"""One text of the metrics is sent to all callers for this time: many scrapes cost no more than four in a second."""


class Rest(Protocol):
    """Bytes that are read piece by piece, once."""

    @property
    def size(self) -> int:
        """How many there are."""
        ...

    def __iter__(self) -> Iterator[bytes]: ...

    def close(self) -> None:
        """Nothing more is read."""
        ...


@dataclass(frozen=True, slots=True)
class Answer:
    """An HTTP answer.

    ``name``: file name under which a client saves it; ``rest``: what follows ``body``, read while it is sent.
    """

    status: int
    body: bytes
    content: str = "text/plain; charset=utf-8"
    name: str = ""
    rest: Rest | None = None


Route = Callable[[Mapping[str, str]], Answer]
"""Given the parameters of the address, the last of each name."""

PostRoute = Callable[[bytes | bytearray], Answer]

Guard = Callable[[str, str], Answer | None]
"""Given the path and the header ``Authorization``: a refusal, or None where the caller may go on."""


def probe(problem: Callable[[], str]) -> Route:
    """``ok``, or 503 with what ``problem`` says is wrong."""

    def answer(_: Mapping[str, str]) -> Answer:
        text = problem()
        return Answer(503, f"{text}\n".encode()) if text else Answer(200, b"ok\n")

    return answer


def download(name: str, content: str, body: Callable[[], bytes]) -> Route:
    """A file."""
    return lambda _: Answer(200, body(), content, name)


def metrics(registry: CollectorRegistry, clock: Callable[[], float] = time.monotonic) -> Route:
    """All metrics, as Prometheus reads them; at most `FRESH_S` old."""
    return _Metrics(registry, clock)


@dataclass(slots=True)
class _Metrics:
    registry: CollectorRegistry
    clock: Callable[[], float]
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _text: bytes = b""
    _made_s: float = float("-inf")

    def __call__(self, _: Mapping[str, str]) -> Answer:
        with self._lock:
            if self.clock() - self._made_s >= FRESH_S:
                self._text = generate_latest(self.registry)
                self._made_s = self.clock()
            return Answer(200, self._text, CONTENT_TYPE_LATEST)
