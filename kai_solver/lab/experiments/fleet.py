"""A fleet of nodes of one product: pods come and go, and the links of the GPUs that they get are measured.

Pods arrive by a Poisson process and stay for exponential times, the same in every policy. A pod takes whole GPUs of one
node when it arrives, or fails for good. Fractions of what is asked for are counted after a time of warming up.
"""

import heapq
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum

import numpy as np
from numpy.typing import NDArray

from kai_solver.lab.experiments.pickers import Picker, picker_of
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
class _Fleet:
    """Nodes with their free GPUs (masks), when pods leave, and how many GPUs are in use."""

    free: NDArray[np.uint64]
    leaving: list[tuple[float, int, int]] = field(default_factory=list)
    used: int = 0

    def until(self, now: float) -> None:
        """Let those leave whose time is over."""
        while self.leaving and self.leaving[0][0] <= now:
            _, node, mask = heapq.heappop(self.leaving)
            self.free[node] |= np.uint64(mask)
            self.used -= mask.bit_count()

    def take(self, node: int, mask: int, end: float) -> None:
        """Give GPUs of a node away until ``end``."""
        self.free[node] &= ~np.uint64(mask)
        self.used += mask.bit_count()
        heapq.heappush(self.leaving, (end, node, mask))


@dataclass(slots=True)
class _Counts:
    """Pods that are counted: bandwidth as a share by size, what it could have been, GPUs in use, failures."""

    had: dict[int, list[float]]
    possible: list[float] = field(default_factory=list)
    used: list[int] = field(default_factory=list)
    pods: int = 0
    failed: int = 0

    def pod(self, picker: Picker, free: int, mask: int) -> None:
        """Count a pod that gets ``mask`` of ``free``."""
        size = mask.bit_count()
        if size > 1:
            most = picker.best_of(size)
            self.had[size].append(picker.bandwidth(mask) / most)
            self.possible.append(picker.possible(free, size) / most)


def run_fleet(product: Product, spec: FleetSpec, should_stop: Stop = lambda: False) -> FleetRun | None:
    """Run one spec; None where it was stopped."""
    began, gpus = time.process_time(), product.graph.gpus
    picker, counts = picker_of(product.graph, spec.policy), _Counts({size: [] for size in MIX if size > 1})
    fleet = _Fleet(np.full(spec.nodes, mask_of(range(gpus)), dtype=np.uint64))
    for number, (now, life, size) in enumerate(_arrivals(gpus, spec)):
        if number % _STOP_EVERY == 0 and should_stop():
            return None
        fleet.until(now)
        picked = picker.pick(fleet.free, size)
        if now >= WARM_LIVES:
            counts.pods += 1
            counts.failed += picked is None
            if picked is not None:
                counts.pod(picker, int(fleet.free[picked[0]]), picked[1])
        if picked is not None:
            fleet.take(*picked, now + life)
        if now >= WARM_LIVES:
            counts.used.append(fleet.used)
    return _report(spec, gpus, counts, time.process_time() - began)


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


def _report(spec: FleetSpec, gpus: int, counts: _Counts, seconds: float) -> FleetRun:
    every = [share for own in counts.had.values() for share in own]
    used = _percent(counts.used) / (spec.nodes * gpus)
    by_size = {size: _percent(own) for size, own in counts.had.items()}
    possible = _percent(counts.possible)
    return FleetRun(spec, _percent(every), by_size, possible, used, counts.failed, counts.pods, seconds)


def _percent(shares: Sequence[float]) -> float:
    return 100 * fsum(shares) / len(shares) if shares else 0.0


_STOP_EVERY = 1000
