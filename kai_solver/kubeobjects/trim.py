"""What of an object is not worth its memory: taken off before it is kept.

A pod as the API server sends it is 10 to 20 KB of Python objects, half of them records of which client wrote which
field and the states of its containers.
"""

from typing import Any

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NODE_STATUS = ("images", "nodeInfo", "addresses", "volumesInUse", "volumesAttached", "daemonEndpoints")
_CONTAINER = ("command", "args", "image", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")


def lighter(value: dict[str, Any]) -> dict[str, Any]:
    """The same object of a file, with less; no other code may hold it. Malformed parts stay, to be named later.

    Times stay everywhere: the newest says when the file was written.
    """
    metadata = value.get("metadata")
    if isinstance(metadata, dict):
        if isinstance(managed := metadata.get("managedFields"), list):
            entries = (entry for entry in managed if isinstance(entry, dict) and "time" in entry)
            metadata["managedFields"] = [{"time": entry["time"]} for entry in entries]
        drop(metadata.get("annotations"), (LAST_APPLIED,))
        trim_containers(value)
        trim_node(value)
    return value


def trim_containers(value: dict[str, Any]) -> None:
    """Take off what containers run, and variables with a value of their own."""
    spec = value.get("spec")
    for kind in ("containers", "initContainers"):
        containers = spec.get(kind) if isinstance(spec, dict) else None
        for container in containers if isinstance(containers, list) else ():
            drop(container, _CONTAINER)
            if isinstance(container, dict) and isinstance(container.get("env"), list):
                container["env"] = [entry for entry in container["env"] if _is_reference(entry)]


def _is_reference(entry: object) -> bool:
    """Whether a variable comes from another object, without which the pod cannot start; literals may be secrets."""
    return not isinstance(entry, dict) or bool(entry.get("valueFrom"))


def trim_node(value: dict[str, Any]) -> None:
    """Take off what a node has downloaded and what it is called."""
    drop(value.get("status"), _NODE_STATUS)


def drop(part: object, names: tuple[str, ...]) -> None:
    """Take ``names`` off ``part``, if it is an object."""
    if isinstance(part, dict):
        for name in names:
            part.pop(name, None)
