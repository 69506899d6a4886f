"""What ``bench`` prints of benchmark sets: phases, limits, growth, what changed, and what CP-SAT adds."""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median

import typer
from rich.console import Console

from kai_solver.cli.bench_report import print_csv, print_json, print_table
from kai_solver.cli.console import heading, line, open_console, table
from kai_solver.errors import InputError
from kai_solver.instances_io.output import write_bytes
from kai_solver.lab.bench import (
    BenchSet,
    Run,
    Stored,
    Verdict,
    added,
    added_table,
    block_names,
    blocks,
    changes,
    figure_of,
    fitted,
    grouped,
    late,
    limits_table,
    link_spreads,
    measured,
    peer_lines,
    plot_lines,
    promised_s,
    said,
    save_runs,
    short_name,
    verdicts,
    with_blocks,
    with_figures,
)
from kai_solver.lab.bench.compare import cpu_s, peak_mib
from kai_solver.lab.bench.course import course, draw
from kai_solver.units import counted

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
            found = [verdict for verdict in verdicts(bench_set, runs) if verdict.value is not None]
            _echo(limits_table(bench_set, found))
        _echo(added_table(added(runs, beside(models, floor), floor or "")))
    elif sets:
        print_phases(runs)
    if not (as_csv or as_json or as_table) and (floor or not sets):
        print_table(runs, floor or "")


def beside(models: Sequence[str], floor: str | None) -> str:
    """The model that is held beside the floor."""
    return next((name for name in models if name != floor), "default")


def _echo(lines: Sequence[str]) -> None:
    typer.echo("\n".join([*lines, ""]))


def after(
    done: Stored,
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
    runs = done.runs
    if save is not None and not save_runs(done, save):
        line(console, f"No tables in {save}: they need polars (pip install 'kai-solver[experiments]')")
    found = [verdict for s in sets for verdict in verdicts(s, runs)]
    if sets:
        _print_verdicts(console, found)
        _print_promise(console, runs)
        _print_spreads(console, runs)
    if before is not None:
        _print_changes(console, runs, before)
    if plot is not None:
        slopes = [(s, slope) for s in sets for slope in s.doc.slopes]
        peers = {name: found for s, slope in slopes for name, found in peer_lines(slope, runs, s.doc.entries).items()}
        plot_lines([fit for _, slope in slopes if (fit := fitted(slope, runs)) is not None], peers, plot)
    return not any(verdict.is_over for verdict in found) and not late(runs)


def draw_course(path: Path, sets: Sequence[BenchSet], done: Stored, earlier: Mapping[str, Stored], model: str) -> None:
    """Draw what ``model`` reaches over time on the instances of the sets, this run after the ``earlier`` ones by name.

    Raises
    ------
    InputError
        Nothing was measured, or matplotlib is not installed.
    """
    entries = [entry for bench_set in sets for entry in bench_set.doc.entries]
    versions = {**earlier, done.date: done}
    courses = {
        entry.name: {said: course(run.runs, entry.name, model) for said, run in versions.items()} for entry in entries
    }
    draw(courses, {entry.name: entry.peer_points for entry in entries}, path)


def check_record(page: Path, sets: Sequence[BenchSet], only: str | None) -> None:
    """Find out before hours of measuring whether the figures could be written.

    Raises
    ------
    InputError
        There is not one whole set, or the page cannot be read or has no marks for it.
    """
    if len(sets) != 1 or only:
        raise InputError("needs one set, all of it", field="--record", cure="SET.yaml --record PAGE.md")
    _with_blocks(page, dict.fromkeys(block_names(sets[0]), ""))


def record_in(page: Path, done: Stored, bench_set: BenchSet, model: str, floor: str) -> None:
    """Write the run into its set and into a Markdown page.

    Raises
    ------
    InputError
        A file cannot be read, changed or written.
    """
    new_page = _with_blocks(page, blocks(bench_set, done, model, floor))
    try:
        new_set = with_figures(_text(bench_set.path), measured(bench_set, done))
    except InputError as error:
        raise error.in_file(str(bench_set.path)) from error
    write_bytes(new_page.encode(), page)
    write_bytes(new_set.encode(), bench_set.path)


def _with_blocks(page: Path, wanted: Mapping[str, str]) -> str:
    try:
        return with_blocks(_text(page), wanted)
    except InputError as error:
        raise error.in_file(str(page)) from error


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", file=str(path), cure="Give a text file") from error


def print_phases(runs: Sequence[Run]) -> None:
    """One row for each instance, model and budget: medians of the measured cycles."""
    console = open_console()
    heading(
        console,
        "Phases",
        "milliseconds; presolve, first, best, proof: sums over the solver's questions, from asking each; "
        f"cold: the engine's first cycle; {runs[0].record.clock if runs else 'wall'} clock",
    )
    rows = []
    for key, group in grouped(runs).items():
        phases = [_ms(median(run.phase_s(phase) or 0.0 for run in group)) for phase in PHASES]
        name = short_name(key.instance) + (f" seed {key.draw}" if key.draw != 1 else "")
        head = (name, key.model, f"{key.budget_s:g} s", _ms(group[0].record.read_s))
        tail = (
            _ms(figure_of("cold", group)),
            _ms(figure_of("decide", group)),
            _ms(cpu_s(group)),
            _mib(peak_mib(group)),
        )
        rows.append((*head, *phases, *tail))
    console.print(table(COLUMNS, rows, right=COLUMNS[2:]))


def _ms(seconds: float | None) -> str:
    return "" if seconds is None else f"{seconds * 1000:,.0f}"


def _mib(mib: float | None) -> str:
    return "" if mib is None else f"{mib:,.0f}"


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
    line(console, f"Budgets: {len(runs) - len(broken)} of {counted(len(runs), 'cycle')} ended by 1.2 B + 0.2 s")
    for record in (run.record for run in broken):
        what = f"{record.instance} with {record.model}, seed {record.seed}"
        line(console, f"  {what}: {record.solve_s:.2f} s, promised {promised_s(record.budget_s):.2f} s")


def _print_spreads(console: Console, runs: Sequence[Run]) -> None:
    found = link_spreads(runs)
    if found:
        heading(console, "Links", "quartiles of pairs of cycles with and without them, by CPU time")
    for text in found:
        line(console, f"  {text}")


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
