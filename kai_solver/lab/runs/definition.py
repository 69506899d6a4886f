"""What a study asks: which sources, models, seeds and budget, as ``study.yaml`` says it, and the runs that follow."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from kai_solver.domain import SolverModel
from kai_solver.errors import InputError
from kai_solver.instances_io import read_documents
from kai_solver.instances_io.bench_schema import GeneratorDoc, RealDoc
from kai_solver.instances_io.bundle import document_of_model, model_of_document
from kai_solver.instances_io.fields import Strict, validate
from kai_solver.lab.runs.task import (
    ClockKind,
    Generated,
    InstanceFile,
    Limits,
    ScenarioFile,
    Source,
    Task,
    family_of,
    task_of,
)

STUDY_FORMAT: Literal["kai-study/v1"] = "kai-study/v1"


@dataclass(frozen=True, slots=True)
class Definition:
    """What a study asks: every model on every source with every seed.

    Attributes
    ----------
    models
        None among them: ``kube-default``, for scenarios alone. No model at all: runs are added by other means.
    families
        By the name of a source, where the family is not that of `family_of`.
    budget_s
        None: each model's own.
    """

    command: str
    sources: tuple[Source, ...]
    models: tuple[SolverModel | None, ...] = ()
    seeds: tuple[int, ...] = (1,)
    budget_s: float | None = None
    clock: ClockKind = "wall"
    limits: Limits = field(default_factory=Limits)
    families: dict[str, str] = field(default_factory=dict)


def tasks_of(definition: Definition) -> Iterator[Task]:
    """All runs, each once, those of one source together, so that it is read once for many of them."""
    seen: set[str] = set()
    for task in _all_tasks(definition):
        if task.run not in seen:
            seen.add(task.run)
            yield task


def _all_tasks(definition: Definition) -> Iterator[Task]:
    for source in definition.sources:
        for seed in definition.seeds:
            for model in definition.models:
                if model is None and not isinstance(source, ScenarioFile):
                    continue
                yield task_of(
                    definition.command,
                    source,
                    model,
                    seed,
                    definition.budget_s,
                    family=definition.families.get(source.name, ""),
                    clock=definition.clock,
                    limits=definition.limits,
                )


class _Source(Strict):
    name: str
    family: str
    instance: str = ""
    scenario: str = ""
    content: str = ""
    generate: GeneratorDoc | None = None
    real: RealDoc | None = None
    draw: int = 1


class _Limits(Strict):
    memory_mib: float
    wall_s: float


class _Study(Strict):
    format: Literal["kai-study/v1"]
    command: str
    sources: tuple[_Source, ...]
    models: tuple[dict[str, Any] | Literal["kube-default"], ...]
    seeds: tuple[int, ...]
    budget_s: float | None
    clock: ClockKind
    limits: _Limits


def definition_text(definition: Definition) -> str:
    """``study.yaml``."""
    study = _Study(
        format=STUDY_FORMAT,
        command=definition.command,
        sources=tuple(_said(source, definition.families) for source in definition.sources),
        models=tuple("kube-default" if model is None else document_of_model(model) for model in definition.models),
        seeds=definition.seeds,
        budget_s=definition.budget_s,
        clock=definition.clock,
        limits=_Limits(memory_mib=definition.limits.memory_mib, wall_s=definition.limits.wall_s),
    )
    return yaml.safe_dump(study.model_dump(mode="json", by_alias=True), sort_keys=False, width=120)


def _said(source: Source, families: dict[str, str]) -> _Source:
    family = families.get(source.name, "") or family_of(source)
    if isinstance(source, ScenarioFile):
        return _Source(name=source.name, family=family, scenario=str(source.path), content=source.content)
    if isinstance(source, InstanceFile):
        return _Source(
            name=source.name,
            family=family,
            instance=str(source.path),
            content=source.content,
            real=source.real,
            draw=source.draw,
        )
    return _Source(name=source.name, family=family, generate=source.generator, real=source.real, draw=source.draw)


def read_definition(path: Path) -> Definition:
    """Read ``study.yaml``.

    Raises
    ------
    InputError
        It is none; names the field and the cure.
    """
    cure = "Name the folder of a study: kai-solver compare INSTANCE... --study FOLDER makes one"
    if not path.is_file():
        raise InputError("is no study", file=str(path.parent), cure=cure)
    [(name, document), *_] = read_documents(path)
    found = document.get("format")
    if isinstance(found, str) and found != STUDY_FORMAT and found.startswith(STUDY_FORMAT.partition("/")[0]):
        cure = "Go on with it in the kai-solver that made it, or name a new folder"
        raise InputError(f"is {found!r}: this kai-solver reads {STUDY_FORMAT}", file=name, field="format", cure=cure)
    if found != STUDY_FORMAT:
        raise InputError("is no study", file=name, field="format", cure=cure)
    study = validate(_Study, document, name)
    return Definition(
        command=study.command,
        sources=tuple(_source(one) for one in study.sources),
        models=tuple(None if isinstance(one, str) else model_of_document(one, name) for one in study.models),
        seeds=study.seeds,
        budget_s=study.budget_s,
        clock=study.clock,
        limits=Limits(study.limits.memory_mib, study.limits.wall_s),
        families={one.name: one.family for one in study.sources},
    )


def _source(said: _Source) -> Source:
    if said.generate is not None:
        return Generated(said.name, said.generate, said.real, said.draw)
    if said.scenario:
        return ScenarioFile(said.name, Path(said.scenario), said.content)
    return InstanceFile(said.name, Path(said.instance), said.content, said.real, said.draw)
