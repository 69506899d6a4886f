"""The section of a report about a study: which model is better, on what, and what it costs."""

from collections.abc import Callable, Sequence
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from kai_solver.lab.reports.comparing import (
    VIRTUAL_BEST,
    Costs,
    Problem,
    cactus,
    cumulative,
    in_common,
    paired,
    performance_profile,
)
from kai_solver.lab.reports.figure import Figure, Panel, Section, Series, Table, with_common_end
from kai_solver.lab.reports.sources import StudyTables
from kai_solver.lab.runs import PLAN, Comparison, comparisons
from kai_solver.lab.runs.verdicts import COLUMNS, cells, how_tested, plan_sentence

if TYPE_CHECKING:
    import polars as pl

_FLOOR_S, _FLOOR_INTEGRAL = 0.01, 0.001
_MOST_PAIRS = 6
Row = dict[str, Any]


def section_of(study: StudyTables) -> Section:
    """Verdicts, tables and figures of a study's runs that ended."""
    rows: list[Row] = study.frames.runs.to_dicts()
    models = list(dict.fromkeys(row["model"] for row in rows))
    integrals = costs_of(rows, "primal_integral")
    proofs = costs_of(rows, "proof_s")
    found = comparisons(study.records, models[0])
    return Section(
        title=f"Study: {study.label}",
        verdicts=[_counted(rows, models), *_said(found)],
        tables=[*_compared(found), _by_model(rows, models), _by_family(rows, models)],
        figures=[
            _profiles(proofs, integrals),
            _cactus(proofs),
            _integrals(integrals),
            _sizes(rows, models, study.frames.stages),
            _scatter(integrals),
        ],
        notes=[*_tested(found), *_notes(rows, integrals)],
    )


def costs_of(rows: Sequence[Row], column: str) -> dict[str, dict[Problem, float | None]]:
    """A column by model and problem; None where the run failed or has none. Models in their order in the table."""
    costs: dict[str, dict[Problem, float | None]] = {}
    for row in rows:
        mine = costs.setdefault(row["model"], {})
        mine[drawn_name(row), row["seed"]] = row[column] if row["status"] == "ok" else None
    return costs


def drawn_name(row: Row) -> str:
    """The instance; draws of one generator are instances of their own."""
    return str(row["instance"]) if row["draw"] == 1 else f"{row['instance']}, draw {row['draw']}"


def largest_gaps(stages: "pl.DataFrame") -> dict[str, float]:
    """By run the largest gap of its stages; runs of which no stage has a bound are left out."""
    import polars as pl

    table = stages.group_by("run").agg(pl.col("gap").max()).drop_nulls("gap")
    return {run: float(gap) for run, gap in table.iter_rows()}


def _counted(rows: Sequence[Row], models: Sequence[str]) -> str:
    instances = len({drawn_name(row) for row in rows})
    seeds = len({row["seed"] for row in rows})
    failed = sum(row["status"] != "ok" for row in rows)
    proven = sum(row["status"] == "ok" and row["proof_s"] is not None for row in rows)
    return (
        f"{len(rows):,} runs of {_plural(len(models), 'model')} on {_plural(instances, 'instance')} with "
        f"{_plural(seeds, 'seed')}: {failed:,} failed, {proven:,} ended with a proof that no plan is better."
    )


def _plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


_INTEGRAL = "primal integral"


def _said(found: Sequence[Comparison]) -> list[str]:
    """A sentence for each model on its plans, and one on its primal integrals."""
    return [
        f"{one.model}: {_inside(plan_sentence(one))}" if one.figure == PLAN else _integral_sentence(one)
        for one in found
        if one.figure in (PLAN, _INTEGRAL)
    ]


def _inside(sentence: str) -> str:
    return sentence[0].lower() + sentence[1:]


def _integral_sentence(one: Comparison) -> str:
    difference = one.difference
    pairs = _plural(difference.pairs, "pair")
    medians = f"median primal integral {one.value:.4f} and {one.other:.4f}, less and more in {difference.less} "
    medians += f"and {difference.more} of {pairs}"
    if difference.verdict == "too few pairs":
        return f"{one.model} and {one.against}: too few pairs differ for a test ({medians})."
    test = f"{medians}; p = {difference.p:.3g}"
    if difference.verdict == "no difference":
        return f"{one.model} and {one.against}: this study shows no difference ({test})."
    better, worse = (one.model, one.against) if difference.verdict == "less" else (one.against, one.model)
    return f"{better} is better than {worse} ({test})."


def _compared(found: Sequence[Comparison]) -> list[Table]:
    """What `compare --study` prints: every figure of each model against that of the first one."""
    by_model: dict[tuple[str, str], list[Comparison]] = {}
    for one in found:
        by_model.setdefault((one.model, one.against), []).append(one)
    return [
        Table(f"{model} against {first}", COLUMNS, [cells(one) for one in mine if one.figure != PLAN])
        for (model, first), mine in by_model.items()
    ]


def _tested(found: Sequence[Comparison]) -> list[str]:
    if not found:
        return []
    notes = [how_tested(found)]
    if any(one.is_by_seed for one in found):
        notes.append("Of fewer than six instances each seed is a pair: what is said is about these instances alone.")
    return notes


def _notes(rows: Sequence[Row], costs: Costs) -> list[str]:
    notes = []
    left_out = len({problem for mine in costs.values() for problem in mine}) - len(in_common(costs))
    if left_out:
        notes.append(f"{left_out:,} problems that not all models were asked are left out of profiles and cactus plot.")
    if any(row["is_shared"] for row in rows):
        notes.append("Runs shared the machine with others: wall times are disturbed, CPU times less so.")
    if len({(row["budget_s"], row["clock"]) for row in rows}) > 1:
        notes.append("The runs have several budgets or clocks: compare with care.")
    errors = dict.fromkeys(f"{row['status']}: {row['error']}" for row in rows if row["status"] != "ok")
    notes += [f"Failed ({error})." for error in list(errors)[:5]]
    return notes


def _by_model(rows: Sequence[Row], models: Sequence[str]) -> Table:
    def line(model: str) -> list[str]:
        mine = [row for row in rows if row["model"] == model]
        fine = [row for row in mine if row["status"] == "ok"]
        return [
            model,
            f"{len(mine):,} ({len(mine) - len(fine):,})",
            f"{sum(row['proof_s'] is not None for row in fine):,}",
            _of(fine, "primal_integral", fmean, "{:.4f}"),
            _of(fine, "first_plan_s", median, "{:.2f} s"),
            _of(fine, "best_plan_s", median, "{:.2f} s"),
            _of(fine, "cpu_s", fmean, "{:.2f} s"),
            _of(fine, "peak_mib", max, "{:,.0f} MiB"),
        ]

    heads = ["runs (failed)", "proven", "primal integral, mean", "first plan, median", "best plan, median"]
    return Table("By model", ["model", *heads, "CPU time, mean", "peak memory"], [line(model) for model in models])


def _of(rows: Sequence[Row], column: str, measure: Callable[[list[float]], float], form: str) -> str:
    values = [row[column] for row in rows if row[column] is not None]
    return form.format(measure(values)) if values else "-"


def _by_family(rows: Sequence[Row], models: Sequence[str]) -> Table:
    def cell(family: str, model: str) -> str:
        mine = [row for row in rows if (row["family"], row["model"], row["status"]) == (family, model, "ok")]
        return _of(mine, "primal_integral", fmean, "{:.4f}")

    families = sorted({row["family"] for row in rows})
    body = [[family, *(cell(family, model) for model in models)] for family in families]
    return Table("Mean primal integral by family", ["family", *models], body)


def _lines(lines: dict[str, tuple[list[float], list[float]]], *, kind: str = "step") -> list[Series]:
    """Models keep their style in all figures; the virtual best is the last one."""
    found = []
    for style, (model, (x, y)) in enumerate(lines.items()):
        # One problem alone is a point: a line of it would not be seen.
        found.append(Series(model, x, y, "points" if len(x) == 1 else "line" if kind == "line" else "step", style))
    return found if kind == "line" else with_common_end(found)


def _profiles(proofs: Costs, integrals: Costs) -> Figure:
    x = "cost, divided by that of the best model (logarithmic)"
    panels = [
        Panel(title, x, "problems", _lines(performance_profile(costs, floor)), is_log_x=True, is_share=True, most=1.02)
        for title, costs, floor in (
            ("Primal integral", integrals, _FLOOR_INTEGRAL),
            ("Time until all stages are proven", proofs, _FLOOR_S),
        )
    ]
    return Figure(
        "profiles",
        "Performance profiles",
        "The share of the problems (an instance with a seed) on which a model's cost is at most so many times that of "
        "the best model. At 1: how often it is best. At the right end: how often it has a cost at all.",
        panels,
        columns=2,
    )


def _cactus(proofs: Costs) -> Figure:
    return Figure(
        "cactus",
        "Cactus plot: problems proven within a time",
        "How many problems a model proves, each within the time at the left, easiest first. Further right and lower is "
        f"better. The {VIRTUAL_BEST} takes for each problem the fastest model.",
        [Panel("", "problems proven", "seconds (logarithmic)", _lines(cactus(proofs), kind="line"), is_log_y=True)],
    )


def _integrals(integrals: Costs) -> Figure:
    return Figure(
        "primal-integral",
        "Primal integral",
        "The share of the problems with a primal integral of at most so much. It is the mean gap to the best known "
        "plan over the budget: 0 is best, 1 is no plan at all. Higher and further left is better.",
        [Panel("", "primal integral", "problems", _lines(cumulative(integrals)), is_share=True, most=1.02)],
    )


def _sizes(rows: Sequence[Row], models: Sequence[str], stages: "pl.DataFrame") -> Figure:
    gaps = largest_gaps(stages)
    fine = [row for row in rows if row["status"] == "ok" and row["pods"] > 0]
    panels = []
    for title, label, value, is_log in (
        ("Gap", "largest gap of the stages", lambda row: gaps.get(row["run"]), False),
        ("Time", "CPU seconds (logarithmic)", lambda row: row["cpu_s"] or None, True),
    ):
        series = []
        for style, model in enumerate(models):
            mine = [row for row in fine if row["model"] == model and value(row) is not None]
            texts = [f"{drawn_name(row)}, seed {row['seed']}, {row['nodes']:,} nodes" for row in mine]
            x, y = [float(row["pods"]) for row in mine], [value(row) for row in mine]
            series.append(Series(model, x, y, "points", style, texts))
        panels.append(Panel(title, "pods that wait (logarithmic)", label, series, is_log_x=True, is_log_y=is_log))
    text = "Each run by the size of its instance: how far its plan may be from the best, and the CPU time of the run."
    return Figure("size", "Gap and time by size", text, panels, columns=2)


def _scatter(integrals: Costs) -> Figure:
    first, *others = integrals
    panels = []
    for style, other in enumerate(others[:_MOST_PAIRS], 1):
        pairs = paired(integrals, first, other)
        texts = [f"{instance}, seed {seed}" for (instance, seed), _, _ in pairs]
        marks = Series(other, [one for _, one, _ in pairs], [two for _, _, two in pairs], "points", style, texts)
        title = f"{first} and {other}"
        panels.append(
            Panel(title, f"primal integral of {first}", f"primal integral of {other}", [marks], has_diagonal=True)
        )
    return Figure(
        "pairs",
        "Problem by problem",
        "Each point is a problem which both models solved. Below the diagonal the second model is better.",
        panels,
        columns=min(2, max(1, len(panels))),
    )
