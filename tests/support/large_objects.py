"""Clusters with one large object: a generator for every way in which an object can be large, by size."""

from collections.abc import Callable
from typing import Any

Object = dict[str, Any]
Generator = Callable[[int], list[Object]]

ZONE = "topology.kubernetes.io/zone"


def node(name: str, **labels: str) -> Object:
    allocatable = {"cpu": "64", "memory": "256Gi", "pods": "110", "nvidia.com/gpu": "4"}
    here = {"kubernetes.io/hostname": name, ZONE: f"z{name[-1]}", **labels}
    return {
        "kind": "Node",
        "apiVersion": "v1",
        "metadata": {"name": name, "labels": here},
        "status": {"allocatable": allocatable},
    }


def queue(name: str, parent: str = "") -> Object:
    resources = {kind: {"quota": -1, "limit": -1, "overQuotaWeight": 1} for kind in ("gpu", "cpu", "memory")}
    spec = {"resources": resources, **({"parentQueue": parent} if parent else {})}
    return {"kind": "Queue", "apiVersion": "scheduling.run.ai/v2", "metadata": {"name": name}, "spec": spec}


def pod(name: str, queue: str = "user", group: str = "", subgroup: str = "", **spec: Any) -> Object:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    labels = {"kai.scheduler/queue": queue, "app": "x"}
    if subgroup:
        labels["kai.scheduler/subgroup-name"] = subgroup
    metadata = {"name": name, "namespace": queue, "uid": f"uid-{name}", "labels": labels}
    if group:
        metadata["annotations"] = {"pod-group-name": group}
    return {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": metadata,
        "spec": {"schedulerName": "kai-scheduler", "containers": containers, **spec},
        "status": {"phase": "Pending"},
    }


def group(**spec: Any) -> Object:
    return {
        "kind": "PodGroup",
        "apiVersion": "scheduling.run.ai/v2alpha2",
        "metadata": {"name": "g", "namespace": "user", "uid": "g"},
        "spec": {"queue": "user", **spec},
    }


def around(nodes: int = 8, labels: dict[str, str] | None = None) -> list[Object]:
    """Nodes, two queues, and a pod of another user, which must be bound whatever the large object is."""
    here = [node(f"n{i}", **(labels or {})) for i in range(nodes)]
    return [*here, queue("root"), queue("user", "root"), queue("other", "root"), pod("innocent", "other")]


def spread(key: str, value: str = "x", *, soft: bool = False) -> Object:
    when = "ScheduleAnyway" if soft else "DoNotSchedule"
    selector = {"matchLabels": {"app": value}}
    return {"maxSkew": 5, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": selector}


def near(value: str) -> Object:
    return {
        "topologyKey": ZONE,
        "labelSelector": {"matchExpressions": [{"key": "a", "operator": "In", "values": [value]}]},
    }


def affinity(kind: str, terms: list[Object], *, soft: bool = False) -> Object:
    if soft:
        weighted = [{"weight": 1, "podAffinityTerm": term} for term in terms]
        return {kind: {"preferredDuringSchedulingIgnoredDuringExecution": weighted}}
    return {kind: {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def expressions(expressions: list[Object], terms: int = 1) -> Object:
    stated = [{"matchExpressions": expressions} for _ in range(terms)]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": stated}}}


def spread_of_keys(size: int) -> list[Object]:
    labels = {f"k{i}": "a" for i in range(size)}
    return [*around(labels=labels), pod("e", topologySpreadConstraints=[spread(f"k{i}") for i in range(size)])]


def spread_soft(size: int) -> list[Object]:
    return [*around(), pod("e", topologySpreadConstraints=[spread(ZONE, f"v{i}", soft=True) for i in range(size)])]


def spread_of_pods(size: int) -> list[Object]:
    rules = [spread(ZONE, f"v{i}") for i in range(16)]
    return [
        *around(),
        group(minMember=size),
        *(pod(f"e{j}", "user", "g", topologySpreadConstraints=rules) for j in range(size)),
    ]


def apart(size: int) -> list[Object]:
    return [*around(), pod("e", affinity=affinity("podAntiAffinity", [near(f"v{i}") for i in range(size)]))]


def attracted(size: int) -> list[Object]:
    return [*around(), pod("e", affinity=affinity("podAffinity", [near(f"v{i}") for i in range(size)], soft=True))]


def values(size: int) -> list[Object]:
    stated = [{"key": "kubernetes.io/hostname", "operator": "In", "values": [f"m{i}" for i in range(size)]}]
    return [*around(), pod("e", affinity=expressions(stated))]


def node_terms(size: int) -> list[Object]:
    return [*around(), pod("e", affinity=expressions([{"key": "k", "operator": "Exists"}], size))]


def node_expressions(size: int) -> list[Object]:
    stated = [{"key": f"k{i}", "operator": "DoesNotExist"} for i in range(size)]
    return [*around(), pod("e", affinity=expressions(stated))]


def tolerations(size: int) -> list[Object]:
    return [*around(), pod("e", tolerations=[{"key": f"k{i}", "operator": "Exists"} for i in range(size)])]


def ports(size: int) -> list[Object]:
    container = {"name": "c", "ports": [{"hostPort": 1 + i, "containerPort": 1} for i in range(size)]}
    return [*around(), *(pod(f"e{j}", containers=[container]) for j in range(4))]


def containers(size: int) -> list[Object]:
    started = [
        {"name": f"i{i}", "restartPolicy": "Always", "resources": {"requests": {f"e.com/{i}": "1"}}}
        for i in range(size)
    ]
    return [*around(), pod("e", initContainers=started)]


def resources(size: int) -> list[Object]:
    asked = {f"e.com/{i}": "1" for i in range(size)}
    return [*around(), pod("e", containers=[{"name": "c", "resources": {"requests": asked}}])]


def volumes(size: int) -> list[Object]:
    claims = [
        {
            "kind": "PersistentVolumeClaim",
            "apiVersion": "v1",
            "metadata": {"name": f"c{i}", "namespace": "user"},
            "spec": {"volumeName": f"v{i}", "accessModes": ["ReadWriteOncePod"]},
            "status": {"phase": "Bound"},
        }
        for i in range(size)
    ]
    used = [{"name": f"v{i}", "persistentVolumeClaim": {"claimName": f"c{i}"}} for i in range(size)]
    return [*around(), *claims, pod("e", volumes=used)]


def owners(size: int) -> list[Object]:
    """A chain of owners that ends where it began."""

    def reference(number: int) -> list[Object]:
        name = f"o{number % size}"
        return [{"apiVersion": "e.com/v1", "kind": "Thing", "name": name, "uid": name, "controller": True}]

    chain = [
        {
            "kind": "Thing",
            "apiVersion": "e.com/v1",
            "metadata": {"name": f"o{i}", "namespace": "user", "uid": f"o{i}", "ownerReferences": reference(i + 1)},
        }
        for i in range(size)
    ]
    found = pod("e")
    found["metadata"]["ownerReferences"] = reference(0)
    return [*around(), *chain, found]


def subgroups(size: int) -> list[Object]:
    return [
        *around(),
        group(subGroups=[{"name": f"s{i}", "minMember": 1} for i in range(size)]),
        pod("e", "user", "g", "s0"),
    ]


def nested_subgroups(size: int) -> list[Object]:
    parts: list[Object] = [{"name": f"s{i}", "parent": f"s{i - 1}"} if i else {"name": "s0"} for i in range(size)]
    parts[-1]["minMember"] = 1
    return [*around(), group(subGroups=parts), pod("e", "user", "g", f"s{size - 1}")]


def levels(size: int) -> list[Object]:
    labels = {f"l{i}": "a" for i in range(size)}
    stated = {"levels": [{"nodeLabel": name} for name in labels]}
    topology = {"kind": "Topology", "apiVersion": "kai.scheduler/v1alpha1", "metadata": {"name": "t"}, "spec": stated}
    asked = {"topology": "t", "requiredTopologyLevel": "l0", "preferredTopologyLevel": f"l{size - 1}"}
    return [*around(labels=labels), topology, group(minMember=1, topologyConstraint=asked), pod("e", "user", "g")]


def nested_queues(size: int) -> list[Object]:
    chain = [queue(f"d{i}", f"d{i - 1}" if i else "root") for i in range(size)]
    return [*around(), *chain, pod("e", f"d{size - 1}")]


def claims(size: int) -> list[Object]:
    api = {"apiVersion": "resource.k8s.io/v1"}
    of_class = {"spec": {"selectors": [{"cel": {"expression": 'device.driver == "nic.e.com"'}}]}}
    devices = [{"name": f"d{i}", "attributes": {"uuid": {"string": f"u{i}"}}} for i in range(100)]
    offered = {
        "driver": "nic.e.com",
        "nodeName": "n1",
        "pool": {"name": "n1", "resourceSliceCount": 1},
        "devices": devices,
    }

    def asked(number: int) -> Object:
        selector = {"cel": {"expression": f'device.attributes["nic.e.com"].uuid != "x{number}"'}}
        request = {"name": "r", "exactly": {"deviceClassName": "nic", "count": 1, "selectors": [selector]}}
        return {"devices": {"requests": [request]}}

    return [
        *around(),
        {**api, "kind": "DeviceClass", "metadata": {"name": "nic"}, **of_class},
        {**api, "kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": offered},
        *(
            {**api, "kind": "ResourceClaim", "metadata": {"name": f"c{i}", "namespace": "user"}, "spec": asked(i)}
            for i in range(size)
        ),
        pod("e", resourceClaims=[{"name": f"c{i}", "resourceClaimName": f"c{i}"} for i in range(size)]),
    ]


GENERATORS: tuple[Generator, ...] = (
    spread_of_keys, spread_soft, spread_of_pods, apart, attracted, values, node_terms, node_expressions, tolerations,
    ports, containers, resources, volumes, owners, subgroups, nested_subgroups, levels, nested_queues, claims,
)  # fmt: skip
