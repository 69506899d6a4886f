"""One way in: any file or directory that describes a cluster, read into a snapshot."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from kai_solver.domain import Notice
from kai_solver.errors import InputError
from kai_solver.errors.collector import without_collection
from kai_solver.instances_io.importers import BUILT_IN, KUBERNETES, Importer, Loaded, Source, importers
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.reader import Document, as_kubernetes, parse, read_documents
from kai_solver.instances_io.unpack import Member


def load_instance(path: str | Path, *, limits: Limits | None = None, now_s: float | None = None) -> Loaded:
    """Read an instance of whatever kind.

    Native format, behaviour case, openb recipe, KAI snapshot (zip or JSON), or Kubernetes objects (a file, a zip, or a
    directory of YAML and JSON), plain, gzip or zstd; and what installed packages add. A file of a directory that
    cannot be read is set aside with a notice, and the others are read.

    Parameters
    ----------
    limits
        Bytes, objects, depth; :data:`DEFAULT_LIMITS` where None.
    now_s
        Epoch seconds of the moment, in place of the one that the file states or implies.

    Raises
    ------
    InputError, LimitExceededError
        It cannot be used; names file, field and cure.
    """
    source = Source(Path(path), limits or DEFAULT_LIMITS, now_s)
    with without_collection():
        documents, faults = documents_of(source)
        loaded = importer_of(documents[0][1], documents[0][0]).load(documents, source)
        del documents
    return with_faults(loaded, faults)


def documents_of(source: Source) -> tuple[list[Document], list[InputError]]:
    """The documents of an instance, and what is wrong with files of a folder that are left out.

    Raises
    ------
    InputError, LimitExceededError
        It cannot be read, or is no instance.
    """
    if source.path.suffix == ".toml":
        cure = "Give the instance first: kai-solver solve INSTANCE --model FILE"
        raise InputError("is a solver model and not an instance", file=str(source.path), cure=cure)
    faults: list[InputError] = []
    documents = read_documents(source.path, source.limits, faults=faults)
    if source.path.is_dir():
        documents = _without_other_files(documents, faults)
    return documents, faults


def instance_of(
    document: Mapping[str, Any], file: str = "", *, limits: Limits = DEFAULT_LIMITS, now_s: float | None = None
) -> Loaded:
    """An instance of one document of plain JSON types, of whatever kind; files that it names are relative to here.

    Raises
    ------
    InputError, LimitExceededError
        It cannot be used; names field and cure.
    """
    try:
        [(_, plain)] = parse(Member(file, orjson.dumps(dict(document), option=orjson.OPT_SERIALIZE_NUMPY)), limits)
    except TypeError as error:
        cure = "Give texts, numbers, lists and dicts alone, as JSON has them"
        raise InputError(f"is not a document: {error}", file=file, cure=cure) from None
    path = Path(file)
    return importer_of(plain, file).load([(file, plain)], Source(path, limits, now_s))


def with_faults(loaded: Loaded, faults: list[InputError]) -> Loaded:
    """The instance with a notice for every file that had to be left out."""
    if not faults:
        return loaded
    notices = tuple(Notice("set-aside", f"File {fault.file}", _without_file(fault)) for fault in faults)
    return replace(loaded, snapshot=replace(loaded.snapshot, notices=(*notices, *loaded.snapshot.notices)))


def _without_file(fault: InputError) -> str:
    return str(InputError(fault.problem, field=fault.field, cure=fault.cure))


_OTHER_FILES = {
    "kai-plan": ("is a plan", "Give the instance first: kai-solver validate INSTANCE --plan PLAN"),
    "kai-bench": ("is a benchmark set", "Measure it: kai-solver bench FILE"),
    "kai-history": (
        "says how to read a history",
        "Give it with the history: convert INSTANCE OUT --history FILE --mapping FILE",
    ),
    "kai-scenario": ("is a scenario", "Replay it: kai-solver simulate FILE"),
    "kai-tune": ("is a search space", "Tune a model by it: kai-solver tune FILE"),
    "kai-study": ("is a study", "Go on with it: kai-solver compare --study FOLDER"),
}
"""Files of ours that are no instances, by the name of their format: what they are, and what takes them."""


def _without_other_files(documents: list[Document], faults: list[InputError]) -> list[Document]:
    """The documents of a folder that can be of an instance; a plan beside a cluster's objects is a fault."""
    kept = []
    for file, document in documents:
        said = _other_file(document)
        if said is None:
            kept.append((file, document))
        else:
            faults.append(InputError(f"{said[0]} and not an instance", file=file, cure="Keep it in another folder"))
    if not kept:
        refuse_other_files(documents[-1][1], documents[-1][0], "an instance")
    if importer_of(kept[0][1], kept[0][0]).name != KUBERNETES:
        return kept
    objects = [document for document in kept if not _is_instance(document[1])]
    for file, _ in (document for document in kept if _is_instance(document[1])):
        faults.append(InputError("is an instance and no Kubernetes object", file=file, cure=as_kubernetes(file)))
    return objects


def _is_instance(document: Mapping[str, Any]) -> bool:
    """Whether a document is a whole instance, and so none of several Kubernetes objects."""
    return any(importer.name != KUBERNETES and importer.recognises(document) for importer in BUILT_IN)


def refuse_other_files(document: Mapping[str, Any], file: str, wanted: str) -> None:
    """Refuse an instance, and what is another file of ours than the ``wanted``.

    Raises
    ------
    InputError
        Names what it is and the command that takes it.
    """
    said = _other_file(document)
    if said is None and any(importer.recognises(document) for importer in BUILT_IN):
        said = "is an instance", "Solve it: kai-solver solve FILE"
    if said is not None and said[0] != f"is {wanted}":
        raise InputError(f"{said[0]} and not {wanted}", file=file, cure=said[1])


def _other_file(document: Mapping[str, Any]) -> tuple[str, str] | None:
    return _OTHER_FILES.get(str(document.get("format", "")).partition("/")[0])


def importer_of(document: Mapping[str, Any], file: str) -> Importer:
    """The importer of an instance of which this is the first document.

    Raises
    ------
    InputError
        There is none; says what takes such a file, or which kinds are known.
    """
    known = importers()
    for importer in known:
        if importer.recognises(document):
            return importer
    said = _other_file(document)
    if said is not None:
        raise InputError(f"{said[0]} and not an instance", file=file, cure=said[1])
    keys = ", ".join(sorted(map(str, document))[:8]) or "no keys"
    names = ", ".join(importer.name for importer in known)
    cure = f"Known kinds: {names}. A native instance starts with 'format: kai-solver/v1'"
    raise InputError(f"is of no known kind: its first document has {keys}", file=file, cure=cure)
