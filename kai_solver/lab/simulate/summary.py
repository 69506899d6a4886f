"""What a replay comes to, in numbers for people and for comparison."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kai_solver.lab.simulate.jobs import LiveJob, State
from kai_solver.lab.simulate.replay import Result
from kai_solver.units import MILLI

_HOUR_S = 3600.0
_SIZES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


@dataclass(frozen=True, slots=True)
class Waits:
    """How long jobs of one kind waited for their first start, seconds; ``never`` had not started at the end."""

    group: str
    jobs: int
    never: int
    mean_s: float | None
    median_s: float | None
    p95_s: float | None


@dataclass(frozen=True, slots=True)
class Summary:
    """A replay in numbers.

    Attributes
    ----------
    utilisation
        GPU seconds held, of those of nodes that were up.
    goodput
        GPU seconds of work that was kept, of those of nodes that were up.
    gpu_hours
        Held GPU hours by what they were for: useful, lost, idle (held by gangs that were not complete), restarting,
        releasing.
    idle_price
        Of the idle ones.
    fairness_gap, fragmentation
        Means over time (``docs/simulate.md`` defines them).
    solve_s
        Seconds to decide a cycle: mean, median, 95th percentile, largest.
    """

    scenario: str
    policy: str
    seed: int
    interrupted: bool
    end_s: float
    cycles: int
    decided: int
    jobs: dict[str, int]
    utilisation: float
    goodput: float
    gpu_hours: dict[str, float]
    idle_price: float
    evictions: int
    moves: int
    restarts: int
    node_failures_seen: int
    fairness_gap: float
    fragmentation: float
    wait_by_size: tuple[Waits, ...]
    wait_by_queue: tuple[Waits, ...]
    solve_s: dict[str, float]
    elapsed_s: float

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return asdict(self)


def measures_of(summary: Summary) -> dict[str, float]:
    """What a row of a run has of it beside its columns, by name; waits are in the table of jobs."""
    return {
        "simulated_s": summary.end_s,
        "cycles": summary.cycles,
        "decided_cycles": summary.decided,
        "utilisation": summary.utilisation,
        "goodput": summary.goodput,
        "fairness_gap": summary.fairness_gap,
        "fragmentation": summary.fragmentation,
        "idle_price": summary.idle_price,
        "restarts": summary.restarts,
        "node_failures": summary.node_failures_seen,
        **{f"jobs/{state}": count for state, count in summary.jobs.items()},
        **{f"gpu_hours/{purpose}": hours for purpose, hours in summary.gpu_hours.items()},
        **{f"decide_s/{name}": seconds for name, seconds in summary.solve_s.items()},
    }


def summarize(result: Result) -> Summary:
    """Sum up; an empty replay has zeros, and no waits."""
    jobs, records = result.jobs, result.records
    hours = gpu_hours(jobs)
    seconds = [row.decide_s for row in records.solve_times]
    return Summary(
        scenario=result.scenario.name,
        policy=result.policy,
        seed=result.scenario.seed,
        interrupted=result.interrupted,
        end_s=result.end_s,
        cycles=result.cycles,
        decided=len(seconds),
        jobs={state.value: sum(job.state is state for job in jobs) for state in State},
        utilisation=_share(result.held_gpu_s, result.up_gpu_s),
        goodput=_share(hours["useful"] * _HOUR_S, result.up_gpu_s),
        gpu_hours=hours,
        idle_price=hours["idle"] * result.scenario.gpu_hour_price,
        evictions=sum(job.evictions for job in jobs),
        moves=sum(job.moves for job in jobs),
        restarts=sum(max(0, job.starts - 1) for job in jobs),
        node_failures_seen=sum(job.failures for job in jobs),
        fairness_gap=_share(records.fairness_gap_s, records.sampled_s),
        fragmentation=_share(records.fragmentation_s, records.sampled_s),
        wait_by_size=tuple(_waits(jobs, size_of, size_classes())),
        wait_by_queue=tuple(_waits(jobs, _queue_of, sorted({job.gang.queue for job in jobs}))),
        solve_s=_spread(seconds),
        elapsed_s=result.elapsed_s,
    )


def gpu_hours(jobs: Iterable[LiveJob]) -> dict[str, float]:
    """GPU hours by what they were for."""
    totals = dict.fromkeys(("useful", "lost", "idle", "restarting", "releasing"), 0.0)
    for job in jobs:
        totals["useful"] += job.useful_gpu_s / _HOUR_S
        for name in ("lost", "idle", "restarting", "releasing"):
            totals[name] += getattr(job.ledger, name) / _HOUR_S
    return totals


def wait_s(job: LiveJob) -> float | None:
    """From arrival to the first start; None where it has not started."""
    return None if job.first_start_s is None else job.first_start_s - job.job.arrival_s


def size_of(job: LiveJob) -> str:
    """Class of a job's size in GPUs: ``0``, ``1``, ``2``, ``3-4``, ``5-8``, ..."""
    return size_class(job.total_milli / MILLI)


def size_class(gpus: float) -> str:
    """Class of so many GPUs: ``0``, ``1``, ``2``, ``3-4``, ``5-8``, ..."""
    return next((_size_name(i) for i, most in enumerate(_SIZES) if gpus <= most), _OVER)


def _size_name(index: int) -> str:
    most, least = _SIZES[index], _SIZES[index - 1] + 1 if index else 0
    return str(most) if least >= most else f"{least}-{most}"


_OVER = f"over {_SIZES[-1]}"


def size_classes() -> list[str]:
    """All classes of `size_class`, the smallest first."""
    return [*(_size_name(i) for i in range(len(_SIZES))), _OVER]


def _queue_of(job: LiveJob) -> str:
    return job.gang.queue


def _waits(jobs: Sequence[LiveJob], group_of: Callable[[LiveJob], str], order: list[str]) -> Iterator[Waits]:
    """One entry a group that has arrived, in the given order."""
    groups: dict[str, list[LiveJob]] = {}
    for job in jobs:
        if job.state is not State.FUTURE:
            groups.setdefault(group_of(job), []).append(job)
    for group in (name for name in order if name in groups):
        mine = groups[group]
        waited = [wait for job in mine if (wait := wait_s(job)) is not None]
        numbers = np.array(waited, dtype=np.float64)
        some = bool(waited)
        yield Waits(
            group=group,
            jobs=len(mine),
            never=len(mine) - len(waited),
            mean_s=float(numbers.mean()) if some else None,
            median_s=float(np.median(numbers)) if some else None,
            p95_s=float(np.quantile(numbers, 0.95)) if some else None,
        )


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return dict.fromkeys(("mean", "median", "p95", "max"), 0.0)
    numbers = np.array(seconds)
    return {
        "mean": float(numbers.mean()),
        "median": float(np.median(numbers)),
        "p95": float(np.quantile(numbers, 0.95)),
        "max": float(numbers.max()),
    }


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
