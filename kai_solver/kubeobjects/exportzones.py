"""NUMA zones as Kubernetes objects: NodeResourceTopology, placement records of pods, containers."""

import json
from typing import Any

from kai_solver.domain import Container, NumaTopology, ZoneShare
from kai_solver.kubeobjects.quantities import quantities, quantity
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.units import ResourceSchema, Vector

Written = dict[str, Any]


def zones_object(node: str, numa: NumaTopology, schema: ResourceSchema, settings: KubeSettings) -> Written:
    """NodeResourceTopology of one node."""

    def counted(vector: Vector) -> Written:
        named = ((schema.names[i], vector[i]) for i in numa.resources)
        gpus = settings.policy.gpu_resources
        # GPUs come first, and under the vendors' names once more where there are several.
        return {gpus[0] if n == "gpu" else n: quantity(n, amount) for n, amount in named}

    zones = []
    for zone in numa.zones:
        allocatable = counted(zone.allocatable)
        available = counted(zone.allocatable if zone.available is None else zone.available)
        resources = [
            {"name": name, "capacity": amount, "allocatable": amount, "available": available[name]}
            for name, amount in allocatable.items()
        ]
        zones.append({"name": zone.name, "type": "Node", "resources": resources})
    attributes = [
        {"name": "topologyManagerPolicy", "value": numa.policy},
        {"name": "topologyManagerScope", "value": numa.scope},
    ]
    return {"metadata": {"name": node}, "attributes": attributes, "zones": zones}


def placement_text(shares: tuple[ZoneShare, ...], gpu_resources: tuple[str, ...]) -> str:
    """The annotation that says in which zones a pod sits."""
    record = [{"zone": share.zone, "amount": quantities(dict(share.amounts), gpu_resources)} for share in shares]
    return json.dumps(record, separators=(",", ":"))


def container_lists(
    containers: tuple[Container, ...], schema: ResourceSchema, settings: KubeSettings, ports: Written
) -> Written:
    """``containers`` and ``initContainers`` of a pod's spec; the ports are the first container's."""
    together: list[Written] = []
    before: list[Written] = []
    for number, container in enumerate(containers):
        resources = quantities(schema.mapping(container.request), settings.policy.gpu_resources)
        written = {"name": f"c{number}", "resources": {"requests": resources, "limits": resources}}
        if container.role == "app":
            together.append(written | ({} if together else ports))
        else:
            before.append(written | ({"restartPolicy": "Always"} if container.role == "sidecar" else {}))
    return {"containers": together} | ({"initContainers": before} if before else {})
