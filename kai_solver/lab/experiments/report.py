"""What a run is told by: a line of figures, curves over arrived demand, failures by size."""

from dataclasses import dataclass

import numpy as np

from kai_solver.lab.experiments.record import Record, allocation, waited_allocation
from kai_solver.lab.experiments.trace import Bools, Floats, Ints, Shape, Trace
from kai_solver.lab.runs.memory import Spent

SIZES = ("cpu", "share", "1", "2", "4", "8")
"""Pods by what they ask for: no GPU, a share of one, or so many whole ones."""


@dataclass(frozen=True, slots=True, order=True)
class RunSpec:
    """One run: a trace in the order of a seed, a policy, and how much it collects and may move."""

    trace: str
    seed: int
    policy: str
    window: int = 1
    moves: float = 0.0

    @property
    def label(self) -> str:
        """Name of the policy with what it may do."""
        if self.window == 1 and not self.moves:
            return self.policy
        moves = f", moves {self.moves:.1%}" if self.moves else ""
        return f"{self.policy} W={self.window}{moves}"


@dataclass(frozen=True, slots=True)
class Bin:
    """Means over the arrivals at which so much, in percent of the GPUs, had arrived (rounded)."""

    arrived: int
    allocation: float
    """GPUs allocated, percent; a pod counts from its arrival on."""
    allocation_decided: float
    """The same, where a pod counts from its decision on: what waits for its window to fill does not run yet."""
    fragmentation: float
    """Free capacity that typical pods cannot use, percent of all GPUs."""
    fragmentation_of_idle: float
    """The same, percent of what is free."""
    moved: float


@dataclass(frozen=True, slots=True)
class Failures:
    """Pods of a size that had arrived, and failed, when so much had arrived (percent)."""

    arrived: int
    size: str
    pods: int
    failed: int


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended.

    ``seconds``: wall time of its decisions. ``read_s``: of reading its files. ``spent``: what it took in all.
    """

    spec: RunSpec
    bins: tuple[Bin, ...]
    failures: tuple[Failures, ...]
    moved: int
    seconds: float
    read_s: float = 0.0
    spent: Spent | None = None

    def allocation_at(self, arrived: int) -> float | None:
        """GPUs allocated at so much arrived, percent; None: so much did not arrive.

        Where no arrival comes to this percentage (large pods, small clusters) it is that of the last one before.
        """
        before = [row for row in self.bins if row.arrived <= arrived]
        return before[-1].allocation if before and self.bins[-1].arrived >= arrived else None

    def failed(self, size: str) -> int:
        """Pods of ``size`` that failed in the whole run."""
        return [row.failed for row in self.failures if row.size == size][-1]


def report(trace: Trace, spec: RunSpec, record: Record) -> Run:
    """Figures of a run."""
    return Run(spec, _bins(trace, record), _failures(trace, record), int(record.moved.max(initial=0)), record.seconds)


def size_of(shape: Shape) -> str:
    """Size class of a pod, one of `SIZES`."""
    if not shape.gpus:
        return "cpu"
    return "share" if shape.gpus == 1 and shape.gpu_milli < 1000 else str(shape.gpus)


def _bins(trace: Trace, record: Record) -> tuple[Bin, ...]:
    percent = np.round(100.0 * trace.arrived() / trace.capacity_milli).astype(np.int64)
    taken, waited = allocation(trace, record), waited_allocation(trace, record)
    fragment = 100.0 * record.fragmentation / trace.capacity_milli
    ratio = 100.0 * fragment / np.maximum(100.0 - waited, 1e-9)
    means = [
        _means(percent, values) for values in (np.round(taken, 2), np.round(waited, 2), fragment, ratio, record.moved)
    ]
    rows = zip(*means, strict=True)
    return tuple(Bin(int(arrived), *row) for arrived, row in zip(np.unique(percent), rows, strict=True))


def _means(bins: Ints, values: Floats | Ints) -> list[float]:
    total, count = np.bincount(bins, values), np.bincount(bins)
    present = count > 0
    means: list[float] = (total[present] / count[present]).tolist()
    return means


def _failures(trace: Trace, record: Record) -> tuple[Failures, ...]:
    """At 100% arrived, where so much arrives, and at the end."""
    sizes = np.array([SIZES.index(_known(size_of(shape))) for shape in trace.shapes])[trace.arrivals]
    arrived = trace.arrived()
    end = round(100.0 * float(arrived[-1]) / trace.capacity_milli) if len(arrived) else 0
    stages = [(100, arrived <= trace.capacity_milli)] if end > 100 else []
    stages.append((end, np.ones(len(arrived), dtype=np.bool_)))
    return tuple(
        Failures(percent, size, int(own.sum()), int((own & ~record.placed).sum()))
        for percent, upto in stages
        for number, size in enumerate(SIZES)
        for own in [_of_size(sizes, number, upto)]
    )


def _of_size(sizes: Ints, number: int, upto: Bools) -> Bools:
    own: Bools = upto & (sizes == number)
    return own


def _known(size: str) -> str:
    """The published files have 1, 2, 4 and 8 GPUs; other numbers count with the next smaller of these."""
    return size if size in SIZES else str(max(gpus for gpus in (1, 2, 4, 8) if gpus <= int(size)))
