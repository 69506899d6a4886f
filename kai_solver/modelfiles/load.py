"""Finding, reading and checking model files."""

import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

import kai_solver
from kai_solver.domain import Action, MovesSpec, SearchSpec, SolverModel, StageSpec, UsualPod
from kai_solver.errors import ModelFileError, nearest
from kai_solver.errors.values import problem_of
from kai_solver.modelfiles.schema import (
    LeftoverTable,
    ModelTable,
    MovesTable,
    ProvenanceTable,
    SearchTable,
    StageTable,
    UsualTable,
)
from kai_solver.modelfiles.usual import SNAPSHOT, read_usual

_HASH_DIGITS = 12
_LARGEST_BYTES = 1 << 20
_LONGEST_CHAIN = 8
_PACKAGE = Path(kai_solver.__file__).parent


def available_models() -> tuple[str, ...]:
    """Names of the models that ship with kai-solver, ``default`` first."""
    names = sorted(path.stem for path in _shipped().glob("*.toml"))
    return tuple(sorted(names, key=lambda name: name != "default"))


def load_model(name_or_path: str | Path = "default", others: Sequence[str] = ()) -> SolverModel:
    """Read a model: the name of a shipped one, or the path of a TOML file.

    A file may say ``extends = "default"`` and give only what differs; tables are merged key by key, lists replaced.
    ``others``: what may stand in place of a model there, for the message.

    Raises
    ------
    ModelFileError
        No such model, or a key or value that is not allowed: it names file, key and what is allowed.
    """
    path = _find(str(name_or_path), others)
    return model_from_document(_inherited(path, ()), str(path))


def complete_document(name_or_path: str | Path = "default") -> dict[str, Any]:
    """All that a model's file says, with what it extends and with its stages; `model_from_document` reads it.

    Raises
    ------
    ModelFileError
        There is no such model, or a file that it extends cannot be read.
    """
    document = _with_default_stages(_inherited(_find(str(name_or_path)), ()))
    document.pop("provenance", None)  # of what it was before
    return document


def model_from_document(document: Mapping[str, Any], file: str = "") -> SolverModel:
    """Model of a complete document (nothing left to extend); see :func:`load_model`.

    Raises
    ------
    ModelFileError
        A key is unknown, or a value is out of range; names ``file`` and the key.
    """
    try:
        table = ModelTable.model_validate(_with_default_stages(document))
    except ValidationError as invalid:
        raise _refusal(invalid, file) from None
    return SolverModel(
        name=table.name,
        summary=table.summary,
        actions=tuple(Action(action) for action in table.ladder),
        admission=table.admission,
        families=table.families,
        stages=tuple(StageSpec(stage.name, stage.share, stage.gap) for stage in table.stages),
        search=SearchSpec(**table.search.model_dump()),
        usual=tuple(_usual(row) for row in table.leftover.usual),
        moves=MovesSpec(**table.moves.model_dump()),
        budget_s=table.budget_s,
        hash=_hash(table),
    )


def _usual(row: UsualTable) -> UsualPod:
    models = tuple(model for model in row.gpu_spec.split("|") if model)
    milli = row.gpu_milli if row.num_gpu else 0
    return UsualPod(row.cpu_milli, row.memory_mib, row.num_gpu, milli, models, row.pods)


def _with_default_stages(document: Mapping[str, Any]) -> dict[str, Any]:
    shipped = [{"name": s.name, "share": s.share, "gap": s.gap} for s in SolverModel("").stages]
    return {"stages": shipped} | dict(document)


def _hash(table: ModelTable) -> str:
    """Of all that the model says after ``extends`` and defaults, in canonical JSON.

    Comments, order and provenance do not count.
    """
    said = table.model_dump(mode="json", exclude={"provenance"})
    if not said["search"]["parameters"]:
        del said["search"]["parameters"]  # models without keep the hash that older plans name
    content = json.dumps(said, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(content.encode()).hexdigest()[:_HASH_DIGITS]


def _shipped() -> Path:
    """Folder of the shipped models: inside the wheel, or beside the package in a checkout."""
    packed = _PACKAGE / "_data" / "models"
    return packed if packed.is_dir() else _PACKAGE.parent / "models"


def _find(name: str, others: Sequence[str] = ()) -> Path:
    if name in available_models():
        return _shipped() / f"{name}.toml"
    path = Path(name)
    if path.suffix == ".toml" or path.is_file():
        return path
    known = (*available_models(), *others)
    close = nearest(name, known)
    hint = f"Did you mean {close!r}? " if close else ""
    cure = f"{hint}Models: {', '.join(known)}; or give the path of a .toml file"
    raise ModelFileError(f"unknown model {name!r}", cure=cure)


def _inherited(path: Path, chain: tuple[Path, ...]) -> dict[str, Any]:
    """Content of ``path`` over what it extends."""
    resolved = path.resolve()
    if resolved in chain or len(chain) >= _LONGEST_CHAIN:
        raise ModelFileError("extends itself", file=str(path), field="extends", cure="End the chain at one model")
    document = _with_usual(_read(path), path)
    base = document.pop("extends", None)
    if base is None:
        return document
    if not isinstance(base, str):
        raise ModelFileError("is not a name", file=str(path), field="extends", cure="Give the name of one model")
    beside = path.parent / base
    parent = beside if beside.suffix == ".toml" else _find(base)
    return _merged(_inherited(parent, (*chain, resolved)), document)


def _with_usual(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """The document with the rows of the file that ``leftover.usual`` names, if it does: the hash is of these."""
    leftover = document.get("leftover")
    if not isinstance(leftover, dict) or not isinstance(leftover.get("usual"), str):
        return document
    rows = [] if leftover["usual"] == SNAPSHOT else read_usual(path.parent / leftover["usual"], str(path))
    return document | {"leftover": leftover | {"usual": rows}}


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(base)
    for key, value in over.items():
        known = both.get(key)
        both[key] = _merged(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return both


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            data = stream.read(_LARGEST_BYTES + 1)
        if len(data) > _LARGEST_BYTES:
            raise ModelFileError("is too large for a model", file=str(path), cure="Give a TOML file")
        return tomllib.loads(data.decode())
    except OSError as error:
        problem = f"cannot be read: {error.strerror}"
        raise ModelFileError(problem, file=str(path), cure=f"Models: {', '.join(available_models())}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ModelFileError(f"is not TOML: {error}", file=str(path), cure="Check the file near that place") from None


def _refusal(invalid: ValidationError, file: str) -> ModelFileError:
    """The first of pydantic's errors in our words: the key, and what is allowed."""
    errors = invalid.errors(include_url=False)
    first = errors[0]
    others = [".".join(map(str, error["loc"])) for error in errors[1:]]
    key = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).lstrip(".")
    key += f".{first['ctx']['name']}" if first["type"] == "cp_sat" else ""
    more = f" (and so for {', '.join(others[:3])})" if others else ""
    return ModelFileError(_problem(first) + more, file=file, field=key, cure=_cure(first))


def _problem(error: ErrorDetails) -> str:
    match error["type"]:
        case "extra_forbidden":
            return "is not a key of a model"
        case "missing":
            return "is missing"
        case "cp_sat":
            return error["msg"]
        case _:
            return problem_of(error)


def _cure(error: ErrorDetails) -> str:
    if error["type"] == "extra_forbidden":
        allowed = list(_table_at(error["loc"]).model_fields)
        near = nearest(str(error["loc"][-1]), allowed)
        return f"Did you mean {near}?" if near else f"Allowed here: {', '.join(allowed)}"
    context = error.get("ctx", {})
    return str(context.get("cure", "")) or "Correct the value"


def _table_at(location: tuple[int | str, ...]) -> type[BaseModel]:
    match location:
        case ("stages", *_):
            return StageTable
        case ("search", _):
            return SearchTable
        case ("leftover", "usual", *_):
            return UsualTable
        case ("leftover", *_):
            return LeftoverTable
        case ("moves", _):
            return MovesTable
        case ("provenance", _):
            return ProvenanceTable
        case _:
            return ModelTable
