"""Annotations of ours by the kinds that heed them, so that one that is misspelt or misplaced is reported, not lost."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from kai_solver.errors import nearest
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices, object_name
from kai_solver.kubeobjects.objects import RawObjects, kind_of
from kai_solver.kubeobjects.ownsettings import ANNOTATIONS, PREFIX
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.stored import newer_text, newer_values
from kai_solver.links import ROW_ANNOTATION, TOPOLOGY_ANNOTATION
from kai_solver.topology import OWN_RANK
from kai_solver.units import counted

_MOST_OF_OBJECT, _MOST = 5, 100
"""Keys of one object, and warnings of one reading: to find the nearest name takes time, and there may be 10,000."""

_OWNER = "workload"
"""Any kind that may own pods, and has no rules of its own here."""

_WORK = ("Pod", "PodGroup", _OWNER)
_POD = ("Pod", "PodGroup")
"""Pod groupers copy what a pod says to its PodGroup, where it does no harm."""

HEEDED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(names.PLACEMENT, (*_WORK, "Queue")),
    **dict.fromkeys((names.OWN_WORKLOAD, names.OWN_MAY_USE_SPARES), _WORK),
    **dict.fromkeys((names.OWN_ONE_TENANT_AT, names.OWN_TENANT, names.OWN_SPARE_NODES), ("Topology",)),
    **dict.fromkeys(ANNOTATIONS, ("SchedulingShard", "Config")),
    ROW_ANNOTATION: _POD,
    names.OWN_RUN_TIME: _POD,
    **dict.fromkeys((TOPOLOGY_ANNOTATION, names.OWN_DRAIN_AT), ("Node",)),
    names.OWN_USAGE: ("Queue",),
}
"""What users write: where each key is heeded, the foremost place first."""

WRITTEN: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys((names.OWN_DEVICES, names.OWN_WISHED, names.OWN_BLOCKED), _POD),
    names.OWN_GPU_UUIDS: ("Node",),
    names.OWN_PROBLEM: ("ResourceClaim", "ResourceClaimTemplate"),
    **dict.fromkeys((names.OWN_SHARE, *names.SIGNATURES.values()), _POD),
    **dict.fromkeys((names.OWN_STORED_FORMAT, names.OWN_VERSION), ("Lease", "Secret")),
    **dict.fromkeys((names.OWN_SET_ASIDE, names.OWN_CREATED), ("PodGroup",)),
}
"""What programs write, and no user means by a misspelt key."""

_PLACES = {**HEEDED, **WRITTEN}
_KINDS = frozenset(kind for kinds in _PLACES.values() for kind in kinds)


def strays(annotations: Mapping[str, object], kind: str) -> tuple[str, ...]:
    """What is wrong with annotations of ours on an object of this kind, and the cure.

    Keys that say nothing there, of many the first few, and values that a newer version wrote.
    """
    found = [key for key in annotations if PREFIX in str(key)]
    if not found:
        return ()
    place = kind if kind in _KINDS else _OWNER
    misplaced = [key for key in found if str(key).startswith(PREFIX) and place not in _places(key)]
    newer = (newer_text(*named) for named in newer_values({key: annotations[key] for key in found}))
    rest = len(misplaced) - _MOST_OF_OBJECT
    more = (f"The same is true of {counted(rest, 'more annotation')}",) if rest > 0 else ()
    return (*(stray_text(key, kind) for key in misplaced[:_MOST_OF_OBJECT]), *more, *newer)


def _places(key: str) -> tuple[str, ...]:
    # Which rules there are is asked where their settings are read.
    return ("Queue",) if key.startswith(names.RULE_SETTING) else _PLACES.get(key, ())


def stray_text(key: str, kind: str) -> str:
    """What is wrong with a key that says nothing on an object of this kind, and the cure."""
    if key == OWN_RANK:
        return f"{key} is a label of pods, and says nothing as an annotation"
    if _places(key):
        place = _places(key)[0]
        where = "a Pod, or in the template of one" if place == "Pod" else f"a {place}"
        return f"{key} says nothing on a {kind}. Write it on {where}"
    close = nearest(key.removeprefix(PREFIX), [known.removeprefix(PREFIX) for known in HEEDED])
    cure = f"Did you mean {PREFIX + close!r}?" if close else "Correct or remove it"
    return f"{key} is not known, and says nothing. {cure}"


Remember = Callable[[object, Callable[[], tuple[str, ...]]], tuple[str, ...]]
"""What a function found for an object, from memory where it is the very same object."""


def warn_of_strays(
    objects: RawObjects, read: Iterable[tuple[str, str, tuple[str, ...]]], notices: Notices, remember: Remember
) -> None:
    """A warning for each of the `strays`, at the first object of its kind that has it; of very many, for the first.

    Parameters
    ----------
    read
        Kind, name and `strays` of pods, PodGroups and nodes, which are too many to be looked at in each reading.
    """
    first: dict[tuple[str, str], str] = {}
    several: set[tuple[str, str]] = set()
    for kind, name, texts in (*read, *_others(objects, remember)):
        for text in texts:
            if first.setdefault((kind, text), name) != name:
                several.add((kind, text))
    for (kind, text), name in list(first.items())[:_MOST]:
        more = ". Others of its kind have it, too" if (kind, text) in several else ""
        notices.warn(name, f"{text}{more}")


def _others(objects: RawObjects, remember: Remember) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Kind, name and strays of other objects."""
    known = (("Queue", objects.queues), ("Topology", objects.topologies))
    kinds = [(kind, value) for kind, values in known for value in values]
    for kind, value in (*kinds, *((kind_of(value), value) for value in objects.other)):
        metadata = value.get("metadata") if isinstance(value, dict) else None
        annotations = metadata.get("annotations") if isinstance(metadata, dict) else None
        if not isinstance(annotations, dict) or not any(PREFIX in str(key) for key in annotations):
            continue
        found = remember(value, partial(strays, annotations, kind))
        if found:
            yield kind, object_name(kind, Raw(value)), found
