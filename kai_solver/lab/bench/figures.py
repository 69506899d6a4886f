"""Figures of the runs of one job, each a number that can be held against a limit; and the promise of the budget."""

from collections.abc import Sequence
from statistics import median

from kai_solver.domain import Stage
from kai_solver.instances_io.bench_schema import Figure
from kai_solver.lab.bench.linked import growths
from kai_solver.lab.bench.measure import Run

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
            return run.decide_s
        case "cold":
            return run.first_cycle_s
        case "steady":
            return run.steady_s
        case "build" | "check" | "first-plan":
            return run.timing_s.get(figure)
        case "link-growth":
            found = growths(run.link_pairs)
            return None if found is None else found[1]
        case "memory":
            return run.memory_mib
        case "load":
            return run.load_s
        case "load-memory":
            return run.load_mib
        case "admission-gap":
            return run.unknown_gpus / run.pending_gpus if run.pending_gpus else 0.0
        case "work-gap" | "gpus-gap" | "disruption-gap":
            return kind_gap(run.stages, _KINDS[figure])
        case _:
            return _count(figure, run)


def _count(figure: Figure, run: Run) -> float:
    match figure:
        case "unproven":
            return run.pending - run.proven
        case "unsettled":
            return run.pending - kind_sum(run.stages, ADMISSION)[1]
        case "evicted-work":
            return kind_sum(run.stages, WORK[0])[0]
        case _:
            return float(getattr(run, figure))


def kind_gap(stages: Sequence[Stage], kinds: Sequence[str]) -> float:
    """`Stage.gap` of the worst stage of ``kinds``; the value itself where nothing says how large a distance is."""
    of = [stage for stage in stages if stage.name.partition("/")[0] in kinds]
    return max((stage.value if stage.gap is None else stage.gap for stage in of), default=0.0)


def kind_sum(stages: Sequence[Stage], kind: str) -> tuple[float, float]:
    """(value, bound) of a kind of stage over all its strata."""
    of = [stage for stage in stages if stage.name.partition("/")[0] == kind]
    return sum(stage.value for stage in of), sum(stage.bound for stage in of)


def promised_s(budget_s: float) -> float:
    """Seconds by which a cycle with such a budget has ended, whatever happens."""
    return 1.2 * budget_s + 0.2
