"""What of an object is not worth its memory: taken off before it is kept.

A pod as the API server sends it is 10 to 20 KB of Python objects, half of them records of which client wrote which
field and the states of its containers; 16,000 of them must fit.
"""

from collections.abc import Callable, Mapping
from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import CONFIG_MAPS, NODES, PODS, Resource
from kai_solver.kubeobjects.owners import OWNER_KINDS

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_POD_STATUS = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses", "podIPs", "hostIPs")
_NODE_STATUS = ("images", "nodeInfo", "addresses", "volumesInUse", "volumesAttached", "daemonEndpoints")
_CONTAINER = ("command", "args", "image", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def trimmed(resource: Resource, value: Object) -> Object:
    """The same object, lighter; no other code may hold it. Malformed parts stay as they are, to be named later."""
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        metadata.pop("managedFields", None)
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict):
            annotations.pop(_LAST_APPLIED, None)
    if (resource.group, resource.kind) in OWNER_KINDS:
        value.pop("status", None)  # how far a workload is says nothing of how its pods are grouped
    trim = _TRIMS.get(resource)
    if trim is not None:
        trim(value)
    return value


def _pod(value: Object) -> None:
    _drop(value.get("status"), _POD_STATUS)
    spec = value.get("spec")
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind) if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            _drop(container, _CONTAINER)
            if isinstance(container, dict) and isinstance(container.get("env"), list):
                container["env"] = [entry for entry in container["env"] if _is_reference(entry)]


def _is_reference(entry: object) -> bool:
    """Whether a variable comes from another object, without which the pod cannot start; literals may be secrets."""
    return not isinstance(entry, dict) or bool(entry.get("valueFrom"))


def _node(value: Object) -> None:
    _drop(value.get("status"), _NODE_STATUS)


def _config_map(value: Object) -> None:
    """Only that it exists matters, but for the ones that settings may name, which are read on their own."""
    _drop(value, ("data", "binaryData"))


def _drop(part: object, names: tuple[str, ...]) -> None:
    if isinstance(part, dict):
        for name in names:
            part.pop(name, None)


_TRIMS: Mapping[Resource, Callable[[dict[str, Any]], None]] = {PODS: _pod, NODES: _node, CONFIG_MAPS: _config_map}
