"""What of an object is not kept: it is not worth its memory in a cluster (16,000 pods must fit), or may be secret."""

from collections.abc import Callable, Mapping
from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import CONFIG_MAPS, NODES, PERSISTENT_VOLUMES, PODS, STORAGE_CLASSES, Resource
from kai_solver.kubeobjects.kinddefaults import TYPES
from kai_solver.kubeobjects.owners import OWNER_KINDS
from kai_solver.kubeobjects.trim import LAST_APPLIED, drop, trim_containers, trim_node, trim_owner, trim_volume_source

_POD_STATUS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "podIPs", "hostIPs")


def trimmed(resource: Resource, value: Object) -> Object:
    """The same object, lighter; no other code may hold it. Malformed parts stay as they are, to be named later."""
    metadata = value.get("metadata")
    drop(metadata, ("managedFields",))
    if isinstance(metadata, dict):
        drop(metadata.get("annotations"), (LAST_APPLIED,))
    if (resource.group, resource.kind) in OWNER_KINDS:
        value.pop("status", None)  # how far a workload is says nothing of how its pods are grouped
        trim_owner(value)
    trim = _TRIMS.get(resource)
    if trim is not None:
        trim(value)
    return value


def _pod(value: Object) -> None:
    drop(value.get("status"), _POD_STATUS)
    trim_containers(value)


def _config_map(value: Object) -> None:
    """Only that it exists matters, but for default priorities of kinds, which KAI's Config may name."""
    data = value.get("data")
    kept = {TYPES: data[TYPES]} if isinstance(data, dict) and TYPES in data else None
    drop(value, ("data", "binaryData"))
    if kept is not None:
        value["data"] = kept


def _volume(value: Object) -> None:
    spec = value.get("spec")
    trim_volume_source(spec)
    drop(spec, ("mountOptions",))


def _storage_class(value: Object) -> None:
    drop(value, ("parameters", "mountOptions"))


_TRIMS: Mapping[Resource, Callable[[dict[str, Any]], None]] = {
    PODS: _pod,
    NODES: trim_node,
    CONFIG_MAPS: _config_map,
    PERSISTENT_VOLUMES: _volume,
    STORAGE_CLASSES: _storage_class,
}
