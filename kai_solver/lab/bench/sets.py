"""Benchmark sets: what they ask to be measured, and what became of their limits."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kai_solver.errors import InputError, nearest
from kai_solver.instances_io import read_documents
from kai_solver.instances_io.bench_schema import BENCH_FORMAT, BenchDoc, CheckDoc, EntryDoc, Figure, SlopeDoc
from kai_solver.instances_io.fields import validate
from kai_solver.lab.bench.compare import Key, grouped
from kai_solver.lab.bench.figures import figure_of
from kai_solver.lab.bench.measure import Job, Run
from kai_solver.lab.bench.slope import fitted
from kai_solver.lab.runs import Generated, InstanceFile, content_hash
from kai_solver.search.budget import promised_s

STEADY_CYCLES = 3
NO_CHECK = (("default", 2.0),)


@dataclass(frozen=True, slots=True)
class BenchSet:
    """A set, and the file that says so; the files that it names are beside that."""

    doc: BenchDoc
    path: Path

    def entry(self, name: str, option: str) -> EntryDoc:
        """The entry of the name that ``option`` gives.

        Raises
        ------
        InputError
            There is none.
        """
        found = next((entry for entry in self.doc.entries if entry.name == name), None)
        if found is None:
            names = [entry.name for entry in self.doc.entries]
            near = nearest(name, names)
            cure = f"Did you mean {near}?" if near else f"It has {', '.join(names)}"
            raise InputError(f"the set has no entry {name!r}", field=option, cure=cure)
        return found


def read_set(path: Path) -> BenchSet:
    """Read a set.

    Raises
    ------
    InputError
        It is none; names file, field and cure.
    """
    if not path.is_file():
        raise InputError("is not a file", file=str(path), cure="Give a benchmark set: docs/benchmarks.md shows one")
    [(name, document), *more] = read_documents(path)
    if more or document.get("format") != BENCH_FORMAT:
        raise InputError("is no benchmark set", file=name, field="format", cure=f"Write format: {BENCH_FORMAT}")
    return BenchSet(validate(BenchDoc, document, name), path)


def is_set(path: Path) -> bool:
    """True for a file that says it is a benchmark set."""
    if not path.is_file() or path.suffix not in (".yaml", ".yml", ".json"):
        return False
    with path.open("rb") as file:
        return BENCH_FORMAT.encode() in file.read(4096)


def jobs_of(bench_set: BenchSet, models: Sequence[str] = (), floor: str | None = None) -> list[Job]:
    """What is to be measured for the checks and slopes of a set.

    With ``models``: those, with the budgets of the checks. With ``floor``: that model too, with the same budgets.
    """
    return [
        Job(
            source_of(bench_set, entry, draw),
            model,
            tuple(range(1, 1 + bench_set.doc.cycles)) if (model, budget_s) not in once else (1,),
            budget_s,
            warm_up=(model, budget_s) not in once,
            as_snapshot=entry.as_snapshot,
            steady=STEADY_CYCLES if (model, budget_s) in _asking(entry, "steady") else 0,
            product=entry.product if (model, budget_s) in _asking(entry, "link-growth") else "",
        )
        for entry in bench_set.doc.entries
        for once in [_only_for_growth(bench_set.doc, entry)]
        for model, budget_s in _asked(bench_set.doc, entry, models, floor)
        for draw in entry.seeds
    ]


def source_of(bench_set: BenchSet, entry: EntryDoc, draw: int) -> Generated | InstanceFile:
    """What an entry is about, drawn with that seed.

    Raises
    ------
    InputError
        Its file does not exist.
    """
    if entry.generate is not None:
        return Generated(entry.name, entry.generate, entry.real, draw)
    file = Path(os.path.normpath(bench_set.path.parent / entry.file))
    if not file.exists():
        problem = f"names {entry.file}, which does not exist"
        cure = "Correct the name; it is read beside the set"
        raise InputError(problem, file=str(bench_set.path), field=entry.name, cure=cure)
    return InstanceFile(entry.name, file, content_hash(file), entry.real, draw)


def _only_for_growth(doc: BenchDoc, entry: EntryDoc) -> set[tuple[str, float]]:
    """(model, budget) pairs that only a slope asks for: one cycle tells enough, and it may be a long one."""
    checked = {(check.model, check.budget) for check in entry.checks}
    return {(slope.model, slope.budget) for slope in doc.slopes if entry.name in slope.entries} - checked


def _asking(entry: EntryDoc, figure: Figure) -> set[tuple[str, float]]:
    """(model, budget) of the checks of that figure."""
    return {(check.model, check.budget) for check in entry.checks if check.figure == figure}


def _asked(doc: BenchDoc, entry: EntryDoc, models: Sequence[str], floor: str | None) -> list[tuple[str, float]]:
    """(model, budget) pairs, each once."""
    asked = [(check.model, check.budget) for check in entry.checks] or list(NO_CHECK)
    if models:
        asked = [(model, budget_s) for model in models for _, budget_s in asked]
    asked += [(floor, budget_s) for _, budget_s in asked] if floor else []
    if models:
        return list(dict.fromkeys(asked))
    asked += [(slope.model, slope.budget) for slope in doc.slopes if entry.name in slope.entries]
    return list(dict.fromkeys(asked))


@dataclass(frozen=True, slots=True)
class Verdict:
    """A limit and what was measured; ``value`` None where it was not."""

    entry: str
    figure: str
    model: str
    budget_s: float
    draw: int
    limit: float
    value: float | None
    before: float | None
    says: str = ""

    @property
    def is_over(self) -> bool:
        """True where the limit is not kept."""
        return self.value is not None and self.value > self.limit


def verdicts(bench_set: BenchSet, runs: Sequence[Run]) -> tuple[Verdict, ...]:
    """Every check of the set against the runs that it is about, then the slopes."""
    groups = grouped(runs)
    found = [
        _verdict(entry, check, draw, groups.get(Key(entry.name, check.model, check.budget, draw), ()))
        for entry in bench_set.doc.entries
        for check in entry.checks
        for draw in entry.seeds
    ]
    return (*found, *(_slope_verdict(slope, runs) for slope in bench_set.doc.slopes))


def _verdict(entry: EntryDoc, check: CheckDoc, draw: int, runs: Sequence[Run]) -> Verdict:
    value = figure_of(check.figure, runs)
    return Verdict(
        entry.name, check.figure, check.model, check.budget, draw, check.limit, value, check.measured, check.says
    )


def _slope_verdict(slope: SlopeDoc, runs: Sequence[Run]) -> Verdict:
    line = fitted(slope, runs)
    value = None if line is None else line.slope
    return Verdict(slope.name, "slope", slope.model, slope.budget, 1, slope.limit, value, slope.measured)


def late(runs: Sequence[Run]) -> tuple[Run, ...]:
    """Runs that broke the promise of their budget."""
    return tuple(run for run in runs if run.record.solve_s > promised_s(run.record.budget_s))
