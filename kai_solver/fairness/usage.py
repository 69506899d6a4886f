"""Past usage of queues, for time-based fair share (docs/kai-behaviour.md#usage; KAI: ``cache/usagedb``).

KAI asks a metrics store for ``sum_over_time(metric[window:resolution])``: the metric is read at every multiple of the
resolution inside the window, and what was read is added up. The same is computed here from samples at any times: a
sample holds until the next one, and counts once for every multiple of the resolution at which it is the newest.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor, inf, log
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from kai_solver.units import QUEUE_RESOURCES

FloatArray = NDArray[np.float64]

WEEK_S = 604_800.0


@dataclass(frozen=True, slots=True)
class UsageParams:
    """How the past counts (KAI: ``usageDBConfig.usageParams``, whose defaults these are).

    Attributes
    ----------
    window
        ``sliding``: the last ``size_s`` seconds. ``tumbling``: since the latest of the moments
        ``start_s`` + n · ``size_s``, so that usage starts again at each of them.
    half_life_s
        Age at which a sample counts half; None: all count equally.
    resolution_s
        Distance of the moments at which samples are read.
    lookback_s
        How long a sample holds at most (a Prometheus server: 300); without end where there is no next one.
    staleness_s
        Age of the newest sample above which users are warned; it is used all the same.
    """

    window: Literal["sliding", "tumbling"] = "sliding"
    size_s: float = WEEK_S
    start_s: float = 0.0
    half_life_s: float | None = None
    resolution_s: float = 60.0
    lookback_s: float = inf
    staleness_s: float = 300.0


@dataclass(frozen=True, slots=True, eq=False)
class UsageHistory:
    """What S samples say of N queues.

    Attributes
    ----------
    time_s
        (S,) epoch seconds, ascending, none twice.
    queues
        Names, N of them; parents need not be among them.
    allocated
        (S, N, 3) cpu milli, memory bytes, gpu milli.
    capacity
        (S, 3) of the whole cluster, in the same units; 0 where unknown.
    """

    time_s: FloatArray
    queues: tuple[str, ...]
    allocated: FloatArray
    capacity: FloatArray


def past_usage(
    history: UsageHistory, params: UsageParams, parent: Mapping[str, str], now_s: float
) -> dict[str, tuple[float, float, float]]:
    """Usage by queue as a share of capacity per resource: Σ w(t) allocated(t) / Σ w(t) capacity(t).

    A parent that has no series of its own has the sum of its children's. Where no capacity is known the divisor is 1.

    Parameters
    ----------
    parent
        Parent of every queue, empty at a root.
    """
    weights = sample_weights(history.time_s, params, now_s)
    used = np.einsum("s,snr->nr", weights, history.allocated)
    return usage_shares(history.queues, used, weights @ history.capacity, parent)


def usage_shares(
    queues: Sequence[str], used: FloatArray, capacity: FloatArray, parent: Mapping[str, str]
) -> dict[str, tuple[float, float, float]]:
    """Usage by queue as a share of capacity, from what was added up over the window.

    Parameters
    ----------
    queues
        Names, N of them.
    used
        (N, 3) by queue and resource.
    capacity
        (3,) of the cluster, in the same units; 0 where unknown: the divisor is 1.
    parent
        As of `past_usage`.
    """
    shares = used / np.where(capacity > 0, capacity, 1.0)
    heard = frozenset(queues)
    totals: dict[str, FloatArray] = {}
    for name, share in zip(queues, shares, strict=True):
        for queue in (name, *_unheard_ancestors(name, parent, heard)):
            totals[queue] = totals.get(queue, np.zeros(3)) + share
    return {queue: (float(cpu), float(memory), float(gpu)) for queue, (cpu, memory, gpu) in totals.items()}


def _unheard_ancestors(name: str, parent: Mapping[str, str], heard: frozenset[str]) -> Iterator[str]:
    """Queues above ``name`` up to the first with a series of its own, which speaks for all above it."""
    seen = {name}
    while (name := parent.get(name, "")) and name not in heard and name not in seen:
        seen.add(name)
        yield name


def sample_weights(time_s: FloatArray, params: UsageParams, now_s: float) -> FloatArray:
    """(S,) how much each sample counts: w(t) = 0.5^((now - t) / half-life), summed over the moments t that it holds.

    The moments are the multiples of the resolution after the window's start, up to and with now.
    """
    step = params.resolution_s
    until = np.minimum(np.append(time_s[1:], inf), time_s + params.lookback_s) if len(time_s) else time_s
    first = np.maximum(np.ceil(time_s / step), floor(window_start_s(params, now_s) / step) + 1)
    last = np.minimum(np.ceil(until / step) - 1, floor(now_s / step))
    count: FloatArray = np.maximum(0.0, last - first + 1)
    if params.half_life_s is None:
        return count
    # A geometric series: newest moment first, each older one weighs less by the same factor.
    rate = -log(2) / params.half_life_s
    newest = np.exp(rate * (now_s - last * step))
    series: FloatArray = newest * np.expm1(rate * step * count) / np.expm1(rate * step)
    return series


def window_start_s(params: UsageParams, now_s: float) -> float:
    """Epoch second after which samples count."""
    if params.window == "sliding":
        return now_s - params.size_s
    since: float = (now_s - params.start_s) % params.size_s
    return now_s - since


def usage_warnings(history: UsageHistory, params: UsageParams, now_s: float) -> tuple[str, ...]:
    """What users should know about the history; all of it that can be used is used."""
    return tuple(_warnings(history, params, now_s))


def _warnings(history: UsageHistory, params: UsageParams, now_s: float) -> Iterator[str]:
    known = history.time_s[history.time_s <= now_s]
    if later := len(history.time_s) - len(known):
        yield f"{later} of its samples are later than now: not used"
    weights = sample_weights(history.time_s, params, now_s)
    if not weights.any():
        yield "no sample falls into the window: past usage counts as none"
    elif (age := now_s - float(known[-1])) > params.staleness_s:
        yield f"its newest sample is {age:g} s old, more than {params.staleness_s:g} s: used all the same"
    used = np.einsum("s,snr->r", weights, history.allocated)
    for name, use, capacity in zip(QUEUE_RESOURCES, used, weights @ history.capacity, strict=True):
        if use > 0 and capacity == 0:
            yield f"no capacity of {name} is given: usage is divided by 1, and is no share of anything"
