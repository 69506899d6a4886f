"""Importers: which kind of file it is, and how it becomes a snapshot.

Those that ship are in a table; a package adds one with an entry point of group ``kai_solver.importers`` that names an
object (or a class without parameters) with the attributes of :class:`Importer`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from kai_solver.domain import Snapshot
from kai_solver.errors import InputError, KaiSolverError
from kai_solver.errors.extensions import entry_points
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.reader import Document, as_kubernetes

if TYPE_CHECKING:
    from kai_solver.instances_io.cases import CaseFile
    from kai_solver.instances_io.native_schema import ExpectDoc

IMPORTER_GROUP = "kai_solver.importers"
KUBERNETES = "kubernetes"


@dataclass(frozen=True, slots=True)
class Source:
    """Where documents come from, and how they are to be read.

    Attributes
    ----------
    path
        File or directory that was asked for; files that a document names are relative to it.
    now_s
        Moment in place of the document's own; None: the document's.
    """

    path: Path
    limits: Limits = DEFAULT_LIMITS
    now_s: float | None = None


@dataclass(frozen=True, slots=True)
class Loaded:
    """An instance: its snapshot, the name of its importer, and what only some kinds have."""

    snapshot: Snapshot
    kind: str
    case: "CaseFile | None" = None
    expect: "ExpectDoc | None" = None
    description: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Whatever an importer of another package wants to pass on."""


class Importer(Protocol):
    """What reads one kind of instance."""

    @property
    def name(self) -> str:
        """Name of the kind, shown to users."""

    def recognises(self, document: Mapping[str, Any]) -> bool:
        """Whether the first document is of this kind; cheap, and never raises."""

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        """Read all documents of one file or directory.

        Raises
        ------
        InputError
            They cannot be used.
        """


class _Native:
    name = "native"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return str(document.get("format", "")).startswith("kai-solver/")

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        from kai_solver.instances_io.native import load_native

        file, document = the_only(documents)
        native = load_native(document, file, now_s=source.now_s, limits=source.limits)
        return Loaded(native.snapshot, self.name, expect=native.expect, description=native.description)


class _Case:
    name = "case"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return str(document.get("schema", "")).startswith("kai-case/")

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        from kai_solver.instances_io.cases import load_case

        del source  # a case has a moment of its own, and names no other file
        file, document = the_only(documents)
        case = load_case(document, file)
        return Loaded(case.snapshot, self.name, case=case, description=case.description)


class _Bundle:
    name = "bundle"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return {"model", "budgetS", "seed", "error"} <= document.keys()

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        from kai_solver.instances_io.bundle import bundle_from_documents

        bundle = bundle_from_documents(documents, str(source.path))
        return Loaded(bundle.snapshot, self.name, description=bundle.error, extra={"bundle": bundle})


class _OpenbRecipe:
    name = "openb"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return document.get("kind") == "openb-recipe"

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        from kai_solver.instances_io.openb import load_recipe

        file, document = the_only(documents)
        snapshot = load_recipe(document, file, Path(file).parent, source.limits)
        return Loaded(snapshot, self.name, description=str(document.get("description", "")))


class _KaiSnapshot:
    name = "kai-snapshot"

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return "rawObjects" in document

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        from kai_solver.instances_io.validate import sanitize
        from kai_solver.kubeobjects import load_kai_snapshot, snapshot_from_objects

        file, document = the_only(documents)
        try:
            objects, settings, taken_s = load_kai_snapshot(document)
            now_s = taken_s if source.now_s is None else source.now_s
            snapshot = snapshot_from_objects(objects, now_s=now_s, settings=settings)
        except InputError as error:
            raise error.in_file(file) from None
        return Loaded(sanitize(snapshot), self.name)


class _Kubernetes:
    name = KUBERNETES

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return isinstance(document.get("kind"), str) and isinstance(document.get("apiVersion"), str)

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        from kai_solver.instances_io.validate import sanitize
        from kai_solver.kubeobjects import objects_from_documents, snapshot_from_objects
        from kai_solver.kubeobjects.kaisnapshot import newest_time_s
        from kai_solver.kubeobjects.typos import typos

        try:
            objects = objects_from_documents(documents)
            objects = replace(objects, notices=(*objects.notices, *typos(objects)))
            now_s = newest_time_s(objects) if source.now_s is None else source.now_s
            snapshot = snapshot_from_objects(objects, now_s=now_s)
        except InputError as error:
            raise error.in_file(str(source.path)) from None
        return Loaded(sanitize(snapshot), self.name)


BUILT_IN: tuple[Importer, ...] = (_Bundle(), _OpenbRecipe(), _Native(), _Case(), _KaiSnapshot(), _Kubernetes())


def importers() -> tuple[Importer, ...]:
    """Importers in the order in which they are asked: those that ship, then those of installed packages."""
    return (*BUILT_IN, *(_installed(point) for point in entry_points(group=IMPORTER_GROUP)))


def _installed(point: EntryPoint) -> Importer:
    try:
        found = point.load()
        return _Guarded(point.name, found() if isinstance(found, type) else found)
    except Exception as error:
        problem = f"the importer {point.name!r} cannot be loaded: {type(error).__name__}: {error}"
        raise InputError(problem, cure="Mend or remove the package that brings it") from error


@dataclass(frozen=True, slots=True)
class _Guarded:
    """An importer of another package: whatever it raises becomes an error that names it."""

    name: str
    inner: Importer

    def recognises(self, document: Mapping[str, Any]) -> bool:
        return self.inner.recognises(document)

    def load(self, documents: Sequence[Document], source: Source) -> Loaded:
        try:
            return self.inner.load(documents, source)
        except KaiSolverError:
            raise
        except Exception as error:
            problem = f"the importer {self.name!r} failed: {type(error).__name__}: {error}"
            raise InputError(problem, file=str(source.path), cure="Ask the makers of that package") from error


def the_only(documents: Sequence[Document]) -> Document:
    """The document of a kind that has one per file.

    Raises
    ------
    InputError
        There are several.
    """
    first, *others = documents
    if any(_Kubernetes().recognises(document) for _, document in others):
        problem = "is an instance of its own, and lies beside Kubernetes objects"
        raise InputError(problem, file=first[0], cure=f"{as_kubernetes(first[0])}. Keep it in another folder")
    if len({file for file, _ in documents}) > 1:
        problem = f"is one of {len(documents):,} documents where one instance is expected"
        cure = "Name one file. Or compare models on all of them: kai-solver compare FOLDER --study OUT"
        raise InputError(problem, file=first[0], cure=cure)
    if others:
        problem = f"holds {len(documents)} documents where one instance is expected"
        raise InputError(problem, file=first[0], cure="Give one instance per file")
    return first
