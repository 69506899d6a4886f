"""Raw Kubernetes objects, grouped by kind, as an API server or a file gives them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from kai_solver.domain import Notice
from kai_solver.errors.values import kind_of_value

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RawObjects:
    """Plain dicts by kind; nothing is validated yet.

    ``other`` holds everything else with its ``kind``: owners of pods (Jobs, PyTorchJobs, ...), the objects of
    ``kai.nvidia.com``, and what is not understood. ``notices`` are complaints of the code that read the files.
    """

    pods: tuple[Object, ...] = ()
    nodes: tuple[Object, ...] = ()
    queues: tuple[Object, ...] = ()
    pod_groups: tuple[Object, ...] = ()
    bind_requests: tuple[Object, ...] = ()
    priority_classes: tuple[Object, ...] = ()
    config_maps: tuple[Object, ...] = ()
    persistent_volumes: tuple[Object, ...] = ()
    persistent_volume_claims: tuple[Object, ...] = ()
    csi_storage_capacities: tuple[Object, ...] = ()
    storage_classes: tuple[Object, ...] = ()
    csi_drivers: tuple[Object, ...] = ()
    resource_claims: tuple[Object, ...] = ()
    resource_slices: tuple[Object, ...] = ()
    device_classes: tuple[Object, ...] = ()
    topologies: tuple[Object, ...] = ()
    node_resource_topologies: tuple[Object, ...] = ()
    namespaces: tuple[Object, ...] = ()
    disruption_budgets: tuple[Object, ...] = ()
    other: tuple[Object, ...] = ()
    notices: tuple[Notice, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind that has a field of its own: the field, the member of a KAI snapshot, kind and API version."""

    field: str
    member: str
    kind: str
    api_version: str


KINDS = (
    Kind("pods", "pods", "Pod", "v1"),
    Kind("nodes", "nodes", "Node", "v1"),
    Kind("queues", "queues", "Queue", "scheduling.run.ai/v2"),
    Kind("pod_groups", "podGroups", "PodGroup", "scheduling.run.ai/v2alpha2"),
    Kind("bind_requests", "bindRequests", "BindRequest", "scheduling.run.ai/v1alpha2"),
    Kind("priority_classes", "priorityClasses", "PriorityClass", "scheduling.k8s.io/v1"),
    Kind("config_maps", "configMaps", "ConfigMap", "v1"),
    Kind("persistent_volumes", "persistentVolumes", "PersistentVolume", "v1"),
    Kind("persistent_volume_claims", "persistentVolumeClaims", "PersistentVolumeClaim", "v1"),
    Kind("csi_storage_capacities", "csiStorageCapacities", "CSIStorageCapacity", "storage.k8s.io/v1"),
    Kind("storage_classes", "storageClasses", "StorageClass", "storage.k8s.io/v1"),
    Kind("csi_drivers", "csiDrivers", "CSIDriver", "storage.k8s.io/v1"),
    Kind("resource_claims", "resourceClaims", "ResourceClaim", "resource.k8s.io/v1"),
    Kind("resource_slices", "resourceSlices", "ResourceSlice", "resource.k8s.io/v1"),
    Kind("device_classes", "deviceClasses", "DeviceClass", "resource.k8s.io/v1"),
    Kind("topologies", "topologies", "Topology", "kai.scheduler/v1alpha1"),
    Kind("node_resource_topologies", "nodeResourceTopologies", "NodeResourceTopology", "topology.node.k8s.io/v1alpha2"),
    Kind("namespaces", "namespaces", "Namespace", "v1"),
    Kind("disruption_budgets", "podDisruptionBudgets", "PodDisruptionBudget", "policy/v1"),
)
_FIELD_OF = {(_kind.api_version.rpartition("/")[0], _kind.kind): _kind.field for _kind in KINDS}


def kind_of(value: object) -> str:
    """``kind`` of an object; empty for what is none."""
    kind = value.get("kind") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else ""


def group_of(api_version: object) -> str:
    """API group of an ``apiVersion``; empty for the core group."""
    return api_version.rpartition("/")[0] if isinstance(api_version, str) else ""


def objects_from_documents(documents: Iterable[tuple[str, object]]) -> RawObjects:
    """Sort parsed documents by kind.

    Parameters
    ----------
    documents
        (file, parsed YAML or JSON document). Lists of any kind are unpacked; empty documents are skipped.

    Returns
    -------
    RawObjects
        What is no Kubernetes object (no mapping, no ``kind``) is named in ``notices`` with its file.
    """
    sorted_objects: dict[str, list[Object]] = {field.name: [] for field in fields(RawObjects)}
    notices: list[Notice] = []
    for file, document in documents:
        for item in _unpacked(document):
            problem = _problem(item)
            if problem or not isinstance(item, dict):
                notices.append(Notice("set-aside", file, f"{problem}. Check the file's indentation"))
                continue
            field = _FIELD_OF.get((group_of(item.get("apiVersion")), item["kind"]), "other")
            sorted_objects[field].append(item)
    del sorted_objects["notices"]
    return RawObjects(**{name: tuple(found) for name, found in sorted_objects.items()}, notices=tuple(notices))


def with_objects(objects: RawObjects, added: RawObjects) -> RawObjects:
    """``objects`` and those ``added``, as ``kubectl apply`` adds them: of two with one name, the one that is added."""
    merged: dict[str, tuple[Any, ...]] = {}
    for name in (field.name for field in fields(RawObjects)):
        mine, more = getattr(objects, name), getattr(added, name)
        if name != "notices":
            taken = {_identity(one, name) for one in more}
            mine = tuple(one for one in mine if _identity(one, name) not in taken)
        merged[name] = (*mine, *more)
    return RawObjects(**merged)


def _identity(item: object, field: str) -> tuple[str, ...]:
    """Namespace and name of an object in a field of `RawObjects`, where kinds are mixed there also group and kind."""
    plain: Object = item if isinstance(item, dict) else {}
    metadata = plain.get("metadata")
    named: Object = metadata if isinstance(metadata, dict) else {}
    kind = (group_of(plain.get("apiVersion")), kind_of(plain)) if field == "other" else ()
    return (str(named.get("namespace") or "default"), str(named.get("name")), *kind)


def _unpacked(document: object) -> Iterable[object]:
    """The objects of one document: lists of Kubernetes and plain lists are opened, at any depth."""
    pending = [document]
    while pending:
        item = pending.pop()
        if item is None:
            continue
        if isinstance(item, list):
            pending.extend(reversed(item))
        elif isinstance(item, dict) and isinstance(item.get("items"), list) and _is_list_kind(item.get("kind")):
            pending.extend(_inherit_kind(item, element) for element in reversed(item["items"]))
        else:
            yield item


def _is_list_kind(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith("List")


def _inherit_kind(parent: Object, element: object) -> object:
    """Members of a ``PodList`` may leave out what the list has said already."""
    kind = parent["kind"].removesuffix("List")
    if isinstance(element, dict) and "kind" not in element and kind:
        return {"apiVersion": parent.get("apiVersion", "v1"), "kind": kind, **element}
    return element


def _problem(item: object) -> str:
    """Why ``item`` cannot be a Kubernetes object; empty where it can."""
    if not isinstance(item, dict):
        return f"holds {kind_of_value(item)} where a Kubernetes object was expected"
    if not kind_of(item):
        return "holds an object without a kind"
    metadata = item.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        return f"holds a {item['kind']} without metadata.name"
    return ""
