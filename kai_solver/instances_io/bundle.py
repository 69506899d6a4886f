"""Replayable bundles: everything about a cycle whose solver crashed, hung or answered nonsense, in one zip."""

import io
import os
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import orjson

from kai_solver.domain import Action, MovesSpec, SearchSpec, Snapshot, SolverModel, StageSpec, UsualPod
from kai_solver.errors import InputError
from kai_solver.instances_io.fields import Strict, validate
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.native import load_native
from kai_solver.instances_io.native_write import native_from_snapshot
from kai_solver.instances_io.reader import Document, parse
from kai_solver.instances_io.unpack import read_members

_INSTANCE, _CYCLE = "instance.json", "cycle.json"
_DATED = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A cycle to be replayed.

    Attributes
    ----------
    error
        What went wrong, in the words of the exception.
    versions
        Of kai-solver and the libraries that took part.
    """

    snapshot: Snapshot
    model: SolverModel
    budget_s: float
    seed: int
    error: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)


class _Stage(Strict):
    name: str
    share: float
    gap: float


class _Model(Strict):
    name: str
    summary: str
    ladder: tuple[Action, ...]
    admission: str
    families: tuple[str, ...]
    stages: tuple[_Stage, ...]
    search: dict[str, Any]
    budget_s: float
    hash: str
    usual: tuple[UsualPod, ...] = ()
    moves: MovesSpec = MovesSpec()


class _Cycle(Strict):
    model: _Model
    budget_s: float
    seed: int
    error: str
    versions: dict[str, str]


def write_bundle(bundle: Bundle, path: Path) -> None:
    """Write ``bundle`` as a zip, in one step; the same bundle gives the same bytes.

    Raises
    ------
    InputError
        The file cannot be written.
    """
    content = bundle_bytes(bundle)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError as error:
        problem = f"cannot be written: {error.strerror}"
        raise InputError(problem, file=str(path), cure="Make room, or name a writable place") from None


def bundle_bytes(bundle: Bundle) -> bytes:
    """The zip that `write_bundle` writes."""
    members = {_CYCLE: _cycle(bundle), _INSTANCE: native_from_snapshot(bundle.snapshot)}
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, document in members.items():
            archive.writestr(zipfile.ZipInfo(name, _DATED), orjson.dumps(document), zipfile.ZIP_DEFLATED)
    return content.getvalue()


def read_bundle(path: Path, limits: Limits = DEFAULT_LIMITS) -> Bundle:
    """Read what :func:`write_bundle` wrote.

    Raises
    ------
    InputError
        Not a bundle.
    """
    documents = [document for member in read_members(path, limits) for document in parse(member, limits)]
    return bundle_from_documents(documents, str(path))


def bundle_from_documents(documents: Iterable[Document], file: str) -> Bundle:
    """The bundle of the documents in one zip.

    Raises
    ------
    InputError
        Not a bundle.
    """
    by_name = {name.rpartition("!")[2]: document for name, document in documents}
    if not {_INSTANCE, _CYCLE} <= by_name.keys():
        raise InputError("is not a bundle", file=file, cure=f"A bundle holds {_INSTANCE} and {_CYCLE}")
    cycle = validate(_Cycle, by_name[_CYCLE], f"{file}!{_CYCLE}")
    snapshot = load_native(by_name[_INSTANCE], f"{file}!{_INSTANCE}").snapshot
    return Bundle(snapshot, _solver_model(cycle.model, file), cycle.budget_s, cycle.seed, cycle.error, cycle.versions)


def document_of_model(model: SolverModel) -> dict[str, Any]:
    """All that a model says, as JSON values; `model_of_document` reads it."""
    document = asdict(model)
    document["ladder"] = [action.value for action in document.pop("actions")]
    document["budgetS"] = document.pop("budget_s")
    return document


def model_of_document(document: Mapping[str, Any], file: str) -> SolverModel:
    """The model that `document_of_model` wrote down.

    Raises
    ------
    InputError
        It is none; names ``file`` and the field.
    """
    return _solver_model(validate(_Model, document, file), file)


def _cycle(bundle: Bundle) -> dict[str, Any]:
    return {
        "model": document_of_model(bundle.model),
        "budgetS": bundle.budget_s,
        "seed": bundle.seed,
        "error": bundle.error,
        "versions": dict(bundle.versions),
    }


def _solver_model(doc: _Model, file: str) -> SolverModel:
    try:
        search = SearchSpec(**doc.search)
    except TypeError as error:
        cure = "Replay it with the version that wrote it"
        raise InputError(str(error), file=file, field="model.search", cure=cure) from None
    return SolverModel(
        name=doc.name,
        summary=doc.summary,
        actions=doc.ladder,
        admission=doc.admission,
        families=doc.families,
        stages=tuple(StageSpec(stage.name, stage.share, stage.gap) for stage in doc.stages),
        search=search,
        budget_s=doc.budget_s,
        hash=doc.hash,
        usual=doc.usual,
        moves=doc.moves,
    )
