"""A job while it is replayed: what its pods do, what it has done, lost and held.

GPU seconds that a job holds are each counted once: useful (work that is kept), lost (work done again later or never),
idle (held while the gang was not complete), restarting, and releasing (pods that are leaving).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum

from kai_solver.domain import Gang, Pod, PodStatus
from kai_solver.lab.simulate.scenario import EPOCH_S, Job, pod_milli, satisfied
from kai_solver.units import CPU, MEMORY, MILLI

_GRAIN = 1e-9
"""Of rounding: work this near to a checkpoint has reached it."""


Amounts = tuple[int, int, int]
"""CPU in thousandths, memory in bytes, GPUs in thousandths."""


class State(Enum):
    """Where a job is; it is in exactly one."""

    FUTURE = "future"
    PENDING = "pending"
    PARTIAL = "partial"
    RUNNING = "running"
    DONE = "done"


@dataclass(slots=True)
class Ledger:
    """GPU seconds by what they were for."""

    lost: float = 0.0
    idle: float = 0.0
    restarting: float = 0.0
    releasing: float = 0.0


@dataclass(slots=True)
class LiveJob:
    """A job that has arrived, or will. Changed only by its own methods; ``account`` before every change.

    Attributes
    ----------
    gang
        As a snapshot shows it now.
    progress_s
        Work done and not lost, as seconds at full strength.
    since_s
        Up to when its GPU seconds are counted.
    version
        Of its completion's forecast; an older one is void.
    allocated, requested
        What its queue is charged with, and what it asks for in all, as fair share counts.
    """

    job: Job
    gang: Gang = field(init=False)
    state: State = State.FUTURE
    progress_s: float = 0.0
    since_s: float = 0.0
    ready_s: float = 0.0
    active_milli: int = 0
    leaving_milli: int = 0
    rate: float = 0.0
    ledger: Ledger = field(default_factory=Ledger)
    first_start_s: float | None = None
    end_s: float | None = None
    starts: int = 0
    evictions: int = 0
    moves: int = 0
    failures: int = 0
    version: int = 0
    waits: bool = False
    allocated: Amounts = (0, 0, 0)
    requested: Amounts = (0, 0, 0)
    total_milli: int = field(init=False)

    def __post_init__(self) -> None:
        self.gang = self.job.gang
        self.total_milli = self.job.gpu_milli

    @property
    def useful_gpu_s(self) -> float:
        """GPU seconds of work done and not lost."""
        return self.progress_s * self.total_milli / MILLI

    @property
    def held_gpu_s(self) -> float:
        """GPU seconds held, whatever for."""
        own = self.ledger
        return self.useful_gpu_s + own.lost + own.idle + own.restarting + own.releasing

    def arrive(self, now_s: float) -> None:
        """It waits from now on."""
        self.state, self.since_s = State.PENDING, now_s
        self._tally(self.gang.pods)

    def account(self, now_s: float) -> None:
        """Count GPU seconds and work up to now."""
        span_s = now_s - self.since_s
        if span_s <= 0:
            return
        active = self.active_milli / MILLI
        self.ledger.releasing += span_s * self.leaving_milli / MILLI
        if self.rate:
            works_s = min(span_s, max(0.0, now_s - self.ready_s))
            self.ledger.restarting += (span_s - works_s) * active
            self.progress_s = min(self.job.runtime_s, self.progress_s + works_s * self.rate)
        else:
            self.ledger.idle += span_s * active
        self.since_s = now_s

    def ends_s(self) -> float | None:
        """When its work will be done if nothing changes; None where it does not work."""
        if not self.rate:
            return None
        return max(self.since_s, self.ready_s) + (self.job.runtime_s - self.progress_s) / self.rate

    def change(self, now_s: float, change: Callable[[Pod], Pod], *, evicted: bool = False) -> None:
        """Change its pods now: ``change`` maps each to what it is from here on."""
        self.account(now_s)
        before = self.gang
        pods = tuple(change(pod) for pod in before.pods)
        was_active = any(pod.status.is_active for pod in before.pods)
        active = [pod for pod in pods if pod.status.is_active]
        moment_s = EPOCH_S + now_s
        works = bool(active) and satisfied(before.root, dict(Counter(pod.podset for pod in active)))
        self.gang = replace(
            before,
            pods=pods,
            last_start_s=moment_s if active and not was_active else before.last_start_s,
            last_eviction_s=moment_s if evicted else before.last_eviction_s,
            stale_since_s=_stale_since(before, moment_s, works=works, active=bool(active)),
        )
        self._tally(pods)
        self._start_or_stop(now_s, works, active)

    def finish(self, now_s: float) -> None:
        """Its work is done and its pods leave."""
        self.account(now_s)
        self.progress_s = self.job.runtime_s
        self.state, self.end_s = State.DONE, now_s
        self._tally(())
        self.rate = 0.0
        self.version += 1

    def _tally(self, pods: tuple[Pod, ...]) -> None:
        self.allocated = _sum(pod for pod in pods if pod.status.is_active)
        self.requested = _sum(pod for pod in pods if pod.status.is_active or pod.status is PodStatus.PENDING)
        self.active_milli = sum(pod_milli(pod) for pod in pods if pod.status.is_active)
        self.leaving_milli = sum(pod_milli(pod) for pod in pods if pod.status is PodStatus.RELEASING)
        self.waits = any(pod.status is PodStatus.PENDING for pod in pods)

    def _start_or_stop(self, now_s: float, works: bool, active: list[Pod]) -> None:
        worked = self.rate > 0
        strength = self.active_milli / self.total_milli if self.total_milli else len(active) / len(self.gang.pods)
        self.rate = strength if works else 0.0
        if self.rate and not worked:
            self.starts += 1
            self.ready_s = now_s + (self.job.restart_s if self.starts > 1 else 0.0)
            self.first_start_s = now_s if self.first_start_s is None else self.first_start_s
        elif worked and not self.rate:
            self._lose()
        self.state = State.RUNNING if self.rate else State.PARTIAL if active else State.PENDING
        self.version += 1

    def _lose(self) -> None:
        """What was done since the last checkpoint is lost."""
        every_s = self.job.checkpoint_s
        saved_s = 0.0 if every_s is None else (self.progress_s / every_s + _GRAIN) // 1 * every_s
        lost_s = max(0.0, self.progress_s - saved_s)
        self.ledger.lost += lost_s * self.total_milli / MILLI
        self.progress_s -= lost_s


def _stale_since(gang: Gang, moment_s: float, *, works: bool, active: bool) -> float | None:
    if works or not active:
        return None
    return moment_s if gang.stale_since_s is None else gang.stale_since_s


def _sum(pods: Iterable[Pod]) -> Amounts:
    cpu = memory = gpu = 0
    for pod in pods:
        cpu += pod.request[CPU]
        memory += pod.request[MEMORY]
        gpu += pod_milli(pod) + pod.quota_gpu_milli
    return cpu, memory, gpu
