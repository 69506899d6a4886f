"""Placement in annotations of queues, PodGroups, pods and their owners: pack or spread, and how many on one node."""

from collections.abc import Iterable, Mapping
from typing import cast

from kai_solver.domain import NO_PLACEMENT, Placement, Strategy
from kai_solver.errors import shown
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices

_STRATEGIES = ("binpack", "spread")
_MOST = 1_000_000


def read_placement(annotations: Mapping[str, str], name: str, notices: Notices) -> Placement:
    """What the annotations of object ``name`` say; an invalid value is reported and not used."""
    if not any(key in annotations for key in names.PLACEMENT):
        return NO_PLACEMENT
    return Placement(
        nodes=_strategy(annotations, names.OWN_NODES, name, notices),
        devices=_strategy(annotations, names.OWN_GPUS, name, notices),
        max_gpus_per_node=_count(annotations, names.OWN_MAX_GPUS_PER_NODE, name, notices),
        max_pods_per_node=_count(annotations, names.OWN_MAX_PODS_PER_NODE, name, notices),
        min_nodes=_count(annotations, names.OWN_MIN_NODES, name, notices),
    )


def write_placement(placement: Placement) -> dict[str, str]:
    """The annotations from which `read_placement` reads the same again."""
    values = {
        names.OWN_NODES: placement.nodes,
        names.OWN_GPUS: placement.devices,
        names.OWN_MAX_GPUS_PER_NODE: placement.max_gpus_per_node,
        names.OWN_MAX_PODS_PER_NODE: placement.max_pods_per_node,
        names.OWN_MIN_NODES: placement.min_nodes,
    }
    return {key: str(value) for key, value in values.items() if value is not None}


def agreed(placements: Iterable[Placement], name: str, notices: Notices) -> Placement:
    """The placement of the first pod that states any; others that state another are reported."""
    stated = list(dict.fromkeys(p for p in placements if p != NO_PLACEMENT))
    if len(stated) > 1:
        notices.warn(name, "its pods state different placements; those of the first pod count")
    return stated[0] if stated else NO_PLACEMENT


def _strategy(annotations: Mapping[str, str], key: str, name: str, notices: Notices) -> Strategy | None:
    value = annotations.get(key)
    if value is None or value in _STRATEGIES:
        return cast("Strategy | None", value)
    notices.warn(name, f"{key} {shown(value)} is not honoured. Write {' or '.join(_STRATEGIES)}")
    return None


def _count(annotations: Mapping[str, str], key: str, name: str, notices: Notices) -> int | None:
    value = annotations.get(key)
    if value is None:
        return None
    if value.isascii() and value.isdecimal() and len(value) <= len(str(_MOST)) and 1 <= int(value) <= _MOST:
        return int(value)
    notices.warn(name, f"{key} {shown(value)} is not honoured. Write a whole number from 1 to {_MOST}")
    return None
