"""What of an object is not worth its memory: taken off before it is kept.

A pod as the API server sends it is 10 to 20 KB of Python objects, half of them records of which client wrote which
field and the states of its containers.
"""

from typing import Any

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
_NODE_STATUS = ("images", "nodeInfo", "addresses", "volumesInUse", "volumesAttached", "daemonEndpoints")
_CONTAINER = ("command", "args", "image", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_RUN = (
    *_CONTAINER,
    *("entrypoint", "runtimeEnvYAML"),
    *("arguments", "script"),
    "params",
    *("userData", "userDataBase64", "networkData"),
)
"""What a workload runs: fields of containers, and of Ray, Argo, Tekton and KubeVirt."""

_SELECTING = frozenset({"labels", "annotations", "matchLabels", "nodeSelector", "selector"})
"""Maps with keys of users, which may have the names of such fields."""

_VOLUME_SOURCES = (("csi", "volumeAttributes"), ("flexVolume", "options"))


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
    """Take off what containers run, variables with a value of their own, and what drivers of volumes are told."""
    spec = value.get("spec")
    if not isinstance(spec, dict):
        return
    for kind in ("containers", "initContainers", "ephemeralContainers"):
        containers = spec.get(kind)
        for container in containers if isinstance(containers, list) else ():
            drop(container, _CONTAINER)
            _trim_variables(container)
    volumes = spec.get("volumes")
    for volume in volumes if isinstance(volumes, list) else ():
        trim_volume_source(volume)


def trim_owner(value: dict[str, Any]) -> None:
    """The same for a workload: its pods' templates may be anywhere in it."""
    here: list[object] = [part for key, part in value.items() if key != "metadata"]
    while here:
        part = here.pop()
        if isinstance(part, list):
            here += part
        elif isinstance(part, dict):
            _trim_variables(part)
            trim_volume_source(part)
            drop(part, _RUN)
            if not isinstance(part.get("env"), list):
                part.pop("env", None)
            here += (inner for key, inner in part.items() if key not in _SELECTING)


def trim_volume_source(part: object) -> None:
    """Take off what a driver of a volume is told."""
    if isinstance(part, dict):
        for source, told in _VOLUME_SOURCES:
            drop(part.get(source), (told,))


def _trim_variables(part: object) -> None:
    """Of ``env``, keep variables that come from another object, without which the pod cannot start.

    Literals may be secrets.
    """
    env = part.get("env") if isinstance(part, dict) else None
    if isinstance(part, dict) and isinstance(env, list):
        part["env"] = [entry for entry in env if not isinstance(entry, dict) or entry.get("valueFrom")]


def trim_node(value: dict[str, Any]) -> None:
    """Take off what a node has downloaded and what it is called."""
    drop(value.get("status"), _NODE_STATUS)


def drop(part: object, names: tuple[str, ...]) -> None:
    """Take ``names`` off ``part``, if it is an object."""
    if isinstance(part, dict):
        for name in names:
            part.pop(name, None)
