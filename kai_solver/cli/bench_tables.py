"""Tables of benchmark sets in Markdown, as docs/benchmarks.md has them."""

from collections.abc import Sequence

import typer

from kai_solver.bench import BenchSet, Run, Verdict, added
from kai_solver.cli.bench_report import short_name

NO_BOUND = 100.0
"""A gap from here on is that of a bound of 0: nobody has looked yet."""
_OF_TEXT = {
    "decide": "",
    "slope": "",
    "admission-gap": "admission gap ",
    "work-gap": "gap of the evicted work ",
    "disruption-gap": "disruption gap ",
}


def said(figure: str, value: float | None) -> str:
    """A figure as people read it."""
    if value is None:
        return ""
    if figure.endswith("-gap"):
        return f"{value:.2%}" if value < NO_BOUND else "no bound"
    if figure == "memory":
        return f"{value:,.0f} MiB"
    if figure == "slope":
        return f"{value:.2f}"
    return f"{value:g}" if figure in ("unproven", "pending", "evicted", "moved") else f"{value:.3g} s"


def print_limits(bench_set: BenchSet, found: Sequence[Verdict]) -> None:
    """A row an entry: what it is, what peers reach, the limits, and what was measured; what is over is in bold."""
    typer.echo("| instance | KAI | limit | measured |")
    typer.echo("|---|---|---|---|")
    abouts = {entry.name: (entry.says or entry.name, entry.peer) for entry in bench_set.doc.entries}
    slopes = bench_set.doc.slopes
    abouts |= {slope.name: (f"slope of log time over log nodes: {slope.name}", slope.peer) for slope in slopes}
    for name, (about, peer) in abouts.items():
        of = [verdict for verdict in found if verdict.entry == name and verdict.value is not None]
        if of:
            limits = "; ".join(dict.fromkeys(f"{_head(v)}<= {said(v.figure, v.limit)}{_tail(v)}" for v in of))
            typer.echo(f"| {about} | {peer} | {limits} | {'; '.join(map(_measured, of))} |")
    typer.echo("")


def _head(verdict: Verdict) -> str:
    return _OF_TEXT.get(verdict.figure, f"{verdict.figure} ")


def _tail(verdict: Verdict) -> str:
    """The budget where it is not the usual one, and the words of who set the limit."""
    parts = [f"at {verdict.budget_s:g} s"] if verdict.figure.endswith("-gap") else []
    return "".join(f" ({part})" for part in [*parts, *([verdict.says] if verdict.says else [])])


def _measured(verdict: Verdict) -> str:
    text = _head(verdict) + said(verdict.figure, verdict.value)
    seed = f" (seed {verdict.draw})" if verdict.draw != 1 else ""
    return f"**{text}**{seed}" if verdict.is_over else text + seed


def print_added(runs: Sequence[Run], model: str, floor: str) -> None:
    """What ``floor`` reaches alone, what ``model`` adds by stage, and when."""
    typer.echo("| instance | budget | greedy alone | adds to admission | to disruption | to preference | when |")
    typer.echo("|---|---:|---|---|---|---|---|")
    for row in added(runs, model, floor):
        greedy = f"{row.greedy}; {row.greedy_s:.2f} s"
        when = ", ".join(filter(None, (row.when, f"plan {row.decide_s:.2f} s")))
        cells = (short_name(row.instance), f"{row.budget_s:g} s", greedy, row.admission, row.disruption, row.preference)
        typer.echo(f"| {' | '.join(cells)} | {when} |")
