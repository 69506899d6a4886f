"""The pods of a file as Kubernetes objects: a snapshot has no place for all that their conditions say."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kai_solver.instances_io.limits import DEFAULT_LIMITS, Limits
from kai_solver.instances_io.reader import read_documents


def pod_objects(path: Path, limits: Limits = DEFAULT_LIMITS) -> dict[str, dict[str, Any]]:
    """Pods by ``namespace/name`` of a KAI snapshot or of Kubernetes objects; none of other kinds of files.

    Raises
    ------
    InputError, LimitExceededError
        The file cannot be used.
    """
    found = {}
    for _, document in read_documents(path, limits, faults=[]):
        for pod in _pods(document):
            metadata = pod.get("metadata")
            if isinstance(metadata, dict):
                found[f"{metadata.get('namespace') or 'default'}/{metadata.get('name')}"] = pod
    return found


def _pods(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    members = document.get("rawObjects")
    items = members.get("pods") if isinstance(members, dict) else document.get("items")
    if document.get("kind") == "Pod":
        yield document
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict) and (members is not None or item.get("kind", "Pod") == "Pod"):
            yield item
