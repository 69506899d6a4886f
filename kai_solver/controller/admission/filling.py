"""What is filled into new pods: the variables of shared GPUs, as KAI does; where a namespace asks for it, more.

KAI's binder, and ours, describe a container's part of a GPU in two ConfigMaps that the pod must refer to before it is
bound (docs/kai-behaviour.md#binding): one with the devices and the portion, one for more variables. Their names begin
with what the annotation ``runai/shared-gpu-configmap`` says and end with the container's index.
"""

import copy
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from kai_solver.cluster.api import Object
from kai_solver.controller.admission.device_access import hide_devices
from kai_solver.controller.admission.pods import VISIBLE_DEVICES, asks_for_part, sharing_container
from kai_solver.domain import Policy
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.raw import Raw

DEFAULT_SCHEDULER = "default-scheduler"
VARIABLES = (VISIBLE_DEVICES, "RUNAI_NUM_OF_GPUS", "GPU_PORTION")
"""Variables of a container with a part of a GPU; each is the key of the same name in the first ConfigMap."""

_LONGEST_BASE = 33
"""So that ``<base>-<7 characters>-shared-gpu-i0-evar`` and the volume ``...-vol`` stay within 63 characters."""

_NOT_IN_LABELS = re.compile(r"[^a-z0-9-]+")
_PINNED = frozenset({"DaemonSet", "Node"})
"""Owners whose pods belong to one node each: kubelets and the default scheduler place them."""


@dataclass(frozen=True, slots=True)
class Wishes:
    """What is filled in where a pod leaves it open; empty: nothing.

    ``spared``: namespaces that are never touched; ``adopts``: pods of the default scheduler become ours.
    """

    scheduler_name: str
    queue_label_key: str
    queue: str = ""
    runtime_class: str = ""
    spared: frozenset[str] = frozenset({names.RESERVATION_NAMESPACE, names.SCALING_NAMESPACE})
    adopts: bool = True


def filled(pod: Object, wishes: Wishes, token: str, hides: Policy | None = None) -> Object:
    """The pod with what ``wishes`` say, and itself where nothing is to be done; what it states stays.

    Parameters
    ----------
    token
        Makes the names of its ConfigMaps its own; pods that have theirs keep them.
    hides
        Containers that ask for no GPU by this policy are told that they have none; None: they are told nothing.

    Raises
    ------
    InputError
        The pod is malformed; validation will say so.
    """
    raw = Raw(pod)
    if not _is_workload(raw, wishes):
        return pod
    after = copy.deepcopy(pod)
    metadata, spec = after.setdefault("metadata", {}), after["spec"]
    spec["schedulerName"] = wishes.scheduler_name
    labels = raw.strings("metadata.labels")
    if wishes.queue and not labels.get(wishes.queue_label_key) and not labels.get(names.PROJECT):
        metadata["labels"] = labels | {wishes.queue_label_key: wishes.queue}
    if asks_for_part(raw.strings("metadata.annotations")) and raw.items("spec.containers"):
        _refer(after, raw, token)
        if wishes.runtime_class and not raw.text("spec.runtimeClassName"):
            spec["runtimeClassName"] = wishes.runtime_class
    if hides is not None:
        hide_devices(after, hides)
    return after


def wants_share(pod: Object) -> bool:
    """Whether the pod asks for a part of a GPU; a malformed one may."""
    try:
        return asks_for_part(Raw(pod).strings("metadata.annotations"))
    except InputError:
        return True


def wants_runtime_class(pod: Object) -> bool:
    """Whether a runtime class would be filled in."""
    raw = Raw(pod)
    return asks_for_part(raw.strings("metadata.annotations")) and not raw.text("spec.runtimeClassName")


def map_names(prefix: str, kind: str, index: int) -> tuple[str, str]:
    """The two ConfigMaps of a container: devices and portion, and further variables."""
    capabilities = f"{prefix}-{'i' if kind == 'initContainers' else ''}{index}"
    return capabilities, f"{capabilities}-evar"


def json_patch(before: Any, after: Any, path: str = "") -> Iterator[dict[str, Any]]:
    """Operations of RFC 6902 that make ``after`` of ``before``."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before.keys() - after.keys():
            yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in after.items():
            if key in before:
                yield from json_patch(before[key], value, f"{path}/{_escaped(key)}")
            else:
                yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}
    elif isinstance(before, list) and isinstance(after, list) and len(before) <= len(after):
        for index, value in enumerate(after):
            if index < len(before):
                yield from json_patch(before[index], value, f"{path}/{index}")
            else:
                yield {"op": "add", "path": f"{path}/-", "value": value}
    elif before != after:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


def _is_workload(pod: Raw, wishes: Wishes) -> bool:
    """Whether the pod is ours to place: it names no other scheduler, and no node yet."""
    owners = {owner.text("kind") for owner in pod.items("metadata.ownerReferences")}
    return (
        pod.text("spec.schedulerName") in (wishes.scheduler_name, *(("", DEFAULT_SCHEDULER) if wishes.adopts else ()))
        and not pod.text("spec.nodeName")
        and not owners & _PINNED
        and pod.text("metadata.namespace") not in wishes.spared
    )


def _refer(pod: Object, raw: Raw, token: str) -> None:
    """References to the two ConfigMaps, in place."""
    kind, index = sharing_container(raw)
    annotations = raw.strings("metadata.annotations")
    prefix = annotations.get(names.SHARED_GPU_MAP) or _prefix(raw, token)
    pod["metadata"]["annotations"] = annotations | {names.SHARED_GPU_MAP: prefix}
    devices, more = map_names(prefix, kind, index)
    container = pod["spec"][kind][index]
    _put(container, "env", [_variable(name, devices) for name in VARIABLES])
    sources = container.get("envFrom") or []
    if all(Raw(source).text("configMapRef.name") != more for source in sources):
        container["envFrom"] = [*sources, {"configMapRef": {"name": more, "optional": False}}]
    volume = _NOT_IN_LABELS.sub("-", f"{devices}-vol".lower()).strip("-")
    volumes = raw.items("spec.volumes")
    if all(found.text("name") != volume or found.text("configMap.name") != devices for found in volumes):
        _put(pod["spec"], "volumes", [{"name": volume, "configMap": {"name": devices}}])


def _prefix(pod: Raw, token: str) -> str:
    """Begins with the name of the owner or of the pod, as far as that may be in the name of an object."""
    owners = pod.items("metadata.ownerReferences")
    named = pod.text("metadata.name") or pod.text("metadata.generateName")
    base = _NOT_IN_LABELS.sub("-", (owners[0].text("name") if owners else named).lower())[:_LONGEST_BASE].strip("-")
    return f"{base or 'pod'}-{hashlib.sha256(token.encode()).hexdigest()[:7]}-shared-gpu"


def _variable(name: str, config_map: str) -> Object:
    return {"name": name, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": name}}}


def _put(holder: dict[str, Any], field: str, entries: list[Object]) -> None:
    """Put named entries into a list, in the place of those of the same name."""
    kept = list(holder.get(field) or [])
    at = {entry.get("name"): position for position, entry in enumerate(kept)}
    for entry in entries:
        if entry["name"] in at:
            kept[at[entry["name"]]] = entry
        else:
            kept.append(entry)
    holder[field] = kept
