"""Questions about past usage to a Prometheus server, and its answers.

A question adds up a metric over the window, at every multiple of the resolution, as KAI's does. At each moment the
largest of equal series counts: after a restart there is one for each instance, and a sum would count queues twice.

Source: docs/kai-behaviour.md#usage; the HTTP API of Prometheus.
"""

import base64
import os
import time
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

import numpy as np
import urllib3
from numpy.typing import NDArray
from pydantic import BaseModel, ValidationError

from kai_solver.errors import InputError, KaiSolverError, printable, shown
from kai_solver.fairness import window_start_s
from kai_solver.kubeobjects.usagedb import UsageStore, place_of

QUEUE = "queue_name"
LARGEST_ANSWER = 32 * 1024 * 1024
"""Bytes; 200,000 queues have less."""

LARGEST_AMOUNT, LARGEST_SHARE = 1e30, 1e6
"""What is more is no amount, and no share of a cluster."""

NAMES = ("CPU", "memory", "GPUs")


class UsageError(KaiSolverError):
    """Past usage cannot be had now; the text says why."""


class _Sample(BaseModel):
    metric: dict[str, str]
    value: tuple[float, float]


class _Vector(BaseModel):
    resultType: Literal["vector"]  # noqa: N815 (the name in the API)
    result: list[_Sample]


class _Answer(BaseModel):
    status: str
    error: str = ""
    data: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Usage:
    """What queues held, added up over the window.

    Attributes
    ----------
    queues
        Names, N of them.
    used
        (N, 3): CPU in cores, memory in bytes, GPUs, by moment of the window.
    capacity
        (3,) of the cluster, in the same units; 0 where no queue used anything and it is unknown.
    """

    queues: tuple[str, ...]
    used: NDArray[np.float64]
    capacity: NDArray[np.float64]


def questions(store: UsageStore, now_s: float) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Three questions about queues and three about the cluster, for CPU, memory and GPUs."""
    params = store.params
    window_s, step_s = max(1, round(now_s - window_start_s(params, now_s))), max(1, round(params.resolution_s))
    half_life_s = params.half_life_s
    weight = "" if half_life_s is None else f" * (0.5 ^ (({now_s:.0f} - time()) / {half_life_s:.3f}))"
    queues = tuple(
        f"sum_over_time((max by ({QUEUE}) ({metric}){weight})[{window_s}s:{step_s}s])" for metric in store.allocated
    )
    cluster = tuple(f"sum_over_time((({metric}){weight})[{window_s}s:{step_s}s])" for metric in store.capacity)
    return queues, cluster


def ask(store: UsageStore, now_s: float) -> Usage:
    """What the store says of the window that ends at ``now_s``, epoch seconds.

    Raises
    ------
    UsageError
        It does not answer in time, or not as Prometheus does, or does not know the capacity of what queues used: then
        usage is no share of anything, and KAI's scheduler has none either.
    """
    server = _Server(_address(store), store.timeout_s)
    of_queues, of_cluster = questions(store, now_s)
    held = [server.vector(question, now_s) for question in of_queues]
    queues = tuple(sorted({sample.metric.get(QUEUE, "") for samples in held for sample in samples} - {""}))
    place = {queue: number for number, queue in enumerate(queues)}
    used = np.zeros((len(queues), 3))
    for resource, samples in enumerate(held):
        for sample in samples:
            if sample.metric.get(QUEUE):
                used[place[sample.metric[QUEUE]], resource] += _amount(sample)
    capacity = np.array([sum(map(_amount, server.vector(question, now_s))) for question in of_cluster], dtype=float)
    for name, metric, amounts, most in zip(NAMES, store.capacity, used.T, capacity * LARGEST_SHARE, strict=True):
        if (amounts > most).any():
            raise UsageError(f"queues used {name}, but of {metric} there is nothing, or next to nothing")
    return Usage(queues, used, capacity)


def _amount(sample: _Sample) -> float:
    """No number, less than nothing and more than there can be count as nothing."""
    value = sample.value[1]
    return value if 0 < value < LARGEST_AMOUNT else 0.0


def _address(store: UsageStore) -> str:
    """The address, from the store or from the environment."""
    url = store.url or os.environ.get(store.url_variable, "")
    if not url:
        raise UsageError(f"the environment variable {store.url_variable} is not set")
    try:
        place_of(url)
    except InputError as error:
        raise UsageError(f"{store.url_variable or 'the address'} {error.problem}. {error.cure}") from None
    return url


class _Server:
    """A Prometheus server, for as long as all answers may take; its user and password are sent, and never shown."""

    def __init__(self, url: str, timeout_s: float) -> None:
        parts = urlsplit(url)
        self._place = place_of(url)
        self._url = f"{self._place}{parts.path.rstrip('/')}/api/v1/query"
        self._headers = dict(urllib3.util.make_headers(accept_encoding=True))
        if parts.username or parts.password:
            login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._timeout_s = timeout_s
        self._end_s = time.monotonic() + timeout_s
        self._pool = urllib3.PoolManager(1, retries=False)

    def vector(self, question: str, now_s: float) -> list[_Sample]:
        left_s = self._left_s()
        fields = {"query": question, "time": f"{now_s:.3f}", "timeout": f"{max(1, round(left_s))}s"}
        try:
            with self._pool.request(
                "POST",
                self._url,
                fields=fields,
                headers=self._headers,
                encode_multipart=False,
                preload_content=False,
                timeout=urllib3.Timeout(left_s),
            ) as answer:
                body = self._read(answer)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise UsageError(f"{self._place} does not answer: {printable(str(error))[:200]}") from None
        if len(body) > LARGEST_ANSWER:
            raise UsageError(f"{self._place} answers with more than {LARGEST_ANSWER:,} bytes")
        try:
            found = _Answer.model_validate_json(body)
            if found.status != "success":
                raise UsageError(f"{self._place} refuses {question}: {printable(found.error)[:200]}")
            return _Vector.model_validate(found.data).result
        except ValidationError:
            text = shown(body[:100].decode(errors="replace"))
            raise UsageError(
                f"{self._place} answers with status {answer.status} and {text}, not as Prometheus does"
            ) from None

    def _read(self, answer: urllib3.BaseHTTPResponse) -> bytes:
        """The body, as it comes: one that comes in drops is given up in time."""
        body = bytearray()
        while len(body) <= LARGEST_ANSWER and (part := answer.read1(65_536, decode_content=True)):
            body += part
            self._left_s()
        return bytes(body)

    def _left_s(self) -> float:
        left_s = self._end_s - time.monotonic()
        if left_s <= 0:
            raise UsageError(f"{self._place} takes more than {self._timeout_s:g} s to answer")
        return left_s
