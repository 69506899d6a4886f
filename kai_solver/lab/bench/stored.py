"""Runs of ``bench`` in a folder, as those of every command are kept, and what got worse or better since."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Literal

from kai_solver.errors import InputError
from kai_solver.lab.bench.compare import Key, cpu_s, grouped, order, peak_mib, typical
from kai_solver.lab.bench.measure import CALIBRATION, COMMAND, PLACED, Run
from kai_solver.lab.runs import Outcome, read_runs, write_runs

NOISE = 1.3
"""A time that differs by less than this factor, after the machine's speed is taken out, says nothing."""
LEAST_S, LEAST_MIB = 0.01, 20.0
"""Nor do differences smaller than these."""
MEMORY_NOISE = 1.15
_CURE = "Name the folder that `bench --save` wrote"

Kind = Literal["time", "plan", "proofs", "memory", "promise"]


@dataclass(frozen=True, slots=True)
class Change:
    """Something that got worse (or better) since an earlier run."""

    key: Key
    kind: Kind
    is_worse: bool
    text: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Runs that ended well, those that failed, and the day, machine and version that they were measured with."""

    date: str
    machine: str
    version: str
    runs: tuple[Run, ...]
    failed: tuple[Run, ...] = ()


def stored_of(runs: Sequence[Run]) -> Stored:
    """Runs with what their rows say of day, machine and version."""
    first = runs[0].record if runs else None
    of = dict(part.rsplit(" ", 1) for part in first.versions.split(", ")) if first is not None else {}
    machine = "" if first is None else f"{first.cores} x {first.cpu}"
    said = [f"{said} {of[name]}" for name, said in (("Python", "Python"), ("ortools", "OR-tools")) if name in of]
    return Stored(
        "" if first is None else first.started_at[:10],
        ", ".join([machine, *said]),
        of.get("kai-solver", ""),
        tuple(run for run in runs if run.record.status == "ok"),
        tuple(run for run in runs if run.record.status != "ok"),
    )


def save(stored: Stored, folder: Path) -> bool:
    """Write the runs into ``folder`` in place of those of an earlier call; peers stay beside their instances.

    Returns
    -------
    bool
        Whether there are tables too: they need polars.

    Raises
    ------
    InputError
        The folder cannot be written, or has something else.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    check_folder(folder)
    return write_runs(folder, [run.outcome for run in (*stored.runs, *stored.failed)])


def check_folder(folder: Path) -> None:
    """See that runs can be put there: it is new, empty, or has runs of an earlier ``bench``.

    Raises
    ------
    InputError
        It has something else.
    """
    if folder.is_dir() and any(folder.iterdir()):
        kept = read_runs(folder, _CURE).records.values()
        if not kept or any(record.command != COMMAND for record in kept):
            raise InputError("has something else than runs of bench", file=str(folder), cure="Name a new folder")
    elif folder.exists() and not folder.is_dir():
        raise InputError("is no folder", file=str(folder), cure="Name a new folder")
    elif not folder.parent.is_dir():
        raise InputError("is in no folder that exists", file=str(folder), cure="Name a writable place")


def read(folder: Path) -> Stored:
    """Read what `save` wrote.

    Raises
    ------
    InputError
        It cannot be read, or is something else.
    """
    if not folder.is_dir():
        raise InputError("has no stored runs", file=str(folder), cure=_CURE)
    kept = read_runs(folder, f"{_CURE}, or delete that line")
    if not kept.records or any(record.command != COMMAND for record in kept.records.values()):
        raise InputError("has no stored runs", file=str(folder), cure=_CURE)
    return stored_of([Run(Outcome(record, kept.improvements[run])) for run, record in kept.records.items()])


def changes(runs: Sequence[Run], before: Sequence[Run]) -> tuple[Change, ...]:
    """What differs by more than noise, for all that both have measured; worse things first."""
    old = grouped(before)
    found = [change for key, new in grouped(runs).items() if key in old for change in _changes(key, new, old[key])]
    return tuple(sorted(found, key=lambda change: not change.is_worse))


def _changes(key: Key, new: list[Run], old: list[Run]) -> list[Change]:
    checked = (_time(new, old), _plan(new, old), _proofs(new, old), _memory(new, old))
    return [Change(key, kind, is_worse, text) for kind, is_worse, text in filter(None, checked)]


_Found = tuple[Kind, bool, str] | None


def _time(new: list[Run], old: list[Run]) -> _Found:
    """Decide times in units of each machine's calibration, said in seconds of the present one."""
    now_s, then_s = (median(run.record.solve_s for run in group) for group in (new, old))
    speed = _calibration_s(new) / _calibration_s(old)
    expected_s = then_s * speed
    ratio = now_s / max(expected_s, 1e-9)
    if new[0].record.clock != old[0].record.clock:
        return None
    if 1 / NOISE <= ratio <= NOISE or abs(now_s - expected_s) < LEAST_S:
        return None
    text = f"decide {now_s:.3f} s, was {then_s:.3f} s, which is {expected_s:.3f} s at today's speed ({ratio:.2f} x)"
    now_cpu_s, then_cpu_s = cpu_s(new), cpu_s(old)
    if now_cpu_s is not None and then_cpu_s is not None:
        text += f"; CPU time {now_cpu_s:.2f} s, was {then_cpu_s:.2f} s"
    return "time", ratio > 1, text


def _calibration_s(group: list[Run]) -> float:
    return median(run.measure(CALIBRATION) or 1.0 for run in group)


def _plan(new: list[Run], old: list[Run]) -> _Found:
    """The typical plans, by gangs placed and then the stages in order."""
    ours, theirs = (typical(group, by=_placed_then_time) for group in (new, old))
    found = order(ours, theirs)
    if found in ("same", ""):
        return None
    return "plan", found == "worse", f"{_outline(ours)}, was {_outline(theirs)}"


def _proofs(new: list[Run], old: list[Run]) -> _Found:
    """Pending gangs and stages without proof."""
    ours, theirs = (median(_open(run) for run in group) for group in (new, old))
    if ours == theirs:
        return None
    return "proofs", ours > theirs, f"{ours:g} gangs and stages not proven, were {theirs:g}"


def _open(run: Run) -> int:
    record = run.record
    return record.pending - record.pending_proven + sum(not stage.is_proven for stage in record.stages[1:])


def _memory(new: list[Run], old: list[Run]) -> _Found:
    ours, theirs = peak_mib(new), peak_mib(old)
    if ours is None or theirs is None:
        return None
    if (ours <= theirs * MEMORY_NOISE and theirs <= ours * MEMORY_NOISE) or abs(ours - theirs) < LEAST_MIB:
        return None
    return "memory", ours > theirs, f"{ours:.0f} MiB, were {theirs:.0f} MiB"


def _placed_then_time(run: Run) -> tuple[float, float]:
    return run.measure(PLACED) or 0, run.record.solve_s


def _outline(run: Run) -> str:
    stages = ", ".join(f"{stage.name} {stage.value:g}" for stage in run.record.stages[1:] if stage.value)
    return f"{run.measure(PLACED) or 0:g} gangs placed ({stages or 'nothing disturbed'})"
