"""A run written down: in its set's ``measured`` keys, and in the tables of a Markdown page."""

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from kai_solver.errors import InputError
from kai_solver.instances_io.bench_schema import BenchDoc, CheckDoc, EntryDoc, MeasuredDoc, SlopeDoc
from kai_solver.lab.bench.added import added
from kai_solver.lab.bench.compare import grouped
from kai_solver.lab.bench.linked import growths
from kai_solver.lab.bench.measure import CALIBRATION, Run
from kai_solver.lab.bench.sets import BenchSet, Verdict, late, verdicts
from kai_solver.lab.bench.slope import Line, fitted
from kai_solver.lab.bench.stored import Stored
from kai_solver.lab.bench.tables import added_table, limits_table, said
from kai_solver.search.budget import promised_s

_Key = tuple[str, str, str, float]
"""Entry (or slope), figure, model, budget."""
_Doc = TypeVar("_Doc", CheckDoc, SlopeDoc)
_DIGITS = 4
_WIDTH = 120
_BY = "<!-- written by `kai-solver bench --record`: what is changed here is lost -->"


def measured(bench_set: BenchSet, stored: Stored) -> BenchDoc:
    """The set with what the run measured, to four digits; of several seeds the worst, None where it did not.

    Which day and machine that was stands beside.
    """
    worst: dict[_Key, float] = {}
    for verdict in verdicts(bench_set, stored.runs):
        if verdict.value is not None:
            key = verdict.entry, verdict.figure, verdict.model, verdict.budget_s
            worst[key] = max(worst.get(key, verdict.value), verdict.value)
    figures = {key: float(f"{value:.{_DIGITS}g}") for key, value in worst.items()}
    doc = bench_set.doc
    changed = {
        "measured": MeasuredDoc(date=stored.date, machine=stored.machine),
        "entries": tuple(_entry(entry, figures) for entry in doc.entries),
        "slopes": tuple(
            _with(slope, figures.get((slope.name, "slope", slope.model, slope.budget))) for slope in doc.slopes
        ),
    }
    return doc.model_copy(update=changed)


def _entry(entry: EntryDoc, figures: Mapping[_Key, float]) -> EntryDoc:
    keys = [(entry.name, check.figure, check.model, check.budget) for check in entry.checks]
    checks = tuple(_with(check, figures.get(key)) for check, key in zip(entry.checks, keys, strict=True))
    return entry.model_copy(update={"checks": checks})


def _with(doc: _Doc, figure: float | None) -> _Doc:
    return doc.model_copy(update={"measured": figure})


def block_names(bench_set: BenchSet) -> tuple[str, str]:
    """Marks of a page: of the limits, and of what the solver adds to the greedy."""
    return bench_set.doc.name, f"{bench_set.doc.name}-added"


def blocks(bench_set: BenchSet, stored: Stored, model: str, floor: str) -> dict[str, str]:
    """What a page can show of a run, by mark."""
    found = verdicts(bench_set, stored.runs)
    limits = [_how(stored), "", *limits_table(bench_set, found), "", *_bullets(bench_set, stored, found)]
    rows = added_table(added(stored.runs, model, floor))
    return dict(zip(block_names(bench_set), ("\n".join(limits), "\n".join(rows)), strict=True))


def with_blocks(page: str, wanted: Mapping[str, str]) -> str:
    """``page`` with each text between its marks ``<!-- NAME:begin -->`` and ``<!-- NAME:end -->``, where it has them.

    Raises
    ------
    InputError
        It has none of the marks, or a begin without its end.
    """
    found = {name: text for name, text in wanted.items() if _begin(name) in page}
    if not found:
        names = " or ".join(_begin(name) for name in wanted)
        raise InputError(f"has no mark {names}", cure="Write both marks, begin and end, where the tables belong")
    for name, text in found.items():
        head, _, rest = page.partition(_begin(name))
        _, end, tail = rest.partition(f"<!-- {name}:end -->")
        if not end:
            raise InputError(f"{_begin(name)} has no end", cure=f"Write <!-- {name}:end --> where the table ends")
        page = f"{head}{_begin(name)}\n{_BY}\n\n{text}\n\n{end}{tail}"
    return page


def _begin(name: str) -> str:
    return f"<!-- {name}:begin -->"


def _how(stored: Stored) -> str:
    """Day, machine, and how it was measured."""
    runs = stored.runs
    cycles = _range(len(group) for group in grouped(runs).values())
    clocks = " and ".join(sorted({run.record.clock for run in runs}))
    speeds = [(run.measure(CALIBRATION) or 1.0) * 1000 for run in runs]
    text = (
        f"Measured on {stored.date} with kai-solver {stored.version} on {stored.machine}; {clocks} time, medians of "
        f"{cycles} cycles that know nothing of those before. The calibration took {min(speeds):.0f} to "
        f"{max(speeds):.0f} ms, median {median(speeds):.0f}."
    )
    return _filled(text)


def _range(counts: Iterable[int]) -> str:
    ordered = sorted(set(counts))
    return f"{ordered[0]}" if len(ordered) == 1 else f"{ordered[0]} to {ordered[-1]}"


def _bullets(bench_set: BenchSet, stored: Stored, found: Sequence[Verdict]) -> list[str]:
    """What is over, what is missing, whether budgets were kept, how it grows."""
    known = [verdict for verdict in found if verdict.value is not None]
    over = [_over(verdict) for verdict in known if verdict.is_over]
    missing = [f"{_name(verdict)} {verdict.figure}" for verdict in found if verdict.value is None]
    broken = [
        f"{record.instance} {record.solve_s:.2f} s of {promised_s(record.budget_s):.2f} s"
        for record in (run.record for run in late(stored.runs))
    ]
    ended = f"{len(stored.runs) - len(broken)} of {len(stored.runs)} cycles ended by 1.2 B + 0.2 s; too late"
    spreads = link_spreads(stored.runs)
    lines = [line for slope in bench_set.doc.slopes if (line := fitted(slope, stored.runs)) is not None]
    said_lines = [
        _listed(f"{len(known) - len(over)} of {len(known)} limits are kept; over them", over),
        *([_listed("Not measured", missing)] if missing else []),
        _listed(ended, broken),
        *map(_growth, lines),
        *([_listed("Quartiles of the pairs with and without links", spreads)] if spreads else []),
    ]
    return [_filled(f"- {text}", indent="  ") for text in said_lines]


def _listed(head: str, items: Sequence[str]) -> str:
    return f"**{head}:** {'; '.join(items)}." if items else f"**{head}:** none."


def _name(verdict: Verdict) -> str:
    return verdict.entry + (f" seed {verdict.draw}" if verdict.draw != 1 else "")


def _over(verdict: Verdict) -> str:
    value, limit = said(verdict.figure, verdict.value), said(verdict.figure, verdict.limit)
    return f"{_name(verdict)} {verdict.figure} {value} (limit {limit}, budget {verdict.budget_s:g} s)"


def link_spreads(runs: Sequence[Run]) -> list[str]:
    """By instance, how much the growth through links differs from pair to pair."""
    found = []
    for key, group in grouped(runs).items():
        spread = growths(group[0].pairs)
        if spread is not None:
            seed = f" seed {key.draw}" if key.draw != 1 else ""
            found.append(f"{key.instance}{seed} {spread[0]:+.1%} to {spread[2]:+.1%}")
    return found


def _growth(line: Line) -> str:
    seconds = ", ".join(f"{value:.3g}" for value in line.seconds)
    nodes = ", ".join(f"{value:,}" for value in line.nodes)
    return (
        f"**Growth:** {line.name}: {seconds} s at {nodes} nodes. The slope fitted to all is {line.slope:.2f}, that "
        f"from {line.nodes[-2]:,} to {line.nodes[-1]:,} nodes {line.last_slope:.2f}."
    )


def _filled(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
