"""A fleet of nodes of one product: pods come and go, and the links of the GPUs that they get are measured.

Pods arrive by a Poisson process and stay for exponential times, the same in every policy. A pod takes whole GPUs of one
node when it arrives, or fails for good. Fractions of what is asked for are counted after a time of warming up.
"""

import heapq
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import fsum

import numpy as np

from kai_solver.experiments.pickers import Picker, picker_of
from kai_solver.links import Product, mask_of

MIX = {1: 0.4, 2: 0.3, 4: 0.3}
"""Share of pods by their GPUs."""

WARM_LIVES = 5.0
"""Mean lives that pass before anything is counted: of the empty fleet of the beginning 0.7% is left."""

Stop = Callable[[], bool]


@dataclass(frozen=True, slots=True, order=True)
class FleetSpec:
    """One run: so many nodes, offered load as a share of their GPUs, mean lives that are counted."""

    seed: int
    policy: str
    nodes: int = 500
    load: float = 0.85
    lives: float = 20.0


@dataclass(frozen=True, slots=True)
class FleetRun:
    """What a run came to.

    Attributes
    ----------
    bandwidth
        Mean over pods of several GPUs of the weakest link in their best ring (of their pair), as a percentage of the
        best that the product has for so many GPUs.
    by_size
        The same by the pods' GPUs.
    possible
        The same if each pod had had the best set of the node that it came to.
    used
        GPUs in use, percent, mean over arrivals.
    failed, pods
        Pods that found no room, and all; after warming up.
    seconds
        CPU time.
    """

    spec: FleetSpec
    bandwidth: float
    by_size: Mapping[int, float]
    possible: float
    used: float
    failed: int
    pods: int
    seconds: float


@dataclass(slots=True)
class _Counts:
    """Sums over the pods that are counted: bandwidth by size as it is and as it could be, GPUs in use."""

    had: dict[int, list[float]]
    possible: list[float]
    used: list[int]
    failed: int = 0


def run_fleet(product: Product, spec: FleetSpec, should_stop: Stop = lambda: False) -> FleetRun | None:
    """Run one spec; None where it was stopped."""
    began = time.process_time()
    picker = picker_of(product.graph, spec.policy)
    counts = _Counts({size: [] for size in MIX if size > 1}, [], [])
    free = np.full(spec.nodes, mask_of(range(product.graph.gpus)), dtype=np.uint64)
    leaving: list[tuple[float, int, int]] = []
    used, warm, arrivals = 0, 0, _arrivals(product.graph.gpus, spec)
    for number, (now, life, size) in enumerate(arrivals):
        if number % 1000 == 0 and should_stop():
            return None
        while leaving and leaving[0][0] <= now:
            _, node, mask = heapq.heappop(leaving)
            free[node] |= np.uint64(mask)
            used -= mask.bit_count()
        is_counted = now >= WARM_LIVES
        warm += not is_counted
        picked = picker.pick(free, size)
        if picked is None:
            counts.failed += is_counted
            continue
        node, mask = picked
        if is_counted:
            _count(counts, picker, int(free[node]), mask, size)
        free[node] &= ~np.uint64(mask)
        heapq.heappush(leaving, (now + life, node, mask))
        used += size
        if is_counted:
            counts.used.append(used)
    return _report(spec, product, counts, len(arrivals) - warm, time.process_time() - began)


def _arrivals(gpus: int, spec: FleetSpec) -> list[tuple[float, float, int]]:
    """When, for how long (mean lives), how many GPUs; the same for all policies of a seed."""
    random = np.random.default_rng(spec.seed)
    mean_gpus = sum(size * share for size, share in MIX.items())
    rate = spec.load * spec.nodes * gpus / mean_gpus
    until = WARM_LIVES + spec.lives
    times = np.cumsum(random.exponential(1 / rate, int(1.2 * rate * until) + 100))
    times = times[times < until]
    lives = random.exponential(1.0, len(times))
    sizes = random.choice(list(MIX), len(times), p=list(MIX.values()))
    return list(zip(times.tolist(), lives.tolist(), sizes.tolist(), strict=True))


def _count(counts: _Counts, picker: Picker, free: int, mask: int, size: int) -> None:
    if size == 1:
        return
    most = picker.best_of(size)
    counts.had[size].append(picker.bandwidth(mask) / most)
    counts.possible.append(picker.possible(free, size) / most)


def _report(spec: FleetSpec, product: Product, counts: _Counts, pods: int, seconds: float) -> FleetRun:
    every = [share for own in counts.had.values() for share in own]
    by_size = {size: _percent(own) for size, own in counts.had.items()}
    used = 100 * float(np.mean(counts.used or [0])) / (spec.nodes * product.graph.gpus)
    return FleetRun(spec, _percent(every), by_size, _percent(counts.possible), used, counts.failed, pods, seconds)


def _percent(shares: list[float]) -> float:
    return 100 * fsum(shares) / len(shares) if shares else 0.0
