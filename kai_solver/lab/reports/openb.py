"""The section of a report about the openb experiment: how much of the cluster can be used before pods stop fitting."""

from math import floor
from typing import TYPE_CHECKING

from kai_solver.lab.experiments.published import PUBLISHED
from kai_solver.lab.experiments.report import SIZES, RunSpec
from kai_solver.lab.reports.figure import Figure, Panel, Section, Series, Table
from kai_solver.lab.reports.sources import Openb

if TYPE_CHECKING:
    import polars as pl

_FROM = 80
"""Percent arrived from which curves are drawn; below, nearly every policy allocates what arrives."""
_SIZE_NAMES = {"cpu": "no GPU", "share": "part of one"}


def section_of(found: Openb) -> Section:
    """Verdicts, a table and figures of an experiment, means over seeds."""
    tables = {name: labelled(table) for name, table in found.tables.items()}
    summary = means(tables["summary"], ["allocation_at_100", "allocation_at_130", "moved"])
    verdicts = []
    for trace in sorted(set(summary["trace"])):
        ordered = summary.filter(summary["trace"] == trace).sort("allocation_at_130", descending=True, nulls_last=True)
        named = [
            f"{row['label']} {row['allocation_at_130']:.2f}%"
            for row in ordered.iter_rows(named=True)
            if row["allocation_at_130"] is not None
        ]
        if named:
            seeds = f"means over {n} seeds" if (n := tables["summary"]["seed"].n_unique()) > 1 else "one seed"
            verdicts.append(
                f"Trace {trace}: GPUs allocated when 130% of them have been asked for: {', '.join(named)} ({seeds})."
            )
    rows = [
        [
            f"{row['trace']}: {row['label']}",
            _percent(row["allocation_at_100"]),
            _percent(row["allocation_at_130"]),
            f"{row['moved']:,.0f}",
        ]
        for row in summary.iter_rows(named=True)
    ]
    return Section(
        title=f"Experiment openb: {found.label}" if found.label != "openb" else "Experiment openb",
        verdicts=verdicts,
        tables=[Table("Means over seeds", ["run", "allocated at 100%", "at 130%", "pods moved"], rows)],
        figures=[_curves(tables["curves"]), _failed(tables["failed"])],
    )


def labelled(table: "pl.DataFrame") -> "pl.DataFrame":
    """The table with a column ``label``, the name of policy, window and moves."""
    import polars as pl

    labels = [
        RunSpec(row["trace"], int(row["seed"]), row["policy"], int(row["window"]), float(row["moves"])).label
        for row in table.select("trace", "seed", "policy", "window", "moves").iter_rows(named=True)
    ]
    return table.with_columns(pl.Series("label", labels, dtype=pl.String))


def means(table: "pl.DataFrame", columns: list[str], by: tuple[str, ...] = ()) -> "pl.DataFrame":
    """Means over seeds by trace, label and more columns, in the order of the table."""
    import polars as pl

    return table.group_by("trace", "label", *by, maintain_order=True).agg(pl.col(column).mean() for column in columns)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}%"


def _curves(curves: "pl.DataFrame") -> Figure:
    averaged = means(curves.filter(curves["arrived"] >= _FROM), ["allocation", "fragmentation"], ("arrived",))
    panels = []
    least = _begin_of_axis(averaged)
    for trace in sorted(set(averaged["trace"])):
        own = averaged.filter(averaged["trace"] == trace)
        labels = list(dict.fromkeys(own["label"]))
        for column, title in (("allocation", "GPUs allocated, %"), ("fragmentation", "fragmentation, % of GPUs")):
            series = []
            for style, label in enumerate(labels):
                line = own.filter(own["label"] == label).sort("arrived")
                series.append(Series(label, line["arrived"].to_list(), line[column].to_list(), "line", style))
                points = PUBLISHED.get((trace, label), ()) if column == "allocation" else ()
                if points:
                    at, values = [float(p.arrived) for p in points], [p.allocation for p in points]
                    texts = [f"standard deviation {p.deviation:.2f}" for p in points]
                    series.append(Series(f"{label}, published", at, values, "points", style, texts))
            ends = (100.0, least) if column == "allocation" else (None, 0.0)
            panels.append(
                Panel(f"Trace {trace}", "GPUs asked for so far, % of all", title, series, most=ends[0], least=ends[1])
            )
    return Figure(
        "allocation",
        "What can be allocated, and what cannot be used",
        "Pods arrive until they ask for 130% of the GPUs, and none departs. Left: GPUs in use; the axis does not begin "
        "at 0. Points are the figures that the authors of the experiment published. Right: free capacity that "
        "typical pods cannot use.",
        panels,
        columns=2,
    )


def _begin_of_axis(averaged: "pl.DataFrame") -> float:
    """The next lower multiple of 5 below all that is drawn of the allocation: it is far from 0."""
    drawn = [value for value in averaged["allocation"] if value is not None]
    pairs = set(zip(averaged["trace"], averaged["label"], strict=True))
    drawn += [point.allocation for pair in pairs for point in PUBLISHED.get(pair, ())]
    return 5.0 * floor(min(drawn, default=0.0) / 5)


def _failed(failed: "pl.DataFrame") -> Figure:
    import polars as pl

    ends = failed.filter(pl.col("arrived") == pl.col("arrived").max().over("trace", "label", "seed"))
    averaged = means(ends, ["failed", "pods"], ("size",))
    panels = []
    for trace in sorted(set(averaged["trace"])):
        own = averaged.filter(averaged["trace"] == trace)
        bars = []
        for style, label in enumerate(dict.fromkeys(own["label"])):
            mine = own.filter(own["label"] == label)
            found = {size: (failed, pods) for size, failed, pods in mine.select("size", "failed", "pods").iter_rows()}
            names = [_SIZE_NAMES.get(size, f"{size} GPU{'' if size == '1' else 's'}") for size in SIZES]
            counts = [found.get(size, (0.0, 0.0)) for size in SIZES]
            shares = [failed / pods if pods else None for failed, pods in counts]
            texts = [f"{failed:,.0f} of {pods:,.0f} pods" for failed, pods in counts]
            bars.append(Series(label, names, shares, "bars", style, texts))
        panels.append(Panel(f"Trace {trace}", "size of the pod", "pods that failed", bars, is_share=True))
    text = "The share of the pods of each size that found no place until the end of the run; means over seeds."
    return Figure("failed", "Pods without a place", text, panels)
