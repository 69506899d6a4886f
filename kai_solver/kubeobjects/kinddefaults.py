"""Priority and preemptibility that a kind of workload has where none is stated (docs/kai-behaviour.md#priority)."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from kai_solver.errors import InputError
from kai_solver.kubeobjects.notices import Notices, namespaced_key
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.raw import Raw, parse_json

TYPES = "types"
"""Key of the ConfigMap whose value is a JSON list."""

_ARGS = "spec.podGrouper.args"


@dataclass(frozen=True, slots=True)
class KindDefault:
    """Defaults of one kind; an empty ``group`` is any."""

    kind: str
    group: str = ""
    priority_class: str = ""
    preemptibility: str = ""


def default_of(kind: str, group: str, defaults: Iterable[KindDefault]) -> KindDefault:
    """Defaults of a kind: those for its very group before those for any; empty ones where there are none."""
    found = [default for default in defaults if default.kind == kind and default.group in (group, "")]
    return max(found, key=lambda default: default.group == group, default=KindDefault(kind, group))


def kind_defaults(config: Raw, config_maps: tuple[Object, ...], notices: Notices) -> tuple[KindDefault, ...]:
    """Defaults in the ConfigMap that a Config names for its pod grouper; none where it names none.

    A ConfigMap that is not there, or is broken, changes nothing and is noted: KAI takes its own defaults then.
    """
    key = default_priorities(config)
    if not key:
        return ()
    try:
        found = next((raw for raw in map(Raw, config_maps) if _key(raw) == key), None)
        if found is None:
            notices.warn(f"ConfigMap {key}", "is named for default priorities and does not exist. Export it too")
            return ()
        return tuple(_defaults(found))
    except Exception as error:
        notices.set_aside(f"ConfigMap {key}", error)
        return ()


def default_priorities(config: Raw) -> str:
    """``namespace/name`` of the ConfigMap that a Config names for default priorities; empty where it names none.

    Raises
    ------
    InputError
        A value has the wrong type.
    """
    args = config.get(_ARGS)
    name = args.text("defaultPrioritiesConfigMapName")
    return f"{args.text('defaultPrioritiesConfigMapNamespace') or 'default'}/{name}" if name else ""


def _key(raw: Raw) -> str:
    try:
        return namespaced_key(raw)
    except InputError:
        return ""  # said where ConfigMaps are read


def _defaults(config_map: Raw) -> Iterator[KindDefault]:
    text = config_map.get("data").key(TYPES).text()
    listed = parse_json(text or "[]", f"data.{TYPES}", 'Write [{"typeName": ..., "priorityName": ...}]')
    for entry in listed.items():
        yield KindDefault(
            entry.required("typeName"), entry.text("group"), entry.text("priorityName"), entry.text("preemptibility")
        )
