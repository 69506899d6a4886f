"""What is tuned, on what, and how: a search space in YAML, ``kai-tune/v1``."""

from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, model_validator

from kai_solver.domain import SolverModel
from kai_solver.errors import InputError
from kai_solver.instances_io import read_documents
from kai_solver.instances_io.bench_schema import Count, GeneratorDoc, RealDoc
from kai_solver.instances_io.fields import Seconds, Strict, validate
from kai_solver.lab.runs import Generated, InstanceFile, Limits, Source, content_hash, family_of
from kai_solver.lab.runs.scoring import Objective
from kai_solver.lab.tune.parameters import Value, check_value, present_value
from kai_solver.lab.tune.splitting import Instance, SplitDoc, Use, seconds_of
from kai_solver.modelfiles import complete_document, load_model

FORMAT: Literal["kai-tune/v1"] = "kai-tune/v1"


class ParameterDoc(Strict):
    """Values of one parameter: a range, or choices."""

    low: StrictInt | StrictFloat | None = None
    high: StrictInt | StrictFloat | None = None
    log: StrictBool = False
    """Steps are factors: for times, and for whatever spans decades."""
    choices: tuple[StrictBool | StrictInt | StrictFloat | StrictStr, ...] = ()

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if self.choices:
            if self.low is not None or self.high is not None or self.log:
                raise ValueError("give either `low` and `high`, or `choices`")
            if len(set(map(repr, self.choices))) < max(2, len(self.choices)):
                raise ValueError("`choices` needs two values or more, each once")
        elif self.low is None or self.high is None:
            raise ValueError("give `low` and `high`, or `choices`")
        elif not self.low < self.high:
            raise ValueError("`low` must be less than `high`")
        elif self.log and self.low <= 0:
            raise ValueError("with `log`, `low` must be above 0")
        return self


class InstanceDoc(Strict):
    """An instance: a ``file`` beside this one, or what a generator makes; or several, one for each draw."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    file: str = ""
    generate: GeneratorDoc | None = None
    real: RealDoc | None = None
    draws: tuple[Count, ...] = Field(default=(1,), min_length=1)
    family: str = ""
    """What it has in common with others, such as the trace that it is from; default: its folder or generator."""
    at: datetime | date | None = None
    """When it was, for a split by time."""
    use: Use | None = None

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if bool(self.file) == (self.generate is not None):
            raise ValueError("give either `file` or `generate`")
        if len(set(self.draws)) < len(self.draws):
            raise ValueError("a draw is given twice")
        return self


class RaceDoc(Strict):
    """When a trial is given up: it is worse than the best one, by a test of the instances that both have had."""

    p: float = Field(default=0.1, ge=0, lt=1)
    """Likelihood of chance below which it counts as worse; 0: no trial is given up."""
    least: int = Field(default=4, ge=2, le=1000)
    """Instances before that."""


class LimitsDoc(Strict):
    """Of each run."""

    memory_mib: float = Field(default=8192, gt=0)
    wall: Annotated[Seconds, Field(gt=0)] = 600.0


class SpaceDoc(Strict):
    """A search space."""

    format: Literal["kai-tune/v1"]
    name: str = Field(min_length=1, max_length=60, pattern=r"^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$")
    says: str = ""
    model: str = "default"
    """The present model: a shipped one, or a file beside this one."""
    budget: Annotated[Seconds, Field(gt=0)] | None = None
    """Default: the model's."""
    objective: Objective = "primal-integral"
    parameters: dict[str, ParameterDoc] = Field(min_length=1)
    instances: tuple[InstanceDoc, ...] = Field(min_length=1)
    split: SplitDoc = SplitDoc()
    seed: Count = 1
    """Of the search, and of the order of the race."""
    seeds: int = Field(default=1, ge=1, le=1000)
    """Of the solver, for each instance of a trial."""
    finalists: int = Field(default=3, ge=1, le=1000)
    final_seeds: int = Field(default=3, ge=1, le=1000)
    """Of the solver, for each instance of a finalist, and of the verdict."""
    reference: float = Field(default=3.0, ge=1, le=1000)
    """So many budgets the present model has to find the plans that trials are measured by."""
    race: RaceDoc = RaceDoc()
    limits: LimitsDoc = LimitsDoc()


@dataclass(frozen=True, slots=True)
class Space:
    """A search space that was read.

    Attributes
    ----------
    model, document
        The present model, and all that its file says, complete.
    present
        Values of the parameters in that.
    instances
        All of them, in the file's order.
    """

    doc: SpaceDoc
    path: Path
    model: SolverModel
    document: dict[str, Any]
    budget_s: float
    present: dict[str, Value]
    instances: tuple[Instance, ...]

    @property
    def limits(self) -> Limits:
        """Of each run."""
        return Limits(self.doc.limits.memory_mib, self.doc.limits.wall)

    def identity(self) -> dict[str, Any]:
        """What makes it another study, in JSON: all that it says, the model, what the instances hold."""
        said = self.doc.model_dump(mode="json", exclude={"says"})
        held = {one.name: one.source.content for one in self.instances if isinstance(one.source, InstanceFile)}
        return {"space": said, "model": self.model.hash, "content": held}


def read_space(path: Path) -> Space:
    """Read a search space.

    Raises
    ------
    InputError
        It is none, a parameter is unknown, a value is not allowed, the model does not load, or an instance is not
        there: names file, field and cure.
    """
    if not path.is_file():
        raise InputError("is not a file", file=str(path), cure="Give a search space: docs/tuning.md shows one")
    [(name, document), *more] = read_documents(path)
    if more or document.get("format") != FORMAT:
        raise InputError("is no search space", file=name, field="format", cure=f"Write format: {FORMAT}")
    doc = validate(SpaceDoc, document, name)
    beside = path.parent / doc.model
    chosen: str | Path = beside if beside.suffix == ".toml" else doc.model
    model = load_model(chosen)
    content = complete_document(chosen)
    try:
        present = {parameter: _present(content, model, parameter, doc) for parameter in doc.parameters}
        instances = _instances(doc, path.parent)
    except InputError as error:
        raise error.in_file(name) from None
    if not model.search.enabled:
        problem = f"the model {model.name!r} does not search"
        raise InputError(problem, file=name, field="model", cure="Name one with [search] enabled = true")
    return Space(doc, path, model, content, doc.budget or model.budget_s, present, instances)


def _present(content: dict[str, Any], model: SolverModel, path: str, doc: SpaceDoc) -> Value:
    """The present value of a parameter, which its range or choices have."""
    present = present_value(model, path)
    values, where = doc.parameters[path], f"parameters.{path}"
    for value in values.choices or (values.low, values.high):
        if value is not None:
            check_value(content, model, path, value)
    if values.choices:
        kinds = {type(value) for value in values.choices} | {type(present)}
        has_present = present in values.choices and (len(kinds) == 1 or kinds == {int, float})
    elif isinstance(present, bool | str) or values.low is None or values.high is None:
        raise InputError(f"is {present!r}, which no range has", field=where, cure="Give `choices`")
    else:
        has_present = values.low <= present <= values.high
    if not has_present:
        cure = "Make room for it: the search starts from the present model"
        raise InputError(f"the present value {present!r} is not among its values", field=where, cure=cure)
    return present


def _instances(doc: SpaceDoc, folder: Path) -> tuple[Instance, ...]:
    found: list[Instance] = []
    for number, said in enumerate(doc.instances):
        drawn = said.generate is not None or said.real is not None
        for draw in said.draws if drawn else said.draws[:1]:
            name = f"{said.name}-{draw}" if len(said.draws) > 1 and drawn else said.name
            source = _source(said, name, draw, folder, number)
            at_s = None if said.at is None else seconds_of(said.at)
            found.append(Instance(name, source, said.family or family_of(source), at_s, said.use))
    names = [one.name for one in found]
    twice = next((name for name in names if names.count(name) > 1), "")
    if twice:
        raise InputError(f"two have the name {twice!r}", field="instances", cure="Give each its own name")
    return tuple(found)


def _source(said: InstanceDoc, name: str, draw: int, folder: Path, number: int) -> Source:
    if said.generate is not None:
        return Generated(name, said.generate, said.real, draw)
    path = folder / said.file
    if not path.exists():
        cure = "Correct the path, which is relative to this file"
        raise InputError(f"{said.file} does not exist", field=f"instances[{number}].file", cure=cure)
    return InstanceFile(name, path.resolve(), content_hash(path), said.real, draw)
