"""NUMA: zones of nodes from NodeResourceTopology objects, and in which of them pods sit.

Source: docs/kai-behaviour.md#numa.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_solver.domain import Container, NumaPolicy, NumaScope, NumaTopology, NumaZone, ZoneShare
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.raw import Raw, parse_json
from kai_solver.kubeobjects.resources import Amounts, container_amounts, read_amounts
from kai_solver.units import ResourceSchema

POLICIES: dict[str, NumaPolicy] = {
    "none": "none",
    "best-effort": "best-effort",
    "restricted": "restricted",
    "single-numa-node": "single-numa-node",
}
_LEGACY: dict[str, tuple[NumaPolicy, NumaScope]] = {
    "SingleNUMANodePodLevel": ("single-numa-node", "pod"),
    "SingleNUMANodeContainerLevel": ("single-numa-node", "container"),
    "RestrictedPodLevel": ("restricted", "pod"),
    "Restricted": ("restricted", "container"),
    "RestrictedContainerLevel": ("restricted", "container"),
    "BestEffortPodLevel": ("best-effort", "pod"),
    "BestEffort": ("best-effort", "container"),
    "BestEffortContainerLevel": ("best-effort", "container"),
}
_NUMBER = re.compile(r"[0-9]{1,9}$")


@dataclass(frozen=True, slots=True)
class RawZones:
    """Zones of one node before the schema is known: name, allocatable and available amounts, in the kubelet's order."""

    policy: NumaPolicy
    scope: NumaScope
    zones: tuple[tuple[str, Amounts, Amounts], ...]

    def finish(self, schema: ResourceSchema, ignored: frozenset[str], *, reconstruct: bool) -> NumaTopology:
        """The topology; what no zone reports, what is ignored and what no pod asks for is not counted by zone.

        ``reconstruct``: what is free is reckoned from the pods, not read from the report, which lags behind.
        """
        reported = {name for _, allocatable, _ in self.zones for name in allocatable} - ignored
        counted = tuple(i for i, name in enumerate(schema.names) if name in reported and name != "pods")

        def vector(amounts: Amounts) -> tuple[int, ...]:
            return tuple(amounts.get(name, 0) if i in counted else 0 for i, name in enumerate(schema.names))

        zones = tuple(NumaZone(n, vector(a), None if reconstruct else vector(free)) for n, a, free in self.zones)
        return NumaTopology(self.policy, self.scope, zones, counted)


def read_zones(objects: tuple[Object, ...], gpu_resources: tuple[str, ...], notices: Notices) -> dict[str, RawZones]:
    """Zones by node; broken objects are set aside with a notice."""
    return read_each("NodeResourceTopology", objects, notices, lambda raw: _zones(raw, gpu_resources))


def _zones(raw: Raw, gpu_resources: tuple[str, ...]) -> RawZones | None:
    found = []
    for zone in raw.items("zones"):
        if zone.text("type") == "Node":
            allocatable, available = _reported(zone, gpu_resources)
            found.append((zone.required("name"), allocatable, available))
    policy, scope = _policy(raw)
    found.sort(key=lambda zone: zone_order(zone[0]))
    return RawZones(policy, scope, tuple(found)) if found else None


def _reported(zone: Raw, gpu_resources: tuple[str, ...]) -> tuple[Amounts, Amounts]:
    """(allocatable, available) of one zone."""
    allocatable: dict[str, object] = {}
    available: dict[str, object] = {}
    for resource in zone.items("resources"):
        name = resource.required("name")
        allocatable[name] = resource.get("allocatable").value
        available[name] = resource.get("available").value
    path = f"{zone.path}.resources"
    return read_amounts(Raw(allocatable, path), gpu_resources), read_amounts(Raw(available, path), gpu_resources)


def _policy(raw: Raw) -> tuple[NumaPolicy, NumaScope]:
    """From the attributes, else from the older ``topologyPolicies``; the kubelet's scope is by container."""
    attributes = {a.text("name"): a.text("value") for a in raw.items("attributes")}
    policy = attributes.get("topologyManagerPolicy", "")
    if policy:
        scope: NumaScope = "pod" if attributes.get("topologyManagerScope") == "pod" else "container"
        return POLICIES.get(policy, "none"), scope
    legacy = [item.text() for item in raw.items("topologyPolicies")]
    return _LEGACY.get(legacy[0], ("none", "container")) if legacy else ("none", "container")


def zone_order(name: str) -> tuple[int, int, str]:
    """The kubelet counts zones by their number, which ends their name."""
    number = _NUMBER.search(name)
    return (0, int(number[0]), name) if number else (1, 0, name)


def zone_shares(
    annotations: Mapping[str, str], gpu_resources: tuple[str, ...], bound: tuple[ZoneShare, ...] = ()
) -> tuple[ZoneShare, ...]:
    """In which zones a pod sits, empty where unknown.

    As observed on its node, else as its BindRequest has it (``bound``), else as predicted when it was bound.

    Raises
    ------
    InputError
        An annotation is there that cannot be read.
    """
    for name, before in ((names.NUMA_OBSERVED, ()), (names.NUMA_PREDICTED, bound)):
        if before:
            return before
        if annotations.get(name):
            return _record(annotations[name], name, gpu_resources)
    return bound


def _record(text: str, name: str, gpu_resources: tuple[str, ...]) -> tuple[ZoneShare, ...]:
    return placement(parse_json(text, f"metadata.annotations.{name}", "Remove it"), gpu_resources)


def placement(record: Raw, gpu_resources: tuple[str, ...]) -> tuple[ZoneShare, ...]:
    """A list of ``{zone, amount}``, as in annotations and BindRequests."""
    return tuple(
        ZoneShare(zone.required("zone"), tuple(read_amounts(zone.get("amount"), gpu_resources).items()))
        for zone in record.items()
    )


@dataclass(frozen=True, slots=True)
class RawContainers:
    """Containers of a pod with more than one, before the schema is known."""

    containers: tuple[tuple[str, Amounts], ...] = field(default=())

    def finish(self, schema: ResourceSchema) -> tuple[Container, ...]:
        """Containers with their vectors."""
        return tuple(
            Container(schema.vector({n: a for n, a in amounts.items() if n in schema.names and n != "pods"}), role)  # type: ignore[arg-type]
            for role, amounts in self.containers
        )


NO_PARTS = RawContainers()


def read_containers(spec: Raw, gpu_resources: tuple[str, ...]) -> RawContainers:
    """Containers, init containers first as they start; none where there is only one of any kind."""
    before, together = spec.items("initContainers"), spec.items("containers")
    if len(before) + len(together) < 2:
        return RawContainers()
    roles = [("sidecar" if c.text("restartPolicy") == "Always" else "init", c) for c in before]
    roles += [("app", c) for c in together]
    return RawContainers(tuple((role, container_amounts(c, gpu_resources)) for role, c in roles))


def is_guaranteed(raw: Raw, gpu_resources: tuple[str, ...]) -> bool:
    """QoS class Guaranteed: as the API server says, else every container limits CPU and memory to what it requests."""
    stated = raw.text("status.qosClass")
    if stated:
        return stated == "Guaranteed"
    spec = raw.get("spec")
    return all(_is_limited(c, gpu_resources) for c in (*spec.items("initContainers"), *spec.items("containers")))


def _is_limited(container: Raw, gpu_resources: tuple[str, ...]) -> bool:
    limits = read_amounts(container.get("resources.limits"), gpu_resources)
    asked = container_amounts(container, gpu_resources)
    return all(limits.get(name, 0) > 0 and limits[name] == asked[name] for name in ("cpu", "memory"))
