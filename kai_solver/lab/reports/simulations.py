"""The section of a report about simulations: what they come to in words, a table, and figures over time."""

from collections.abc import Callable, Sequence
from itertools import combinations

from kai_solver.lab.reports.figure import Figure, Kind, Panel, Section, Series, Table, with_common_end
from kai_solver.lab.reports.gantt import gantt_of, time_unit
from kai_solver.lab.reports.replays import (
    largest_queues,
    shares,
    started_within,
    steps,
    thinned,
    totals,
    waits_by,
)
from kai_solver.lab.reports.sources import Simulation

MOST_QUEUES = 8
"""With a panel of their own; the page stays readable."""
MOST_CHARTS = 4
"""Gantt charts of one section, two beside each other."""


def section_of(runs: Sequence[Simulation]) -> Section:
    """Verdicts, table and figures of replays, each of them one line in every figure."""
    scenarios = dict.fromkeys(run.scenario for run in runs)
    notes = []
    if len(runs) > MOST_CHARTS:
        notes.append(f"The Gantt chart shows the first {MOST_CHARTS} runs.")
    interrupted = [run.label for run in runs if run.summary.get("interrupted")]
    if interrupted:
        notes.append(f"Interrupted before the scenario's end: {', '.join(interrupted)}.")
    return Section(
        title=f"Simulation: {', '.join(scenarios)}",
        verdicts=verdicts(runs),
        tables=[_numbers(runs)],
        figures=[
            _utilisation(runs),
            _waits(runs),
            _wait_groups(runs),
            _fair_shares(runs),
            _fragmentation(runs),
            _disturbance(runs),
            _gpu_hours(runs),
            _deciding(runs),
        ],
        notes=notes,
        charts=[gantt_of(run) for run in runs[:MOST_CHARTS]],
    )


def verdicts(runs: Sequence[Simulation]) -> list[str]:
    """What the replays come to; two of one scenario are compared with each other."""
    said = []
    for run in runs:
        jobs = run.summary["jobs"]
        arrived = sum(jobs.values()) - jobs.get("future", 0)
        said.append(
            f"{run.label}: {_percent(run.summary['utilisation'])} of the GPU time of nodes that were up was held, "
            f"{_percent(run.summary['goodput'])} was work that was kept. {jobs.get('done', 0):,} of {arrived:,} jobs "
            f"that arrived are done, {_never(run):,} never started. {run.summary['evictions']:,} pods were evicted, "
            f"{run.summary['moves']:,} moved."
        )
    pairs = [pair for pair in combinations(runs, 2) if pair[0].scenario == pair[1].scenario]
    said += [_compared(first, second) for first, second in pairs[:_MOST_PAIRS]]
    return said


_MOST_PAIRS = 6
_SAME = 0.005
"""Shares that differ by less are called the same: half a percentage point."""


def _compared(first: Simulation, second: Simulation) -> str:
    parts = []
    for name, what in (("goodput", "work that was kept"), ("utilisation", "GPUs held")):
        difference = float(first.summary[name]) - float(second.summary[name])
        if abs(difference) < _SAME:
            parts.append(f"the same {what} (within half a percentage point)")
        else:
            word = "more" if difference > 0 else "less"
            parts.append(f"{100 * abs(difference):.1f} percentage points {word} {what}")
    gap = float(first.summary["fairness_gap"]) - float(second.summary["fairness_gap"])
    if abs(gap) < _SAME:
        parts.append("the same fairness gap (within half a percentage point)")
    else:
        word = "smaller" if gap < 0 else "larger"
        parts.append(f"a fairness gap {100 * abs(gap):.1f} percentage points {word}")
    return f"{first.label} compared with {second.label}: {', '.join(parts)}. One replay each: no statistical test."


def _never(run: Simulation) -> int:
    jobs = run.tables["jobs"]
    return int(jobs.filter(jobs["arrival_s"] <= run.end_s)["first_start_s"].null_count())


def _percent(share: float) -> str:
    return f"{100 * float(share):.1f}%"


def _numbers(runs: Sequence[Simulation]) -> Table:
    def row(name: str, text: Callable[[Simulation], str]) -> list[str]:
        return [name, *(text(run) for run in runs)]

    return Table(
        "In numbers",
        ["", *(run.label for run in runs)],
        [
            row("utilisation", lambda run: _percent(run.summary["utilisation"])),
            row("goodput (work kept)", lambda run: _percent(run.summary["goodput"])),
            row("jobs done", lambda run: f"{run.summary['jobs'].get('done', 0):,}"),
            row("arrived and never started", lambda run: f"{_never(run):,}"),
            row("GPU hours of work lost", lambda run: f"{run.summary['gpu_hours'].get('lost', 0):,.1f}"),
            row("pods evicted, moved", lambda run: f"{run.summary['evictions']:,}, {run.summary['moves']:,}"),
            row("fairness gap", lambda run: _percent(run.summary["fairness_gap"])),
            row("fragmentation", lambda run: _percent(run.summary["fragmentation"])),
            row("decide: median, p95", lambda run: f"{_ms(run, 'median')}, {_ms(run, 'p95')}"),
        ],
    )


def _ms(run: Simulation, name: str) -> str:
    return f"{1000 * float(run.summary['solve_s'].get(name, 0)):,.0f} ms"


def _over_time(
    runs: Sequence[Simulation], line: Callable[[Simulation], tuple[list[float], list[float]]]
) -> list[Series]:
    found = []
    for style, run in enumerate(runs):
        at, values = line(run)
        found.append(Series(run.label, _scaled(at, runs), values, "step", style))
    return found


def _time(runs: Sequence[Simulation]) -> tuple[str, float]:
    return time_unit(max((run.end_s for run in runs), default=0.0))


def _scaled(seconds: Sequence[float], runs: Sequence[Simulation]) -> list[float]:
    unit_s = _time(runs)[1]
    return [second / unit_s for second in seconds]


def _utilisation(runs: Sequence[Simulation]) -> Figure:
    held = _over_time(runs, lambda run: shares(run.tables["cycles"], "gpus_held", "gpus_up", run.end_s))
    waiting = _over_time(runs, lambda run: steps(run.tables["cycles"], "waiting", run.end_s))
    return Figure(
        "utilisation",
        "GPUs in use, and gangs that wait",
        "Above: GPUs that gangs hold, as a share of those of nodes that are up. Below: gangs with pods that wait, "
        "after each cycle. GPUs that stay free while gangs wait are what a better plan could use.",
        [
            Panel("", _time(runs)[0], "GPUs held", held, is_share=True, most=1.02),
            Panel("", _time(runs)[0], "gangs waiting", waiting),
        ],
    )


def _waits(runs: Sequence[Simulation]) -> Figure:
    lines = []
    for style, run in enumerate(runs):
        at, share = started_within(run.tables["jobs"], run.end_s)
        lines.append(Series(run.label, [max(0.1, second) for second in at], share, "step", style))
    return Figure(
        "waits",
        "How long jobs wait for their start",
        "The share of all jobs that arrived which had started so many seconds later. Higher and further left "
        "is better. A job that never started keeps its line below 100%. Waits below 0.1 s are drawn at 0.1 s.",
        [
            Panel(
                "",
                "seconds after arrival (logarithmic)",
                "jobs started",
                with_common_end(lines),
                is_log_x=True,
                is_share=True,
                most=1.02,
            )
        ],
    )


def _wait_groups(runs: Sequence[Simulation]) -> Figure:
    panels = []
    for by, title, label in (("size", "By size", "GPUs of the job"), ("queue", "By queue", "queue")):
        tables = [waits_by(run.tables["jobs"], by, run.end_s) for run in runs]
        groups = list(dict.fromkeys(group for table in tables for group in table["group"]))
        if by == "size":
            from kai_solver.lab.simulate.summary import size_classes

            groups = [name for name in size_classes() if name in groups]
        bars = []
        for style, (run, table) in enumerate(zip(runs, tables, strict=True)):
            rows = {row["group"]: row for row in table.iter_rows(named=True)}
            mine = [rows.get(group) for group in groups]
            texts = [_wait_text(row) for row in mine]
            bars.append(
                Series(run.label, groups, [None if row is None else row["p95_s"] for row in mine], "bars", style, texts)
            )
        panels.append(Panel(title, label, "p95 of the wait, s", bars))
    return Figure(
        "waits-by-group",
        "Waits by size and by queue",
        "95th percentile of the seconds from arrival to the first start, of jobs that started. The pointer shows the "
        "median, and how many never started.",
        panels,
        columns=2,
    )


def _wait_text(row: dict[str, object] | None) -> str:
    if row is None:
        return "no job"
    median = "none started" if row["median_s"] is None else f"median {row['median_s']:,.0f} s"
    return f"{row['jobs']:,} jobs, {median}, {row['never']:,} never started"


def _fair_shares(runs: Sequence[Simulation]) -> Figure:
    tables = [run.tables["queues"] for run in runs]
    panels = []
    for queue in largest_queues(tables, MOST_QUEUES):
        own = [table.filter(table["queue"] == queue) for table in tables]
        most = max(
            (value for table in own for value in (*table["allocated_gpus"], *table["fair_share_gpus"])), default=0
        )
        for run, table in zip(runs, own, strict=True):
            lines = []
            kinds: tuple[tuple[str, str, Kind], ...] = (
                ("allocated", "allocated_gpus", "area"),
                ("fair share", "fair_share_gpus", "step"),
                ("requested", "requested_gpus", "step"),
            )
            for style, (name, column, kind) in enumerate(kinds):
                at, values = steps(table, column, run.end_s)
                lines.append(Series(name, _scaled(at, runs), values, kind, style))
            title = f"{queue} · {run.label}" if len(runs) > 1 else queue
            panels.append(Panel(title, _time(runs)[0], "GPUs", lines, most=1.25 * most if most else None))
    return Figure(
        "fair-share",
        "Allocation and fair share of queues",
        "GPUs that a queue holds, its fair share, and what it asks for. A queue below its fair share that asks for "
        "more is owed GPUs. Requests far above both are cut off."
        + (f" The {MOST_QUEUES} queues which ask for most." if len(panels) == MOST_QUEUES * len(runs) else ""),
        panels,
        columns=min(len(runs), 3),
    )


def _fragmentation(runs: Sequence[Simulation]) -> Figure:
    parts = _over_time(runs, lambda run: steps(run.tables["cycles"], "fragmentation", run.end_s))
    gap = _over_time(runs, lambda run: steps(run.tables["cycles"], "fairness_gap", run.end_s))
    return Figure(
        "fragmentation",
        "Fragmentation and fairness gap",
        "Above: share of the free GPU capacity that a pod of the scenario cannot use, averaged over the pods' sizes. "
        "Below: what queues lack of what they ask for and are entitled to, as a share of the cluster's GPUs. Less is "
        "better in both.",
        [
            Panel("", _time(runs)[0], "fragmentation", parts, is_share=True),
            Panel("", _time(runs)[0], "fairness gap", gap, is_share=True),
        ],
    )


def _disturbance(runs: Sequence[Simulation]) -> Figure:
    panels = [
        Panel(
            "",
            _time(runs)[0],
            f"pods {what} so far",
            _over_time(runs, lambda run, name=column: totals(run.tables["cycles"], name, run.end_s)),  # type: ignore[misc]
        )
        for column, what in (("evictions", "evicted"), ("moves", "moved"))
    ]
    text = "Pods that were evicted, and pods that were moved to another node, since the begin."
    return Figure("evictions", "Evictions and moves", text, panels)


def _gpu_hours(runs: Sequence[Simulation]) -> Figure:
    names = list(dict.fromkeys(name for run in runs for name in run.summary["gpu_hours"]))
    labels = [run.label for run in runs]
    bars = [
        Series(name, labels, [float(run.summary["gpu_hours"].get(name, 0)) for run in runs], "stack", style)
        for style, name in enumerate(names)
    ]
    return Figure(
        "gpu-hours",
        "What GPU hours were for",
        "Useful: work that was kept. Lost: work that an eviction or a failed node destroyed. Idle: held by gangs that "
        "were not complete. Restarting and releasing: held before work began again, and after it ended.",
        [Panel("", "", "GPU hours", bars)],
    )


def _deciding(runs: Sequence[Simulation]) -> Figure:
    import numpy as np

    lines = []
    for style, run in enumerate(runs):
        seconds = np.sort(run.tables["solve_times"]["decide_s"].to_numpy())
        share = np.arange(1, len(seconds) + 1) / max(1, len(seconds))
        at, values = thinned(np.maximum(1e-4, seconds), share)
        lines.append(Series(run.label, at, values, "step", style))
    return Figure(
        "deciding",
        "Seconds to decide a cycle",
        "The share of cycles that were decided within so many seconds, by the wall clock of "
        "the machine that simulated.",
        [Panel("", "seconds (logarithmic)", "cycles", with_common_end(lines), is_log_x=True, is_share=True, most=1.02)],
    )
