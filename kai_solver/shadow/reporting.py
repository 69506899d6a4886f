"""The report on a comparison: in words, as JSON, and as one HTML page that needs nothing else."""

import html
from datetime import UTC, datetime
from statistics import median
from typing import Any

from kai_solver.domain.names import short_name
from kai_solver.shadow.comparing import TOLERANCE_S, Comparison, GangRow, Verdict, span
from kai_solver.shadow.lines import time_text
from kai_solver.units import counted

REPORT_FORMAT = "kai-shadow-report/v1"

ORDER: tuple[Verdict, ...] = ("worse", "better", "unclear", "same")
"""What a reader should see first comes first."""

HOW_TO_READ = f"""
Each decision starts from the cluster as the scheduler at work left it. The report compares decisions. It does not say
how a day under kai-solver would have gone: that is what kai-solver simulate answers.

A gang counts as placed here when a plan first gives it places, and there when its first pod is bound. The time of
binding is not in the time here. Times that differ by less than {TOLERANCE_S:g} s are the same.

A pod counts as evicted there if it was deleted and its condition, or its PodGroup, names an eviction. Pods that plans
here would move count as evicted.

Unclear: before the gang was bound, no cycle here looked at it, or at the room that it got. Or the recording was
interrupted, or ended, too early.
""".strip().split("\n\n")


def in_short(found: Comparison) -> list[str]:
    """The result in a few sentences."""
    if not found.rows:
        return ["No gang waited or was evicted in this time, so there is nothing to compare."]
    counts = {verdict: len(found.of(verdict)) for verdict in ORDER}
    with_it = f"{counts['better']:,} would have fared better with kai-solver, {counts['worse']:,} worse"
    said = [
        f"{counted(len(found.rows), 'gang')} compared: {counts['same']:,} fared the same, {with_it}.",
        *([f"{counted(counts['unclear'], 'gang')} cannot be compared."] if counts["unclear"] else []),
    ]
    here, there = found.evicted_here, found.evicted_there
    change = f"{there - here:,} fewer" if there > here else f"{here - there:,} more" if here > there else "as many"
    said.append(
        f"{counted(there, 'pod was', 'pods were')} evicted; kai-solver would have evicted or moved {here:,}: {change}."
        if here or there
        else "No pod was evicted, and kai-solver would have evicted none."
    )
    admitted = [wait for row in found.rows for wait in row.waits if wait.verdict == "better"]
    if admitted:
        verb = "was" if len(admitted) == 1 else "were"
        said.append(f"{counted(len(admitted), 'gang')} that kai-solver would have placed {verb} not placed at all.")
    saved = found.saved
    if saved:
        earlier = [seconds for seconds, _ in saved if seconds > 0]
        hours = sum(seconds * gpus for seconds, gpus in saved) / 3600
        said.append(
            f"{counted(len(saved), 'gang')} would have started at another time: {len(earlier):,} earlier, "
            f"{len(saved) - len(earlier):,} later. The median is {_signed(median(seconds for seconds, _ in saved))}; "
            f"the sum is {hours:,.1f} GPU-hours {'earlier' if hours >= 0 else 'later'}."
        )
    if found.interruptions:
        said.append(f"The recording was interrupted {found.interruptions:,} times.")
    return said


def text_of_report(found: Comparison, *, full: bool = False) -> str:
    """The report for a terminal; ``full``: also the gangs that fared the same."""
    lines = [title(found), "", *in_short(found)]
    for verdict in ORDER:
        rows = found.of(verdict)
        if rows and (full or verdict != "same"):
            lines += ["", f"{verdict} ({len(rows)})"]
            lines += [f"  {short_name(row.gang)}  ({row.queue})  {row.why}" for row in rows]
    return "\n".join(lines)


def title(found: Comparison) -> str:
    """What was compared, and when."""
    began, ended = (datetime.fromtimestamp(stamp_s, UTC) for stamp_s in (found.began_s, found.ended_s))
    end = f"{ended:%H:%M}" if began.date() == ended.date() else f"{ended:%d %B %Y %H:%M}"
    return (
        f"kai-solver beside the scheduler at work, {began:%d %B %Y %H:%M} to {end} UTC "
        f"({span(found.ended_s - found.began_s)}, {counted(found.cycles, 'cycle')})"
    )


def document_of_report(found: Comparison) -> dict[str, Any]:
    """The report as it is published."""
    return {
        "format": REPORT_FORMAT,
        "began": time_text(found.began_s),
        "ended": time_text(found.ended_s),
        "cycles": found.cycles,
        "longest_gap_s": round(found.longest_gap_s, 3),
        "interruptions": found.interruptions,
        "in_short": in_short(found),
        "gangs": {verdict: len(found.of(verdict)) for verdict in ORDER},
        "evicted_here": found.evicted_here,
        "evicted_there": found.evicted_there,
        "evictions_spared": found.evicted_there - found.evicted_here,
        "saved_s": round(sum(seconds for seconds, _ in found.saved), 3),
        "saved_gpu_hours": round(sum(seconds * gpus for seconds, gpus in found.saved) / 3600, 3),
        "by_gang": [_row(row) for row in found.rows],
    }


def _row(row: GangRow) -> dict[str, Any]:
    waits = [
        {
            "opened": time_text(wait.opened_s),
            "here": None if wait.here_s is None else time_text(wait.here_s),
            "there": None if wait.there_s is None else time_text(wait.there_s),
            "saved_s": None if wait.saved_s is None else round(wait.saved_s, 3),
            "gpus": wait.gpus,
            "verdict": wait.verdict,
            "why": wait.why,
        }
        for wait in row.waits
    ]
    evicted = {"evicted_here": row.evicted_here, "evicted_there": row.evicted_there}
    return {"gang": row.gang, "queue": row.queue, "verdict": row.verdict, "why": row.why, **evicted, "waits": waits}


_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1b1f23; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; }
th, td { text-align: left; padding: 0.3rem 0.6rem; border-bottom: 1px solid #d0d7de; vertical-align: top; }
td.n, th.n { text-align: right; } .note { color: #57606a; font-size: 0.9rem; }
"""


def page_of_report(found: Comparison) -> str:
    """The report as an HTML page: the summary first, then every gang."""
    parts = [f"<h1>{_text(title(found))}</h1>", *(f"<p>{_text(said)}</p>" for said in in_short(found))]
    for verdict in ORDER:
        rows = found.of(verdict)
        if rows:
            parts += [f"<h2>{verdict.capitalize()} ({len(rows):,})</h2>", _table(rows)]
    parts += ["<h2>How to read this</h2>", *(f'<p class="note">{_text(limit)}</p>' for limit in HOW_TO_READ)]
    body = "\n".join(parts)
    head = f'<meta charset="utf-8"><title>{_text(title(found))}</title><style>{_STYLE}</style>'
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>\n{body}\n</body></html>\n'


def _table(rows: list[GangRow]) -> str:
    head = "<tr><th>Gang</th><th>Queue</th><th>What differs</th><th class=n>Evicted</th><th class=n>Here</th></tr>"
    cells = (
        f"<tr><td>{_text(short_name(row.gang))}</td><td>{_text(row.queue)}</td><td>{_text(row.why)}</td>"
        f"<td class=n>{row.evicted_there}</td><td class=n>{row.evicted_here}</td></tr>"
        for row in rows
    )
    return "\n".join(["<table>", head, *cells, "</table>"])


def _text(said: str) -> str:
    return html.escape(said)


def _signed(seconds: float) -> str:
    return f"{span(abs(seconds))} {'earlier' if seconds >= 0 else 'later'}"
