"""What ``bench`` prints of benchmark sets: phases, limits, growth, what changed, and what CP-SAT adds."""

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import median

from rich.console import Console

from kai_solver.bench import (
    BenchSet,
    Run,
    Stored,
    Verdict,
    changes,
    figure_of,
    fitted,
    grouped,
    late,
    plot_lines,
    promised_s,
    save_runs,
    verdicts,
)
from kai_solver.cli.bench_report import print_csv, print_json, print_table, short_name
from kai_solver.cli.bench_tables import print_added, print_limits, said
from kai_solver.cli.console import heading, line, open_console, table

PHASES = ("build", "presolve", "first", "best", "proof", "check")
COLUMNS = ("instance", "model", "budget", "load", *PHASES, "cold", "decide", "cpu", "memory")


def report(
    runs: Sequence[Run],
    sets: Sequence[BenchSet],
    models: Sequence[str],
    floor: str | None,
    *,
    as_csv: bool,
    as_json: bool,
    as_table: bool,
) -> None:
    """Print the runs: plain ones side by side with the reference, those of sets by phase."""
    if as_csv:
        print_csv(runs)
    elif as_json:
        print_json(runs, floor or "")
    elif as_table:
        for bench_set in sets:
            print_limits(bench_set, verdicts(bench_set, runs))
        print_added(runs, next((name for name in models if name != floor), "default"), floor or "")
    elif sets:
        print_phases(runs)
    if not (as_csv or as_json or as_table) and (floor or not sets):
        print_table(runs, floor or "")


def after(
    runs: Sequence[Run],
    sets: Sequence[BenchSet],
    *,
    save: Path | None,
    before: Stored | None,
    plot: Path | None,
    aside: bool,
) -> bool:
    """Limits, changes, files; ``aside``: on standard error, for standard output is for machines.

    False where a limit or a budget's promise was not kept.
    """
    console = open_console(sys.stderr if aside else None)
    if save is not None:
        save_runs(runs, save)
    found = [verdict for s in sets for verdict in verdicts(s, runs)]
    if sets:
        _print_verdicts(console, found)
        _print_promise(console, runs)
    if before is not None:
        _print_changes(console, runs, before)
    if plot is not None:
        lines = [fit for s in sets for slope in s.doc.slopes if (fit := fitted(slope, runs)) is not None]
        plot_lines(lines, plot)
    return not any(verdict.is_over for verdict in found) and not late(runs)


def print_phases(runs: Sequence[Run]) -> None:
    """One row for each instance, model and budget: medians of the measured cycles."""
    console = open_console()
    heading(
        console,
        "Phases",
        "milliseconds; presolve, first, best, proof: sums over the solver's questions, from asking each; "
        f"cold: the engine's first cycle; {runs[0].clock if runs else 'wall'} clock",
    )
    rows = []
    for key, group in grouped(runs).items():
        timing = [run.timing_s for run in group]
        phases = [_ms(median(t.get(phase, 0.0) for t in timing)) for phase in PHASES]
        name = short_name(key.instance) + (f" seed {key.draw}" if key.draw != 1 else "")
        head = (name, key.model, f"{key.budget_s:g} s", _ms(group[0].load_s))
        cpu_s = median(run.cpu_s for run in group)
        tail = (_ms(figure_of("cold", group)), _ms(figure_of("decide", group)), _ms(cpu_s), _mib(group))
        rows.append((*head, *phases, *tail))
    console.print(table(COLUMNS, rows, right=COLUMNS[2:]))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f}"


def _mib(group: Sequence[Run]) -> str:
    return f"{max(run.memory_mib for run in group):,.0f}"


def _print_verdicts(console: Console, found: Sequence[Verdict]) -> None:
    measured = [verdict for verdict in found if verdict.value is not None]
    heading(console, "Limits", f"{sum(not v.is_over for v in measured)} of {len(measured)} kept")
    columns = ("instance", "figure", "model", "budget", "measured", "limit", "", "before", "about")
    rows = [
        (
            verdict.entry + (f" seed {verdict.draw}" if verdict.draw != 1 else ""),
            verdict.figure,
            verdict.model,
            f"{verdict.budget_s:g} s",
            said(verdict.figure, verdict.value),
            said(verdict.figure, verdict.limit),
            "over" if verdict.is_over else "ok",
            said(verdict.figure, verdict.before),
            verdict.says,
        )
        for verdict in measured
    ]
    console.print(table(columns, rows, right=("budget", "measured", "limit", "before")))


def _print_promise(console: Console, runs: Sequence[Run]) -> None:
    broken = late(runs)
    line(console, f"Budgets: {len(runs) - len(broken)} of {len(runs)} cycles ended by 1.2 B + 0.2 s")
    for run in broken:
        what = f"{run.instance} with {run.model}, seed {run.seed}"
        line(console, f"  {what}: {run.decide_s:.2f} s, promised {promised_s(run.budget_s):.2f} s")


def _print_changes(console: Console, runs: Sequence[Run], before: Stored) -> None:
    found = changes(runs, before.runs)
    both = len(grouped(runs).keys() & grouped(before.runs).keys())
    heading(console, "Changes", f"since {before.date}, kai-solver {before.version}; {both} rows in both runs")
    line(console, "  Times are compared after both machines' calibration is taken out.")
    for change in found:
        verdict = "worse" if change.is_worse else "better"
        where = f"{short_name(change.key.instance)} with {change.key.model}, {change.key.budget_s:g} s"
        line(console, f"  {verdict} ({change.kind}): {where}: {change.text}")
    if not found:
        line(console, "  Nothing got worse or better.")
