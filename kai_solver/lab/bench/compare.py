"""Runs side by side: medians per instance and model, and ratios paired with the first model."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from kai_solver.domain import Stage
from kai_solver.lab.bench.measure import Run
from kai_solver.lab.runs.stage_order import stage_order

Order = Literal["better", "same", "worse", ""]


@dataclass(frozen=True, slots=True)
class Row:
    """One instance under one model: medians over the seeds.

    Attributes
    ----------
    stages
        Of the seed with the median decide time, as a vector that can be compared in order.
    ratio
        Decide time over that of the reference model on the same instance; None for the reference itself.
    against
        Whether the plan is better than the reference's: more gangs placed, else the stage vector in order.
    proven
        Part of the pending gangs that is proven, 0 to 1; None where none is pending.
    """

    instance: str
    model: str
    seeds: int
    load_s: float
    decide_s: float
    cold_s: float | None
    memory_mib: float
    placed: int
    partly: int
    evicted: int
    moved: int
    pending: int
    proven: float | None
    source: str
    stages: tuple[Stage, ...]
    gap: float | None
    ratio: float | None = None
    against: Order = ""
    worse_than: tuple[str, ...] = ()


def rows_of(runs: Iterable[Run], reference: str) -> tuple[Row, ...]:
    """Rows in order of appearance, each compared with ``reference`` on the same instance where it was run."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.instance, run.model].append(run)
    return tuple(_row(group, groups.get((instance, reference), [])) for (instance, _), group in groups.items())


def _row(group: list[Run], reference: list[Run]) -> Row:
    typical = _typical(group)
    base = _typical(reference) if reference and reference[0].model != typical.model else None
    decide_s = median(run.decide_s for run in group)
    cold = [run.cold_s for run in group if run.cold_s is not None]
    pending = round(median(run.pending for run in group))
    return Row(
        instance=typical.instance,
        model=typical.model,
        seeds=len(group),
        load_s=median(run.load_s for run in group),
        decide_s=decide_s,
        cold_s=median(cold) if cold else None,
        memory_mib=max(run.memory_mib for run in group),
        placed=round(median(run.placed for run in group)),
        partly=round(median(run.partly for run in group)),
        evicted=round(median(run.evicted for run in group)),
        moved=round(median(run.moved for run in group)),
        pending=pending,
        proven=median(run.proven / run.pending if run.pending else 1.0 for run in group) if pending else None,
        source=typical.source,
        stages=typical.stages,
        gap=largest_gap(typical.stages),
        ratio=decide_s / max(median(run.decide_s for run in reference), 1e-9) if base else None,
        against=order(typical, base) if base else "",
        worse_than=tuple(dict.fromkeys(text for run in group for text in run.worse_than)),
    )


def _typical(group: Sequence[Run]) -> Run:
    """The run with the median decide time (the lower of two)."""
    return sorted(group, key=lambda run: run.decide_s)[(len(group) - 1) // 2]


def order(run: Run, base: Run) -> Order:
    """How ``run`` compares with ``base``: gangs placed first, then the stages in order (smaller is better)."""
    ours, theirs = ({stage.name: stage.value for stage in r.stages} for r in (run, base))
    names = stage_order(ours, theirs)
    left = (-run.placed, -run.partly, *(ours.get(name, 0.0) for name in names))
    right = (-base.placed, -base.partly, *(theirs.get(name, 0.0) for name in names))
    return "same" if left == right else "better" if left < right else "worse"


def largest_gap(stages: Sequence[Stage]) -> float | None:
    """Largest relative distance of value and bound; None where no stage has one."""
    return max((stage.gap for stage in stages if stage.gap is not None), default=None)


@dataclass(frozen=True, slots=True)
class Paired:
    """One model against the reference over all instances that both solved."""

    model: str
    reference: str
    instances: int
    median_ratio: float
    better: int
    same: int
    worse: int


def paired(rows: Sequence[Row], reference: str) -> tuple[Paired, ...]:
    """A line for every model but the reference."""
    models = dict.fromkeys(row.model for row in rows if row.ratio is not None)
    return tuple(
        _paired([row for row in rows if row.model == model and row.ratio is not None], reference) for model in models
    )


def _paired(rows: Sequence[Row], reference: str) -> Paired:
    return Paired(
        model=rows[0].model,
        reference=reference,
        instances=len(rows),
        median_ratio=median(row.ratio for row in rows if row.ratio is not None),
        better=sum(row.against == "better" for row in rows),
        same=sum(row.against == "same" for row in rows),
        worse=sum(row.against == "worse" for row in rows),
    )
