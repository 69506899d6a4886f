"""Past usage in the native format: samples of what queues held, and how they count."""

from collections.abc import Iterable, Mapping
from math import inf
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BeforeValidator, Field

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.fairness import UsageHistory, UsageParams, past_usage, usage_warnings
from kai_solver.fairness.usage import WEEK_S
from kai_solver.instances_io.fields import LARGEST_SECONDS, Amount, Millis, Moment, Seconds, Strict
from kai_solver.units import parse_duration_s

Usage = tuple[float, float, float]

NAME = "usageHistory"

Span = Annotated[Seconds, Field(ge=1, le=LARGEST_SECONDS)]
"""A duration that is divided by."""


class AmountsDoc(Strict):
    """Amounts by resource; what is not given is 0."""

    cpu: Millis = 0
    memory: Amount = 0
    gpu: Millis = 0


def as_gpus(value: Any) -> Any:
    """A bare number means GPUs."""
    return value if isinstance(value, dict | Strict) else {"gpu": value}


Amounts = Annotated[AmountsDoc, BeforeValidator(as_gpus, json_schema_input_type=AmountsDoc | float | str)]


class UsageParamsDoc(Strict):
    """How the past counts; names and defaults are those of KAI's ``usageParams``."""

    window_type: Literal["sliding", "tumbling"] = "sliding"
    window_size: Span = WEEK_S
    tumbling_window_start_time: Moment = None
    """A moment at which a window begins; needed for ``tumbling``."""
    half_life_period: Span | None = None
    """Default: none, all samples count equally."""
    staleness_period: Seconds = 300.0
    query_resolution: Span = 60.0
    lookback: Span | None = None
    """How long a sample holds at most. Default: until the next one. A Prometheus server: 5m."""


class UsageSampleDoc(Strict):
    """What queues held, and how much there was, from a moment until the next sample; one number is GPUs."""

    time: Moment
    capacity: Amounts = AmountsDoc()
    """Of the whole cluster. Default: unknown, and usage is divided by 1."""
    queues: dict[str, Amounts] = Field(default_factory=dict)
    """Default: a queue held nothing; a parent that no sample names held what its children did."""


class UsageHistoryDoc(Strict):
    """Past usage, for time-based fair share."""

    params: UsageParamsDoc = UsageParamsDoc()
    samples: tuple[UsageSampleDoc, ...] = ()


def read_usage(
    doc: UsageHistoryDoc, parent: Mapping[str, str], now_s: float
) -> tuple[dict[str, Usage], tuple[Notice, ...]]:
    """Past usage by queue, and what the user should know about it.

    Raises
    ------
    InputError
        Two samples of one time; a tumbling window without a start.
    """
    history, params = _history(doc.samples, now_s), params_of(doc.params, now_s)
    texts = [
        f"queue {queue!r} is not in this instance: its usage is not used"
        for queue in history.queues
        if queue not in parent
    ]
    texts += usage_warnings(history, params, now_s)
    notices = tuple(Notice("warning", NAME, text) for text in texts)
    return past_usage(history, params, parent, now_s), notices


def params_of(doc: UsageParamsDoc, now_s: float) -> UsageParams:
    """How the past counts at ``now_s``, epoch seconds.

    Raises
    ------
    InputError
        A tumbling window without a start.
    """
    start = doc.tumbling_window_start_time
    if doc.window_type == "tumbling" and start is None:
        field = f"{NAME}.params.tumblingWindowStartTime"
        raise InputError("is missing", field=field, cure="Give a moment at which a window begins")
    return UsageParams(
        window=doc.window_type,
        size_s=doc.window_size,
        start_s=0.0 if start is None else _moment_s(start, now_s),
        half_life_s=doc.half_life_period,
        resolution_s=doc.query_resolution,
        lookback_s=inf if doc.lookback is None else doc.lookback,
        staleness_s=doc.staleness_period,
    )


def _history(samples: Iterable[UsageSampleDoc], now_s: float) -> UsageHistory:
    by_time: dict[float, UsageSampleDoc] = {}
    for place, sample in enumerate(samples):
        time_s = _moment_s(sample.time, now_s)
        if time_s in by_time:
            field = f"{NAME}.samples[{place}].time"
            raise InputError("is the time of another sample too", field=field, cure="Give every sample its own time")
        by_time[time_s] = sample
    ordered = [by_time[time_s] for time_s in sorted(by_time)]
    queues = tuple(sorted({queue for sample in ordered for queue in sample.queues}))
    held = [[_triple(sample.queues.get(queue)) for queue in queues] for sample in ordered]
    return UsageHistory(
        time_s=np.array(sorted(by_time), dtype=np.float64),
        queues=queues,
        allocated=np.array(held, dtype=np.float64).reshape(len(ordered), len(queues), 3),
        capacity=np.array([_triple(sample.capacity) for sample in ordered], dtype=np.float64).reshape(-1, 3),
    )


def _triple(doc: AmountsDoc | None) -> tuple[int, int, int]:
    return (0, 0, 0) if doc is None else (doc.cpu, doc.memory, doc.gpu)


def _moment_s(value: float | str, now_s: float) -> float:
    """Epoch seconds; a duration counts back from now."""
    return now_s - parse_duration_s(value) if isinstance(value, str) else float(value)
