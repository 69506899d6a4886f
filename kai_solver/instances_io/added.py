"""An instance, and the same with the objects of manifests added: what if these were applied?"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kai_solver.errors import InputError
from kai_solver.errors.collector import without_collection
from kai_solver.instances_io.importers import KUBERNETES, Loaded, Source, the_only
from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.load import documents_of, importer_of, with_faults
from kai_solver.instances_io.reader import Document, read_documents
from kai_solver.instances_io.validate import sanitize

if TYPE_CHECKING:
    from kai_solver.kubeobjects import KubeSettings, RawObjects


def load_with(path: Path, manifests: Sequence[Path], *, limits: Limits | None = None) -> tuple[Loaded, Loaded]:
    """The instance at ``path`` as it is, and with the objects of ``manifests``, at the same moment.

    Parameters
    ----------
    path
        Of whatever kind. What is not of Kubernetes objects is read as such, with the names that ``convert`` gives.
    manifests
        Files and folders of Kubernetes objects, as ``kubectl apply`` takes them. One that exists is replaced.

    Raises
    ------
    InputError, LimitExceededError
        One of them cannot be used; names file, field and cure.
    """
    source = Source(path, limits or DEFAULT_LIMITS)
    with without_collection():
        documents, faults = documents_of(source)
        objects, settings, now_s, kind = _cluster(documents, source)
        del documents
        from kai_solver.kubeobjects import objects_from_documents, snapshot_from_objects, with_objects

        added = objects_from_documents([one for file in manifests for one in _manifest(file, source.limits)])
        found = []
        for each in (objects, with_objects(objects, added)):
            snapshot = sanitize(snapshot_from_objects(each, now_s=now_s, settings=settings))
            found.append(with_faults(Loaded(snapshot, kind), faults))
    before, after = found
    return before, after


def _cluster(documents: list[Document], source: Source) -> "tuple[RawObjects, KubeSettings | None, float, str]":
    """The objects of an instance, the settings that it brings, its moment, and its kind."""
    from kai_solver.kubeobjects import KubeSettings, load_kai_snapshot, objects_from_documents, objects_from_snapshot
    from kai_solver.kubeobjects.kaisnapshot import newest_time_s

    importer = importer_of(documents[0][1], documents[0][0])
    if importer.name == "kai-snapshot":
        file, document = the_only(documents)
        try:
            return *load_kai_snapshot(document), importer.name
        except InputError as error:
            raise error.in_file(file) from None
    if importer.name == KUBERNETES:
        objects = objects_from_documents(documents)
        return objects, None, newest_time_s(objects), importer.name
    snapshot = importer.load(documents, source).snapshot
    settings = KubeSettings(policy=snapshot.policy)
    return objects_from_snapshot(snapshot, settings), settings, snapshot.now_s, importer.name


def _manifest(path: Path, limits: Limits) -> list[Document]:
    """The documents of a file or folder of Kubernetes objects."""
    documents = read_documents(path, limits)
    for file, document in documents:
        if not isinstance(document.get("kind"), str) or not isinstance(document.get("apiVersion"), str):
            cure = "Give what kubectl apply takes: objects with apiVersion and kind"
            raise InputError("is no Kubernetes manifest", file=file, cure=cure)
    return documents
