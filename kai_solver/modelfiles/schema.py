"""A solver model's file: TOML with the fields of ``domain.SolverModel``, each checked by name and value."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from kai_solver.domain import ACTIONS, FAMILIES, OPTIONAL_STAGES, STAGES, Action, CpSatValue
from kai_solver.errors import InputError
from kai_solver.modelfiles.cpsat import checked_parameters
from kai_solver.modelfiles.extensions import known_families, known_stages, usual_families
from kai_solver.units import MILLI, parse_duration_s

NAME = r"^\w[\w .+-]*$"
"""Names of models: they stand in lines of text, and in names of files."""

ActionName = Literal["allocate", "consolidation", "reclaim", "preempt", "stalegangeviction"]


def seconds(value: object) -> object:
    """Seconds of a number, or of a duration such as ``"500ms"``."""
    if not isinstance(value, str):
        return value
    try:
        return parse_duration_s(value)
    except InputError as error:
        raise PydanticCustomError("duration", "{problem}", {"problem": error.problem, "cure": error.cure}) from None


BudgetSeconds = Annotated[float, BeforeValidator(seconds), Field(gt=0, le=86_400)]

LossSeconds = Annotated[float, BeforeValidator(seconds), Field(ge=0, le=31_536_000)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False, frozen=True, defer_build=True)


class StageTable(_Table):
    """``[[stages]]``."""

    name: str
    share: float = Field(default=0.25, gt=0, le=1)
    gap: float = Field(default=0.0, ge=0, lt=1)

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name in STAGES or name in OPTIONAL_STAGES:
            return name  # without a look at all installed packages
        return _one_of(name, known_stages(), "objective stage")


GONE: Mapping[str, str] = {
    "max_variables": "a question is asked where there is time for it, whatever its size",
    "neighbourhoods": "on large clusters chains search in their place, and find more",
}
"""Settings of ``[search]`` in earlier versions, and why they went."""


class SearchTable(_Table):
    """``[search]``."""

    enabled: bool = True
    workers: int = Field(default=2, ge=1, le=64)
    deterministic: bool = False
    question_s: BudgetSeconds = 0.5
    questions_share: float = Field(default=0.5, ge=0, le=1)
    presolve: Literal["auto", "light", "default", "none"] = "auto"
    memory_mib: int = Field(default=4096, ge=64, le=1_048_576)
    chains: int = Field(default=0, ge=0, le=1_000_000_000)
    parameters: dict[str, Any] = Field(default={}, max_length=100)

    @field_validator("parameters")
    @classmethod
    def _of_cp_sat(cls, parameters: dict[str, object]) -> dict[str, CpSatValue]:
        return checked_parameters(parameters) if parameters else {}

    @model_validator(mode="before")
    @classmethod
    def _not_gone(cls, table: object) -> object:
        for name in GONE.keys() & table.keys() if isinstance(table, dict) else ():
            text = f"the setting '{name}' is gone: {GONE[name]}"
            raise PydanticCustomError("gone", "{text}", {"text": text, "cure": f"Delete {name}"})
        return table


class MovesTable(_Table):
    """``[moves]``."""

    checkpoint_s: LossSeconds = 240.0
    restart_s: LossSeconds = 60.0
    per_gang: int = Field(default=-1, ge=-1, le=1_000_000_000)
    per_cycle: int = Field(default=-1, ge=-1, le=1_000_000_000)


class UsualTable(_Table):
    """``[[leftover.usual]]``, or a row of the file that ``leftover.usual`` names."""

    cpu_milli: int = Field(ge=1, le=10_000_000)
    memory_mib: int = Field(default=0, ge=0, le=1 << 30)
    num_gpu: int = Field(default=0, ge=0, le=64)
    gpu_milli: int = Field(default=MILLI, ge=0, le=MILLI)
    gpu_spec: str = ""
    pods: float = Field(default=1.0, gt=0, le=1e9)

    @model_validator(mode="after")
    def _sized(self) -> Self:
        if self.num_gpu and not self.gpu_milli:
            raise PydanticCustomError("size", "asks for GPUs and 0 of each", {"cure": "Give gpu_milli, 1 to 1000"})
        if self.num_gpu > 1 and self.gpu_milli < MILLI:
            cure = "Several GPUs are whole ones: gpu_milli = 1000"
            raise PydanticCustomError("size", "asks for parts of several GPUs", {"cure": cure})
        return self


class LeftoverTable(_Table):
    """``[leftover]``."""

    usual: tuple[UsualTable, ...] = Field(default=(), max_length=1000)


class ProvenanceTable(_Table):
    """``[provenance]``: where a model comes from that a study has found. Nothing is decided by it."""

    study: str = Field(default="", max_length=200)
    revision: str = Field(default="", max_length=200)
    date: str = Field(default="", max_length=40)
    verdict: str = Field(default="", max_length=2000)


class ModelTable(_Table):
    """The whole file, after ``extends``."""

    name: str = Field(min_length=1, max_length=63, pattern=NAME)
    summary: str = ""
    ladder: tuple[ActionName, ...] = tuple(action.value for action in ACTIONS)
    admission: Literal["rank", "max-gpus"] = "rank"
    families: tuple[str, ...] = Field(default_factory=usual_families)
    stages: tuple[StageTable, ...] = Field(min_length=0)
    search: SearchTable = SearchTable()
    leftover: LeftoverTable = LeftoverTable()
    moves: MovesTable = MovesTable()
    provenance: ProvenanceTable = ProvenanceTable()
    budget_s: BudgetSeconds = 2.0

    @field_validator("ladder")
    @classmethod
    def _in_order(cls, ladder: tuple[ActionName, ...]) -> tuple[ActionName, ...]:
        order = [action.value for action in Action]
        if list(ladder) != sorted(set(ladder), key=order.index) or not ladder:
            cure = f"Name each action once, in this order: {', '.join(order)}"
            raise PydanticCustomError("ladder", "the actions are empty, repeated or out of order", {"cure": cure})
        return ladder

    @field_validator("families")
    @classmethod
    def _known_families(cls, families: tuple[str, ...]) -> tuple[str, ...]:
        if not set(families) <= set(FAMILIES):
            known = known_families()
            for name in families:
                _one_of(name, known, "constraint family")
        return families


def _one_of(name: str, known: tuple[str, ...], kind: str) -> str:
    if name in known:
        return name
    cure = f"Known: {', '.join(known)}; others come with a package that has the entry point"
    raise PydanticCustomError("unknown_name", "unknown {kind} '{name}'", {"kind": kind, "name": name, "cure": cure})
