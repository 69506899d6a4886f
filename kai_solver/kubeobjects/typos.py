"""Names in manifests that are one slip away from those that are read: what they meant is not lost in silence."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final

from kai_solver.domain import Notice
from kai_solver.errors import nearest, shown
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import object_name
from kai_solver.kubeobjects.objects import RawObjects, kind_of
from kai_solver.kubeobjects.ownsettings import PREFIX
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.shards import settings_from_objects
from kai_solver.units import counted

_SHORTEST = 8
"""Characters of a known name: labels like ``user`` have neighbours that mean something else."""

KEYS: Final = frozenset(
    value
    for constant, value in vars(names).items()
    if constant.isupper()
    and isinstance(value, str)
    and len(value) >= _SHORTEST
    and not constant.endswith("_NAMESPACE")
    and not value.endswith("/")
    and not value.startswith(("~", PREFIX))  # keys of ours: `ownkeys`
)
"""Labels and annotations that are read."""

_AMOUNTS = ("quota", "limit", "overQuotaWeight")
_QUEUE: Mapping[str, tuple[str, ...]] = {
    "": ("displayName", "parentQueue", "priority", "preemptMinRuntime", "reclaimMinRuntime", "resources"),
    "resources": ("cpu", "gpu", "memory"),
    **dict.fromkeys(("resources.cpu", "resources.gpu", "resources.memory"), _AMOUNTS),
}
"""Fields of a Queue's spec, by the path of what they are in."""

_MOST = 100
"""Notices of one reading."""

_MOST_NAMES = 200
"""Unknown names in one place that are looked at."""


def typos(objects: RawObjects) -> tuple[Notice, ...]:
    """A warning for each name that is almost one that is read; of equal slips, the first object is named.

    For files: all of each object but pods is looked through.
    """
    settings = settings_from_objects(objects)
    resources = ("memory", "ephemeral-storage", *settings.policy.gpu_resources)
    found: dict[str, list[str]] = {}
    for kind, value in _objects(objects):
        for text in _typos(kind, value, resources, settings.scheduler_name):
            found.setdefault(text, []).append(object_name(kind, Raw(value)))
    notices = []
    for text, subjects in list(found.items())[:_MOST]:
        more = f" The same in {counted(len(subjects) - 1, 'other object')}" if len(subjects) > 1 else ""
        notices.append(Notice("warning", subjects[0], text + more))
    return tuple(notices)


def _objects(objects: RawObjects) -> Iterator[tuple[str, object]]:
    kinds = {"Pod": objects.pods, "Node": objects.nodes, "Queue": objects.queues, "PodGroup": objects.pod_groups}
    for kind, values in kinds.items():
        yield from ((kind, value) for value in values)
    yield from ((kind_of(value), value) for value in objects.other)


def _typos(kind: str, value: object, resources: Sequence[str], scheduler_name: str) -> Iterator[str]:
    for key, inner in _members(value, whole=kind not in ("Pod", "Node")):
        if key in ("labels", "annotations"):
            yield from _near(f"{key.removesuffix('s')} {{}} is not read", _keys(inner), KEYS)
        elif key in ("requests", "limits", "allocatable"):
            yield from _near(f"resource {{}} in {key} is not known", _keys(inner), resources)
        elif key == "schedulerName" and isinstance(inner, str):
            yield from _near("schedulerName {} is not that of this scheduler", [inner], [scheduler_name])
    if kind == "Queue" and isinstance(value, dict):
        yield from _queue_fields(value.get("spec"), "")


def _queue_fields(spec: object, path: str) -> Iterator[str]:
    known = _QUEUE.get(path, ())
    for key in _unknown(_keys(spec), known) if known else ():
        if like := nearest(key, known):
            yield f"spec.{_inner(path, key)} is no field of a Queue and is not read. Did you mean {like}?"
    if isinstance(spec, dict):
        for key in known:
            yield from _queue_fields(spec.get(key), _inner(path, key))


def _inner(path: str, key: str) -> str:
    return f"{path}.{key}".lstrip(".")


def _unknown(written: Iterable[str], known: Collection[str]) -> Iterator[str]:
    return islice((name for name in written if name not in known), _MOST_NAMES)


def _members(value: object, *, whole: bool) -> Iterator[tuple[str, object]]:
    """Keys and values of all that may have names in it; of an object that is not looked through ``whole``, by place."""
    pending = [value]
    while pending:
        here = pending.pop()
        if isinstance(here, list):
            pending += reversed(here)
        if not isinstance(here, dict):
            continue
        for key, inner in here.items():
            if isinstance(key, str):
                yield key, inner
            if whole or key in ("metadata", "spec", "status", "containers", "initContainers", "resources"):
                pending.append(inner)


def _keys(value: object) -> list[str]:
    return [key for key in value if isinstance(key, str)] if isinstance(value, dict) else []


def _near(text: str, written: Iterable[str], known: Collection[str]) -> Iterator[str]:
    for name in _unknown(written, known):
        if like := next((one for one in known if is_one_slip(name, one)), ""):
            yield f"{text.format(shown(name))}. Did you mean {like}?"


def is_one_slip(written: str, meant: str) -> bool:
    """Whether one character is missing, added or another, or two neighbours are swapped."""
    if abs(len(written) - len(meant)) > 1 or written == meant:
        return False
    start = 0
    while start < min(len(written), len(meant)) and written[start] == meant[start]:
        start += 1
    ours, theirs = written[start:], meant[start:]
    if ours[1:] == theirs[1:] or ours[1:] == theirs or ours == theirs[1:]:
        return True
    return ours[:2] == theirs[:2][::-1] and ours[2:] == theirs[2:]
