"""Tables of benchmark sets in Markdown, as docs/benchmarks.md has them."""

from collections.abc import Sequence

from kai_solver.lab.bench.added import Added
from kai_solver.lab.bench.figures import COUNTS, GAPS
from kai_solver.lab.bench.find import short_name
from kai_solver.lab.bench.sets import BenchSet, Verdict

NO_BOUND = 100.0
"""A gap from here on is that of a bound of 0: none was searched yet."""
_OF_TEXT = {
    "decide": "",
    "slope": "",
    "link-growth": "CPU time through links ",
    "admission-gap": "admission gap ",
    "work-gap": "gap of the evicted work ",
    "gpus-gap": "gap of the evicted GPUs ",
    "disruption-gap": "disruption gap ",
}


def said(figure: str, value: float | None) -> str:
    """A figure as people read it."""
    if value is None:
        return ""
    if figure in GAPS:
        return f"{value:.2%}" if value < NO_BOUND else "no bound"
    if figure == "link-growth":
        return f"{value:+.1%}"
    if figure in ("memory", "load-memory"):
        return f"{value:,.0f} MiB"
    if figure == "slope":
        return f"{value:.2f}"
    return f"{value:,.9g}" if figure in COUNTS else f"{value:.3g} s"


def limits_table(bench_set: BenchSet, found: Sequence[Verdict]) -> list[str]:
    """A row an entry: what it is, what peers reach, the limits, and what was measured; what is over is in bold."""
    abouts = {entry.name: (entry.says or entry.name, entry.peer) for entry in bench_set.doc.entries}
    slopes = bench_set.doc.slopes
    abouts |= {slope.name: (f"slope of log time over log nodes: {slope.name}", slope.peer) for slope in slopes}
    rows = []
    for name, (about, peer) in abouts.items():
        of = [verdict for verdict in found if verdict.entry == name]
        if of:
            limits = "; ".join(dict.fromkeys(map(_limit, of)))
            rows.append((about, peer, limits, "; ".join(map(_measured, of))))
    return _markdown(("instance", "KAI", "limit", "measured"), rows)


def _head(verdict: Verdict) -> str:
    return _OF_TEXT.get(verdict.figure, f"{verdict.figure} ")


def _limit(verdict: Verdict) -> str:
    """With the budget of gaps, and the words of the requirement that sets the limit."""
    parts = [f"at {verdict.budget_s:g} s"] if verdict.figure in GAPS else []
    tail = "".join(f" ({part})" for part in [*parts, *([verdict.says] if verdict.says else [])])
    return f"{_head(verdict)}<= {said(verdict.figure, verdict.limit)}{tail}"


def _measured(verdict: Verdict) -> str:
    text = _head(verdict) + (said(verdict.figure, verdict.value) or "not measured")
    seed = f" (seed {verdict.draw})" if verdict.draw != 1 else ""
    return f"**{text}**{seed}" if verdict.is_over else text + seed


def added_table(rows: Sequence[Added]) -> list[str]:
    """What the greedy reaches alone, what CP-SAT adds by stage, and when."""
    cells = [
        (
            short_name(row.instance),
            f"{row.budget_s:g} s",
            f"{row.greedy}; {row.greedy_s:.2f} s",
            row.admission,
            row.disruption,
            row.preference,
            ", ".join(filter(None, (row.when, f"plan {row.decide_s:.2f} s"))),
        )
        for row in rows
    ]
    columns = ("instance", "budget", "greedy alone", "adds to admission", "to disruption", "to preference", "when")
    return _markdown(columns, cells, right=("budget",))


def _markdown(columns: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[str] = ()) -> list[str]:
    rule = "|".join("---:" if column in right else "---" for column in columns)
    return [f"| {' | '.join(columns)} |", f"|{rule}|", *(f"| {' | '.join(row)} |" for row in rows)]
