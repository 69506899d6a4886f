"""Runs side by side: medians per instance and model, and ratios paired with the first model."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal, NamedTuple

from kai_solver.lab.bench.measure import PARTLY, PLACED, PROCESS, Run
from kai_solver.lab.runs import StageResult
from kai_solver.lab.runs.stage_order import stage_order

Order = Literal["better", "same", "worse", ""]


class Key(NamedTuple):
    """Which runs are about the same."""

    instance: str
    model: str
    budget_s: float
    draw: int


def grouped(runs: Sequence[Run]) -> dict[Key, list[Run]]:
    """Runs by what they are about, in order."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        of = run.record
        groups.setdefault(Key(of.instance, of.model, of.budget_s, of.draw), []).append(run)
    return groups


def typical(group: Sequence[Run], by: Callable[[Run], object] = lambda run: run.record.solve_s) -> Run:
    """The run in the middle (the lower of two) by what ``by`` says, the decide time."""
    return sorted(group, key=by)[(len(group) - 1) // 2]  # type: ignore[arg-type]


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
    memory_mib: float | None
    placed: int
    partly: int
    evicted: int
    moved: int
    pending: int
    proven: float | None
    source: str
    stages: tuple[StageResult, ...]
    gap: float | None
    ratio: float | None = None
    against: Order = ""
    worse_than: tuple[str, ...] = ()


def rows_of(runs: Iterable[Run], reference: str) -> tuple[Row, ...]:
    """Rows in order of appearance, each compared with ``reference`` on the same instance where it was run."""
    groups: dict[tuple[str, str], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.record.instance, run.record.model].append(run)
    return tuple(_row(group, groups.get((instance, reference), [])) for (instance, _), group in groups.items())


def peak_mib(group: Iterable[Run]) -> float | None:
    """The most memory of these runs; None where it is known of none."""
    return max((peak for run in group if (peak := run.record.peak_mib) is not None), default=None)


def cpu_s(group: Iterable[Run]) -> float | None:
    """The median of their CPU times; None where it is known of none."""
    known = [seconds for run in group if (seconds := run.record.cpu_s) is not None]
    return median(known) if known else None


def _row(group: list[Run], reference: list[Run]) -> Row:
    middle = typical(group)
    base = typical(reference) if reference and reference[0].record.model != middle.record.model else None
    records = [run.record for run in group]
    decide_s = median(record.solve_s for record in records)
    cold = [seconds for run in group if (seconds := run.measure(PROCESS)) is not None]
    pending = round(median(record.pending for record in records))
    proven = [record.pending_proven / record.pending if record.pending else 1.0 for record in records]
    return Row(
        instance=middle.record.instance,
        model=middle.record.model,
        seeds=len(group),
        load_s=median(record.read_s for record in records),
        decide_s=decide_s,
        cold_s=median(cold) if cold else None,
        memory_mib=peak_mib(group),
        placed=round(median(run.measure(PLACED) or 0 for run in group)),
        partly=round(median(run.measure(PARTLY) or 0 for run in group)),
        evicted=round(median(record.evicted_pods for record in records)),
        moved=round(median(record.moved_pods for record in records)),
        pending=pending,
        proven=median(proven) if pending else None,
        source=middle.record.plan_source,
        stages=middle.record.stages,
        gap=largest_gap(middle.record.stages),
        ratio=decide_s / max(median(run.record.solve_s for run in reference), 1e-9) if base else None,
        against=order(middle, base) if base else "",
        worse_than=tuple(dict.fromkeys(text for run in group for text in run.worse_than)),
    )


def order(run: Run, base: Run) -> Order:
    """How ``run`` compares with ``base``: gangs placed first, then the stages in order (smaller is better)."""
    ours, theirs = ({stage.name: stage.value or 0.0 for stage in one.record.stages} for one in (run, base))
    names = stage_order(ours, theirs)
    left, right = (
        (-(one.measure(PLACED) or 0), -(one.measure(PARTLY) or 0), *(values.get(name, 0.0) for name in names))
        for one, values in ((run, ours), (base, theirs))
    )
    return "same" if left == right else "better" if left < right else "worse"


def largest_gap(stages: Sequence[StageResult]) -> float | None:
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
