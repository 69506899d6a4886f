"""Runs stored in a file, and what got worse or better since."""

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any, Literal, NamedTuple

import orjson

from kai_solver import __version__
from kai_solver.domain import Stage
from kai_solver.errors import InputError
from kai_solver.lab.bench.compare import order
from kai_solver.lab.bench.measure import Run
from kai_solver.lab.bench.moments import Moment

RUN_FORMAT = "kai-bench-run/v1"

NOISE = 1.3
"""A time that differs by less than this factor, after the machine's speed is taken out, says nothing."""
LEAST_S, LEAST_MIB = 0.01, 20.0
"""Nor do differences smaller than these."""
MEMORY_NOISE = 1.15
_CPU_INFO = Path("/proc/cpuinfo")
_CURE = "A stored run is the file that `bench --save` writes"

Kind = Literal["time", "plan", "proofs", "memory", "promise"]


class Key(NamedTuple):
    """Which runs are about the same."""

    instance: str
    model: str
    budget_s: float
    draw: int


@dataclass(frozen=True, slots=True)
class Change:
    """Something that got worse (or better) since an earlier run."""

    key: Key
    kind: Kind
    is_worse: bool
    text: str


@dataclass(frozen=True, slots=True)
class Stored:
    """Runs, and the day and machine that they were measured on."""

    date: str
    machine: str
    version: str
    runs: tuple[Run, ...]


def grouped(runs: Sequence[Run]) -> dict[Key, list[Run]]:
    """Runs by what they are about, in order."""
    groups: dict[Key, list[Run]] = {}
    for run in runs:
        groups.setdefault(Key(run.instance, run.model, run.budget_s, run.draw), []).append(run)
    return groups


def of_today(runs: Sequence[Run]) -> Stored:
    """Runs that were measured just now, on this machine."""
    return Stored(f"{datetime.now(UTC):%Y-%m-%d}", _machine(), __version__, tuple(runs))


def _machine() -> str:
    """Cores that this process may use, what they are, and the versions that times depend on."""
    model = platform.processor() or platform.machine()
    if _CPU_INFO.is_file():
        lines = (line.partition(":") for line in _CPU_INFO.read_text().splitlines())
        model = next((value.strip() for name, _, value in lines if name.strip() == "model name"), model)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{cores} x {model}, Python {platform.python_version()}, OR-tools {version('ortools')}"


def save(stored: Stored, path: Path) -> None:
    """Write it; peers are left out, for they stand beside their instances.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    document = {
        "format": RUN_FORMAT,
        "date": stored.date,
        "machine": stored.machine,
        "version": stored.version,
        "runs": [{k: v for k, v in asdict(run).items() if k != "peers"} for run in stored.runs],
    }
    try:
        path.write_bytes(_one_run_a_line(document))
    except OSError as error:
        raise InputError(
            f"cannot be written: {error.strerror}", file=str(path), cure="Name a writable place"
        ) from error


def _one_run_a_line(document: dict[str, Any]) -> bytes:
    """So that two stored runs can be told apart line by line."""
    runs = b",\n".join(orjson.dumps(run) for run in document.pop("runs"))
    return orjson.dumps(document).removesuffix(b"}") + b',"runs":[\n' + runs + b"\n]}\n"


def read(path: Path) -> Stored:
    """Read what `save` wrote.

    Raises
    ------
    InputError
        It cannot be read, or is something else.
    """
    try:
        document = orjson.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"is not a stored run: {error.strerror}", file=str(path), cure=_CURE) from error
    except orjson.JSONDecodeError as error:
        raise InputError(f"is not a stored run: not valid JSON, {error}", file=str(path), cure=_CURE) from error
    try:
        if document["format"] != RUN_FORMAT:
            raise InputError("is not a stored run", file=str(path), field="format", cure=_CURE)
        runs = tuple(_run(entry) for entry in document["runs"])
        return Stored(str(document["date"]), str(document["machine"]), str(document["version"]), runs)
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"is not a stored run: {error!r}", file=str(path), cure=_CURE) from error


def _run(entry: Mapping[str, Any]) -> Run:
    stages = tuple(Stage(**stage) for stage in entry["stages"])
    moments = {name: Moment(**moment) for name, moment in entry["moments"].items()}
    pairs = tuple((plain, linked) for plain, linked in entry.get("link_pairs", ()))
    known = {
        "stages": stages,
        "moments": moments,
        "worse_than": (),
        "notes": tuple(entry["notes"]),
        "link_pairs": pairs,
    }
    return Run(**(dict(entry) | known))


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
    now_s, then_s = (median(run.decide_s for run in group) for group in (new, old))
    speed = median(run.calibration_s for run in new) / median(run.calibration_s for run in old)
    expected_s = then_s * speed
    ratio = now_s / max(expected_s, 1e-9)
    if new[0].clock != old[0].clock:
        return None
    if 1 / NOISE <= ratio <= NOISE or abs(now_s - expected_s) < LEAST_S:
        return None
    text = f"decide {now_s:.3f} s, was {then_s:.3f} s, which is {expected_s:.3f} s at today's speed ({ratio:.2f} x)"
    now_cpu_s, then_cpu_s = (median(run.cpu_s for run in group) for group in (new, old))
    return "time", ratio > 1, f"{text}; CPU time {now_cpu_s:.2f} s, was {then_cpu_s:.2f} s"


def _plan(new: list[Run], old: list[Run]) -> _Found:
    """The typical plans, by gangs placed and then the stages in order."""
    ours, theirs = _typical(new), _typical(old)
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
    return run.pending - run.proven + sum(not stage.optimal for stage in run.stages[1:])


def _memory(new: list[Run], old: list[Run]) -> _Found:
    ours, theirs = (max(run.memory_mib for run in group) for group in (new, old))
    if (ours <= theirs * MEMORY_NOISE and theirs <= ours * MEMORY_NOISE) or abs(ours - theirs) < LEAST_MIB:
        return None
    return "memory", ours > theirs, f"{ours:.0f} MiB, were {theirs:.0f} MiB"


def _typical(group: list[Run]) -> Run:
    return sorted(group, key=lambda run: (run.placed, run.decide_s))[(len(group) - 1) // 2]


def _outline(run: Run) -> str:
    stages = ", ".join(f"{stage.name} {stage.value:g}" for stage in run.stages[1:] if stage.value)
    return f"{run.placed} gangs placed ({stages or 'nothing disturbed'})"
