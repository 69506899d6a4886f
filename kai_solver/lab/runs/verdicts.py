"""What a study says of its models: sums of each, and each against the first, pair by pair."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median

from kai_solver.lab.runs.paired import FEWEST, PairedDifference, corrected, is_counted, paired_difference
from kai_solver.lab.runs.record import RunRecord
from kai_solver.lab.runs.stage_order import stage_order
from kai_solver.units.words import counted

_SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class ModelFigures:
    """Of one model, over its runs that are ok.

    Attributes
    ----------
    runs, failed
        Runs that ended, and those of them that are not ok.
    admitted, pending, pending_proven, evicted_pods, moved_pods
        Sums: gangs, gangs, gangs, pods, pods.
    evicted_gpu_hours
        Sum.
    proven_stages
        Share of the stages of all runs; None without any.
    decide_s, cpu_s
        Medians; None without runs that have them.
    peak_mib
        Of the largest run; None where it is known of none.
    """

    model: str
    runs: int
    failed: int
    admitted: int
    pending: int
    pending_proven: int
    evicted_pods: int
    evicted_gpu_hours: float
    moved_pods: int
    proven_stages: float | None
    decide_s: float | None
    cpu_s: float | None
    peak_mib: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """One figure of a model against that of the first model.

    Attributes
    ----------
    figure
        What is compared; see `comparisons`. Of all figures less is better.
    value, other
        Medians over the pairs, of the model and of the first one.
    is_by_seed
        There are fewer than `FEWEST` instances, so each seed is a pair.
    """

    figure: str
    model: str
    against: str
    value: float | None
    other: float | None
    difference: PairedDifference
    is_by_seed: bool = False


PLAN = "plan"
"""Figure: -1 where the model's plan is better by the stages in their order, 1 where it is worse, else 0."""

_OF_INSTANCES: Mapping[str, Callable[[RunRecord], float | None]] = {
    "gangs pending": lambda run: float(run.pending),
    "GPU-hours evicted": lambda run: run.evicted_work / _SECONDS_PER_HOUR,
    "pods moved": lambda run: float(run.moved_pods),
    "primal integral": lambda run: run.primal_integral,
    "seconds to decide": lambda run: run.solve_s,
}
_OF_SCENARIOS = ("mean-wait", "lost-gpu-hours", "fairness-gap", "fragmentation")


def model_figures(records: Sequence[RunRecord]) -> tuple[ModelFigures, ...]:
    """Of each model, in the order of their first runs."""
    return tuple(
        _figures(model, [record for record in records if record.model == model])
        for model in dict.fromkeys(record.model for record in records)
    )


def _figures(model: str, every: Sequence[RunRecord]) -> ModelFigures:
    runs = [run for run in every if run.status == "ok"]
    stages = [stage.is_proven for run in runs for stage in run.stages]
    cpu_s = [run.cpu_s for run in runs if run.cpu_s is not None]
    return ModelFigures(
        model=model,
        runs=len(every),
        failed=len(every) - len(runs),
        admitted=sum(run.admitted for run in runs),
        pending=sum(run.pending for run in runs),
        pending_proven=sum(run.pending_proven for run in runs),
        evicted_pods=sum(run.evicted_pods for run in runs),
        evicted_gpu_hours=sum(run.evicted_work for run in runs) / _SECONDS_PER_HOUR,
        moved_pods=sum(run.moved_pods for run in runs),
        proven_stages=fmean(stages) if stages else None,
        decide_s=median(run.solve_s for run in runs) if runs else None,
        cpu_s=median(cpu_s) if cpu_s else None,
        peak_mib=max((run.peak_mib for run in runs if run.peak_mib is not None), default=None),
    )


def comparisons(records: Sequence[RunRecord], first: str) -> tuple[Comparison, ...]:
    """Every other model against ``first``, figure by figure, by the runs that share instance and seed and are both ok.

    With `FEWEST` instances and more, the seeds of one are one pair, of their means: they are not independent. With
    fewer, each instance and seed is a pair, and what is found is said of these instances alone. P-values are corrected
    for the number of all tests: each figure of each model is one. See `paired.corrected`.

    Raises
    ------
    InputError
        scipy is not installed.
    """
    by_model: dict[str, dict[tuple[str, str, int], RunRecord]] = {}
    for record in records:
        if record.status == "ok":
            by_model.setdefault(record.model, {})[record.instance, record.source, record.seed] = record
    others = [model for model in by_model if model != first]
    found = []
    for model in others:
        shared = [key for key in by_model[model] if key in by_model.get(first, {})]
        pairs = [(by_model[model][key], by_model[first][key]) for key in shared]
        for figure, figures in _figures_of_pairs(pairs).items():
            if figures:
                found.append(_comparison(figure, model, first, figures))
    differences = corrected([one.difference for one in found])
    return tuple(replace(one, difference=difference) for one, difference in zip(found, differences, strict=True))


COLUMNS = ("", "median", "other", "difference", "95% interval", "less in", "more in", "p", "verdict")
"""Of a table of comparisons; see `cells`."""


def cells(one: Comparison) -> tuple[str, ...]:
    """A row of it."""
    found = one.difference
    interval = "" if found.low is None or found.high is None else f"{found.low:+,.4g} to {found.high:+,.4g}"
    return (
        one.figure,
        "" if one.value is None else f"{one.value:,.4g}",
        "" if one.other is None else f"{one.other:,.4g}",
        "" if found.median is None else f"{found.median:+,.4g}",
        interval,
        f"{found.less:,}",
        f"{found.more:,}",
        "" if found.p is None else f"{found.p:.2g}",
        found.verdict,
    )


def plan_sentence(one: Comparison) -> str:
    """What the comparison of plans says."""
    found = one.difference
    same = found.pairs - found.less - found.more
    said = {
        "less": f"{one.model} plans better than {one.against}",
        "more": f"{one.model} plans worse than {one.against}",
        "no difference": "no difference is shown",
        "too few pairs": f"too few pairs that differ to tell ({FEWEST} are needed)",
    }[found.verdict]
    return f"Plans, by the stages in order: {found.less:,} better, {same:,} same, {found.more:,} worse: {said}."


def how_tested(found: Sequence[Comparison]) -> str:
    """By which test, and what it is corrected for; ``found``: all comparisons of a study."""
    tests = sum(is_counted(one.difference) for one in found)
    return (
        f"Wilcoxon's signed-rank test, two-sided, p with Holm's correction for {counted(tests, 'test')}: all of this "
        "study in which enough pairs differ. Intervals are by bootstrap, each for its figure alone. Less is better."
    )


_Figures = list[tuple[tuple[str, str], float, float]]
"""Instance, figure of the model, figure of the other one."""


def _figures_of_pairs(pairs: Sequence[tuple[RunRecord, RunRecord]]) -> dict[str, _Figures]:
    found: dict[str, _Figures] = {PLAN: []}
    for run, other in pairs:
        key = run.instance, run.source
        stages, theirs = ({stage.name: stage.value for stage in one.stages} for one in (run, other))
        if "mean-wait" in stages:
            figures = {name: (stages[name], theirs.get(name)) for name in _OF_SCENARIOS}
            figures["seconds to decide, all cycles"] = (run.solve_s, other.solve_s)
        else:
            figures = {name: (of(run), of(other)) for name, of in _OF_INSTANCES.items()}
            figures[PLAN] = (_plan_order(run, other), 0.0)
        for name, (value, its) in figures.items():
            if value is not None and its is not None:
                found.setdefault(name, []).append((key, value, its))
    return found


def _plan_order(run: RunRecord, other: RunRecord) -> float | None:
    """-1: better by the first stage that differs; None: one has no plan."""
    ours, theirs = ({stage.name: stage.value for stage in one.stages} for one in (run, other))
    for name in stage_order(ours, theirs):
        value, its = ours.get(name, 0.0), theirs.get(name, 0.0)
        if value is None or its is None:
            return None
        if abs(value - its) > _SAME * max(1.0, abs(its)):
            return -1.0 if value < its else 1.0
    return 0.0


_SAME = 1e-9


def _comparison(figure: str, model: str, first: str, figures: _Figures) -> Comparison:
    instances = dict.fromkeys(key for key, _, _ in figures)
    if len(instances) >= FEWEST:
        by_instance = [[(value, its) for key, value, its in figures if key == one] for one in instances]
        values = [fmean(value for value, _ in some) for some in by_instance]
        others = [fmean(its for _, its in some) for some in by_instance]
    else:
        values, others = [value for _, value, _ in figures], [its for _, _, its in figures]
    difference = paired_difference(values, others)
    return Comparison(figure, model, first, median(values), median(others), difference, len(instances) < FEWEST)
