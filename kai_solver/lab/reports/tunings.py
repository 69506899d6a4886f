"""The section of a report about tuning: what was found, what held-out instances say of it, and what mattered."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kai_solver.lab.reports.figure import Figure, Panel, Section, Series, Table
from kai_solver.lab.reports.sources import Tuning
from kai_solver.lab.runs.paired import LEVEL, corrected_by_holm
from kai_solver.lab.tune.parameters import Value
from kai_solver.lab.tune.space import ParameterDoc
from kai_solver.lab.tune.verdict import Side, Tried, TuneVerdict, headline, side_text
from kai_solver.units import counted

FEWEST_TRIALS = 10
"""With fewer nothing is said about the importance of parameters."""
MOST_KINDS = 4
"""Numbers with more values are put into thirds."""


@dataclass(frozen=True, slots=True)
class Importance:
    """One parameter: its share in the order of the trials, and how likely chance gives as much."""

    path: str
    share: float
    p: float

    @property
    def is_shown(self) -> bool:
        """Whether the test tells it from chance."""
        return self.p < LEVEL


def section_of(tuning: Tuning) -> Section:
    """Verdicts, tables and figures of a search that has come to its end."""
    verdict = tuning.verdict
    tried = [one for one in verdict.tried if one.difference is not None]
    found = importance(tried, tuning.parameters)
    verdicts = [headline(verdict), _sentence("Training", verdict.training)]
    if verdict.test is not None:
        verdicts.append(_sentence("Held out", verdict.test))
    notes = []
    if verdict.shared_families:
        families = ", ".join(verdict.shared_families)
        notes.append(f"These families are on both sides, so the test proves less: {families}.")
    if not found:
        notes.append(f"Importance of parameters: this needs {FEWEST_TRIALS} trials that differ.")
    return Section(
        title=f"Tuning: {tuning.label}",
        verdicts=verdicts,
        tables=[_changed(verdict), _sides(verdict)],
        figures=[_importance(found, len(tried)), _values(tried, tuning.parameters, verdict), _pairs(verdict)],
        notes=notes,
    )


def importance(tried: Sequence[Tried], parameters: Mapping[str, ParameterDoc]) -> list[Importance]:
    """For each parameter how much of the trials' order goes with it alone, largest first.

    Trials are ranked by their difference from the present model, so those that were given up count. They are put into
    groups: by choice, or for ranges into thirds by value. The test is that of Kruskal and Wallis, with Holm's
    correction. Empty: there are too few trials, or all are equal.
    """
    differences = [one.difference for one in tried if one.difference is not None]
    if len(differences) < FEWEST_TRIALS or len(set(differences)) < 2:
        return []
    from scipy.stats import kruskal

    found = []
    for path in parameters:
        groups = [group for group in _groups([one.values[path] for one in tried], differences) if group]
        if len(groups) < 2:
            found.append(Importance(path, 0.0, 1.0))
            continue
        test = kruskal(*groups)
        chance, of = len(groups) - 1, len(differences) - len(groups)
        share = (float(test.statistic) - chance) / of if of else 0.0
        found.append(Importance(path, max(0.0, share), float(test.pvalue)))
    corrected = corrected_by_holm([one.p for one in found])
    found = [replace(one, p=p) for one, p in zip(found, corrected, strict=True)]
    return sorted(found, key=lambda one: (-one.share, one.p))


def _groups(values: Sequence[Value], differences: Sequence[float]) -> list[list[float]]:
    """Differences by value; where there are many values, by thirds of the trials in order of value."""
    kinds = sorted(set(values), key=lambda value: (str(type(value)), value))
    if len(kinds) <= MOST_KINDS or any(isinstance(value, str) for value in kinds):
        return [[d for value, d in zip(values, differences, strict=True) if value == kind] for kind in kinds]
    order = sorted(range(len(values)), key=lambda place: (values[place], place))
    ends = [round(part * len(order) / 3) for part in range(4)]
    return [[differences[place] for place in order[start:end]] for start, end in pairwise(ends)]


def _sentence(name: str, side: Side) -> str:
    return f"{side_text(name, side)}. Less is better."


def _changed(verdict: TuneVerdict) -> Table:
    rows = [[path, _text(before), _text(after)] for path, (before, after) in verdict.changed.items()]
    return Table("What was changed", ["parameter", "present", "found"], rows)


def _sides(verdict: TuneVerdict) -> Table:
    sides = [("training", verdict.training), *([("held out", verdict.test)] if verdict.test is not None else [])]
    rows = [
        [f"{name}: {pair.instance}", f"{pair.present:.4f}", f"{pair.found:.4f}", f"{pair.found - pair.present:+.4f}"]
        for name, side in sides
        for pair in side.pairs
    ]
    return Table(f"{_figure_name(verdict)} by instance", ["instance", "present", "found", "difference"], rows)


def _figure_name(verdict: TuneVerdict) -> str:
    return {"primal-integral": "Primal integral", "final-gap": "Gap at the end"}[verdict.objective]


def _text(value: Value) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _importance(found: Sequence[Importance], trials: int) -> Figure:
    text = (
        "How much of the order of the trials, from best to worst, goes with each parameter alone (Kruskal-Wallis, less "
        f"what chance would give, with Holm's correction). {trials:,} trials, those that were given up among them. The "
        "search chooses later trials by earlier ones, so this is a guide."
    )
    names = [_short(one.path) for one in found]
    texts = [f"p = {one.p:.2g}" for one in found]
    bars = [
        Series(name, names, [one.share if one.is_shown == is_shown else 0.0 for one in found], "stack", style, texts)
        for style, (name, is_shown) in enumerate((("the test shows it", True), ("may be chance", False)))
    ]
    panel = Panel("", "", "share of the order", bars if found else (), is_share=True)
    return Figure("importance", "Importance of parameters", text, [panel])


def _values(tried: Sequence[Tried], parameters: Mapping[str, ParameterDoc], verdict: TuneVerdict) -> Figure:
    panels = []
    for path, doc in parameters.items():
        series = []
        for style, (name, state) in enumerate((("complete", "complete"), ("given up", "pruned"))):
            mine = [one for one in tried if one.state == state]
            x: list[float | str] = [_place(one.values[path], doc) for one in mine]
            texts = [f"trial {one.number}, {counted(one.instances, 'instance')}" for one in mine]
            series.append(Series(name, x, [one.difference for one in mine], "points", style, texts))
        panels.append(
            Panel(
                _short(path) + (" (logarithmic)" if doc.log else ""),
                "",
                "difference",
                series,
                is_log_x=doc.log,
                is_signed=True,
                names=[str(choice) for choice in doc.choices],
            )
        )
    return Figure(
        "values",
        "Each trial, by the value of each parameter",
        f"{_figure_name(verdict)} minus that of the present model, mean over the training instances that a trial came "
        "to. Below 0 a trial is better. A parameter matters if its points go up or down from left to right.",
        panels,
        columns=min(3, len(panels)),
    )


def _short(path: str) -> str:
    return path.removeprefix("search.parameters.").removeprefix("search.")


def _place(value: Value, doc: ParameterDoc) -> float | str:
    return str(value) if doc.choices else float(value)


def _pairs(verdict: TuneVerdict) -> Figure:
    series = []
    for style, (name, side) in enumerate((("training", verdict.training), ("held out", verdict.test))):
        pairs = () if side is None else side.pairs
        texts = [pair.instance for pair in pairs]
        series.append(
            Series(name, [pair.present for pair in pairs], [pair.found for pair in pairs], "points", style, texts)
        )
    name = _figure_name(verdict).lower()
    return Figure(
        "training-and-test",
        "Training beside held-out instances",
        "Each point is an instance. Below the diagonal the model that was found is better. If only the training points "
        "are below it, the search has learned its instances and not the task.",
        [Panel("", f"{name}, present model", f"{name}, model found", series, has_diagonal=True)],
    )
