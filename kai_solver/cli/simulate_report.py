"""Summaries of replays, side by side, in words."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kai_solver.cli.console import heading, line, open_console, table
from kai_solver.units import counted

if TYPE_CHECKING:
    from kai_solver.lab.simulate import Scenario, Summary

_ROWS: tuple[tuple[str, "Callable[[Summary], str]"], ...] = (
    ("simulated", lambda s: f"{s.end_s:,.0f} s" + (" (interrupted)" if s.interrupted else "")),
    ("cycles (computed)", lambda s: f"{s.cycles:,} ({s.decided:,})"),
    ("jobs done", lambda s: f"{s.jobs['done']:,} of {sum(s.jobs.values()):,}"),
    ("utilisation", lambda s: f"{s.utilisation:.1%}"),
    ("goodput (work kept)", lambda s: f"{s.goodput:.1%}"),
    ("GPU hours of work kept", lambda s: f"{s.gpu_hours['useful']:,.1f}"),
    ("GPU hours of work lost", lambda s: f"{s.gpu_hours['lost']:,.1f}"),
    ("GPU hours held, gang not complete", lambda s: f"{s.gpu_hours['idle']:,.1f}"),
    ("their price", lambda s: f"{s.idle_price:,.0f}"),
    ("GPU hours restarting, releasing", lambda s: f"{s.gpu_hours['restarting']:,.1f}, {s.gpu_hours['releasing']:,.1f}"),
    ("pods evicted", lambda s: f"{s.evictions:,}"),
    ("pods moved", lambda s: f"{s.moves:,}"),
    ("restarts", lambda s: f"{s.restarts:,}"),
    ("fairness gap", lambda s: f"{s.fairness_gap:.2%}"),
    ("fragmentation", lambda s: f"{s.fragmentation:.1%}"),
    ("decide: mean, p95, max", lambda s: ", ".join(f"{s.solve_s[k] * 1000:,.0f} ms" for k in ("mean", "p95", "max"))),
    ("replay took", lambda s: f"{s.elapsed_s:,.1f} s"),
)


def print_report(scenario: "Scenario", summaries: "Sequence[Summary]", output: Path) -> None:
    """Print what was replayed, the policies side by side, and the waiting times."""
    console = open_console()
    nodes = scenario.cluster.nodes
    gpus = sum(node.gpus for node in nodes)
    note = f"{counted(len(nodes), 'node')}, {counted(gpus, 'GPU')}, {counted(len(scenario.jobs), 'job')}"
    heading(console, scenario.name or "Scenario", f"{note}, seed {scenario.seed}")
    for notice in scenario.notices[:_MOST_NOTICES]:
        line(console, f"{notice.object}: {notice.text}", "yellow")
    if len(scenario.notices) > _MOST_NOTICES:
        line(console, f"... and {len(scenario.notices) - _MOST_NOTICES} more", "yellow")
    names = [summary.policy for summary in summaries]
    rows = [[label, *(text(summary) for summary in summaries)] for label, text in _ROWS]
    console.print(table(["", *names], rows, right=names))
    for title, field in (("Wait by GPUs of the job", "wait_by_size"), ("Wait by queue", "wait_by_queue")):
        heading(console, title, "mean / median / p95 seconds to the first start; in brackets: never started")
        console.print(table(["", "jobs", *names], _wait_rows(summaries, field), right=["jobs", *names]))
    line(console, f"Tables are in {output}")


_MOST_NOTICES = 10


def _wait_rows(summaries: "Sequence[Summary]", field: str) -> list[list[str]]:
    by_group: dict[str, dict[str, str]] = {}
    counts: dict[str, int] = {}
    for summary in summaries:
        for waits in getattr(summary, field):
            numbers = (waits.mean_s, waits.median_s, waits.p95_s)
            text = " / ".join("-" if number is None else f"{number:,.0f}" for number in numbers)
            by_group.setdefault(waits.group, {})[summary.policy] = text + (f" ({waits.never})" if waits.never else "")
            counts[waits.group] = max(counts.get(waits.group, 0), waits.jobs)
    return [[g, f"{counts[g]:,}", *(texts.get(s.policy, "") for s in summaries)] for g, texts in by_group.items()]
