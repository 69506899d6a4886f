"""Figures of the runs of one job, each a number that can be held against a limit; and the promise of the budget."""

from collections.abc import Sequence
from statistics import median

from kai_solver.instances_io.bench_schema import Figure
from kai_solver.lab.bench.linked import growths
from kai_solver.lab.bench.measure import (
    FIRST_CYCLE,
    LOAD_MEMORY,
    PENDING_GPUS,
    STEADY,
    UNKNOWN_GPUS,
    Run,
)
from kai_solver.lab.runs import StageResult

WORK, GPUS = ("evicted-work",), ("evicted-gpus",)
ADMISSION = "pending-gangs"
DISRUPTION = ("evicted-work", "evicted-gpus", "gangs-broken", "evicted-pods", "moved-pods")
_KINDS = {"work-gap": WORK, "gpus-gap": GPUS, "disruption-gap": DISRUPTION}
COUNTS: tuple[Figure, ...] = ("unproven", "unsettled", "pending", "evicted", "moved", "evicted-work")
GAPS: tuple[Figure, ...] = ("admission-gap", "work-gap", "gpus-gap", "disruption-gap")
"""Figures that are neither, nor memory nor ``link-growth``, are seconds."""


def figure_of(figure: Figure, runs: Sequence[Run]) -> float | None:
    """Median over ``runs`` (of ``memory`` the largest); None where it was not measured."""
    values = [value for run in runs if (value := _value(figure, run)) is not None]
    if not values:
        return None
    return max(values) if figure == "memory" else median(values)


def _value(figure: Figure, run: Run) -> float | None:
    match figure:
        case "decide":
            return run.record.solve_s
        case "cold":
            return run.measure(FIRST_CYCLE)
        case "steady":
            return run.measure(STEADY)
        case "build" | "check" | "first-plan":
            return run.phase_s(figure)
        case "link-growth":
            found = growths(run.pairs)
            return None if found is None else found[1]
        case "memory":
            return run.record.peak_mib
        case "load":
            return run.record.read_s
        case "load-memory":
            return run.measure(LOAD_MEMORY)
        case "admission-gap":
            pending = run.measure(PENDING_GPUS)
            return (run.measure(UNKNOWN_GPUS) or 0.0) / pending if pending else 0.0
        case "work-gap" | "gpus-gap" | "disruption-gap":
            return kind_gap(run.record.stages, _KINDS[figure])
        case _:
            return _count(figure, run)


def _count(figure: Figure, run: Run) -> float:
    match figure:
        case "unproven":
            return run.record.pending - run.record.pending_proven
        case "unsettled":
            return run.record.pending - kind_sum(run.record.stages, ADMISSION)[1]
        case "evicted-work":
            return kind_sum(run.record.stages, WORK[0])[0]
        case "pending":
            return run.record.pending
        case "evicted":
            return run.record.evicted_pods
        case _:
            return run.record.moved_pods


def kind_gap(stages: Sequence[StageResult], kinds: Sequence[str]) -> float:
    """The gap of the worst stage of ``kinds``; the value itself where nothing says how large a distance is."""
    of = [stage for stage in stages if stage.name.partition("/")[0] in kinds]
    return max(((stage.value or 0.0) if stage.gap is None else stage.gap for stage in of), default=0.0)


def kind_sum(stages: Sequence[StageResult], kind: str) -> tuple[float, float]:
    """(value, bound) of a kind of stage over all its strata."""
    of = [stage for stage in stages if stage.name.partition("/")[0] == kind]
    return sum(stage.value or 0.0 for stage in of), sum(stage.bound or 0.0 for stage in of)
