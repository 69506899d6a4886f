"""What a pod holds that cannot be read as a whole: CPU, memory and GPUs of its node are in use all the same."""

from collections.abc import Callable, Iterator
from typing import Any

from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import namespaced_key
from kai_solver.kubeobjects.pods import RawPod
from kai_solver.kubeobjects.raw import Raw

UNREADABLE = "kai-solver/unreadable"
"""The scheduler name of such a pod: it counts as load and is never moved, evicted or bound."""

_ENDED = ("Succeeded", "Failed")
_SHARING = (names.GPU_FRACTION, names.GPU_MEMORY, names.GPU_FRACTION_DEVICES)
_CONTAINERS = ("containers", "initContainers")
_AMOUNTS = ("resources", "overhead")


def read_bare(value: object, read: Callable[[Raw], RawPod]) -> tuple[str, RawPod] | None:
    """Key and load of a pod that has a node and has not ended; None if there is none, or if even that cannot be read.

    With its labels and shares of GPUs if these can be read, else without. ``read``: reads a whole pod.
    """
    for bare in bare_forms(value):
        try:
            raw = Raw(bare)
            return namespaced_key(raw), read(raw)
        except Exception:  # noqa: S112 - the object is set aside already, with the first error
            continue
    return None


def bare_forms(value: object) -> Iterator[dict[str, Any]]:
    """Pods that hold what the pod ``value`` holds and state nothing else, the fuller one first."""
    metadata, spec, status = (part(value, name) for name in ("metadata", "spec", "status"))
    if not spec.get("nodeName") or status.get("phase") in _ENDED:
        return
    named = {name: metadata.get(name) for name in ("name", "namespace", "uid", "deletionTimestamp")}
    load: dict[str, Any] = {name: spec[name] for name in _AMOUNTS if name in spec}
    load |= {name: _requests(spec[name]) for name in _CONTAINERS if name in spec}
    load |= {"nodeName": spec["nodeName"], "schedulerName": UNREADABLE}
    annotations = metadata.get("annotations")
    stated = annotations if isinstance(annotations, dict) else {}
    shares = {name: stated[name] for name in _SHARING if name in stated}
    phase = {"phase": status.get("phase")}
    full = named | {"labels": metadata.get("labels"), "annotations": shares}
    yield {"metadata": full, "spec": load, "status": phase}
    yield {"metadata": named, "spec": load, "status": phase}


def part(value: object, name: str) -> dict[str, Any]:
    """The member ``name`` where it is an object, else an empty one."""
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, dict) else {}


def _requests(containers: object) -> object:
    """Containers with only their requests; the unreadable part may be in the rest."""
    if not isinstance(containers, list):
        return containers
    kept = ("name", "resources", "restartPolicy")
    return [{k: v for k, v in c.items() if k in kept} if isinstance(c, dict) else c for c in containers]
