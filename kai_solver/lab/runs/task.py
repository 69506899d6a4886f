"""What is to be run, and what came of it."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from kai_solver.domain import SolverModel
from kai_solver.instances_io.bench_schema import GeneratorDoc, RealDoc
from kai_solver.lab.runs.record import Improvement, RunRecord

ClockKind = Literal["wall", "cpu"]
BUNDLE, STUDY, MODEL, PLACE = "BUNDLE", "STUDY", "MODEL", "PLACE"
_HASH_DIGITS = 10


@dataclass(frozen=True, slots=True)
class InstanceFile:
    """An instance in a file, or a folder of files, which every machine that runs it can read.

    ``content``: hash of what it holds, so that a study knows a file that was changed; see `content_hash`.
    ``real``, ``draw``: what is added to it, and the seed that this is drawn with.
    """

    name: str
    path: Path
    content: str = ""
    real: RealDoc | None = None
    draw: int = 1


@dataclass(frozen=True, slots=True)
class Generated:
    """A cluster that a generator draws with the seed ``draw``; ``real``: what is added to it."""

    name: str
    generator: GeneratorDoc
    real: RealDoc | None = None
    draw: int = 1


@dataclass(frozen=True, slots=True)
class ScenarioFile:
    """A workload that is replayed in simulated time. ``content``: as of `InstanceFile`."""

    name: str
    path: Path
    content: str = ""


Source = InstanceFile | Generated | ScenarioFile


@dataclass(frozen=True, slots=True)
class Limits:
    """Of one run: memory of its processes together, and seconds by the wall clock, reading the instance included.

    A run beyond them is ended, with the status ``out_of_memory`` or ``out_of_time``.
    """

    memory_mib: float = 8192.0
    wall_s: float = 3600.0


@dataclass(frozen=True, slots=True)
class Task:
    """One run that is to be done; can be pickled, and sent to another machine.

    Attributes
    ----------
    run
        Its key in the study; `task_of` makes it.
    command
        Which command asks: compare, tune, bench, simulate, experiment.
    family
        The group that splits and reports go by: a trace, a generator.
    model
        None: the source is a scenario, and ``kube-default`` decides.
    seed, budget_s, clock
        Of the solver; seconds of that clock.
    is_shared
        Whether other runs use the machine at the same time.
    """

    run: str
    command: str
    source: Source
    family: str
    model: SolverModel | None
    seed: int
    budget_s: float
    clock: ClockKind = "wall"
    limits: Limits = field(default_factory=Limits)
    is_shared: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a task, however it ended.

    Attributes
    ----------
    bundle
        Of a run that failed: the zip that replays it (``kai-solver solve FILE``); None: it was never read, or all is
        well.
    replay
        Of a run that failed: the command that does it again. In it `BUNDLE` stands for the path of the bundle, `MODEL`
        for that of ``model``, `PLACE` for a folder of results beside them, and `STUDY` for the folder that keeps all.
    model
        The text of the model's file, where the command names `MODEL`: the file that it came from may change.
    tables
        Of a scenario: the tables of its simulation by the name of the file.
    """

    record: RunRecord
    improvements: tuple[Improvement, ...] = ()
    bundle: bytes | None = None
    replay: str = ""
    model: str = ""
    tables: Mapping[str, bytes] = field(default_factory=dict)


KUBE_DEFAULT = "kube-default"
"""Name of the decider of a task without a model."""


def task_of(
    command: str,
    source: Source,
    model: SolverModel | None,
    seed: int,
    budget_s: float | None = None,
    *,
    family: str = "",
    clock: ClockKind = "wall",
    limits: Limits | None = None,
    is_shared: bool = False,
) -> Task:
    """The task with its key, which is the same for the same source, model, seed, budget and clock.

    ``budget_s``: None is the model's. ``family``: empty is that of the source, see `family_of`.
    """
    seconds = budget_s if budget_s is not None else 0.0 if model is None else model.budget_s
    said = KUBE_DEFAULT if model is None else repr(replace(model, name="", summary="", hash=""))
    digest = hashlib.sha256(repr((_identity(source), said, seed, seconds, clock)).encode()).hexdigest()[:_HASH_DIGITS]
    name = KUBE_DEFAULT if model is None else model.name
    key = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{source.name}.{name}.{seed}.{digest}")
    return Task(
        key,
        command,
        source,
        family or family_of(source),
        model,
        seed,
        seconds,
        clock,
        limits or Limits(),
        is_shared,
    )


def _identity(source: Source) -> str:
    """What makes it another source; the place of a file does not."""
    if isinstance(source, Generated):
        return repr((source.name, source.generator, source.real, source.draw))
    added = (source.real, source.draw) if isinstance(source, InstanceFile) else ()
    return repr((type(source).__name__, source.name, source.content or str(source.path), added))


def family_of(source: Source) -> str:
    """The folder of a file, which holds those of one trace, or the kind of a generator."""
    return source.generator.kind if isinstance(source, Generated) else source.path.resolve().parent.name


def content_hash(path: Path) -> str:
    """Of a file, or of all files of a folder: names and bytes."""
    found = hashlib.sha256()
    for file in sorted(path.iterdir()) if path.is_dir() else [path]:
        if file.is_file():
            found.update(file.name.encode())
            found.update(file.read_bytes())
    return found.hexdigest()[:_HASH_DIGITS]
