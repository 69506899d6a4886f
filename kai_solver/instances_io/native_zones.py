"""NUMA zones in the native format: of nodes, and where running pods sit; both ways."""

from typing import Any, Literal

from pydantic import Field

from kai_solver.domain import Container, NumaTopology, NumaZone, ZoneShare
from kai_solver.errors import InputError
from kai_solver.instances_io.fields import Amount, Millis, Strict
from kai_solver.units import GPU, MILLI, PODS, ResourceSchema, Vector
from kai_solver.units.resources import FIXED


class PartDoc(Strict):
    """Amounts of a part of a node or pod; what is not given is no part of it."""

    cpu: Millis | None = None
    memory: Amount | None = None
    gpus: Millis | None = None
    resources: dict[str, Amount] = Field(default_factory=dict)

    def amounts(self) -> dict[str, int]:
        """By name of the schema, what is given."""
        given = {"cpu": self.cpu, "memory": self.memory, FIXED[GPU]: self.gpus}
        return {name: amount for name, amount in given.items() if amount is not None} | self.resources


class ZoneDoc(PartDoc):
    """A NUMA zone; resources that no zone gives are not counted by zone."""

    name: str = Field(min_length=1)
    available: PartDoc | None = None
    """What is free there as reported; by default what the pods known to be there leave."""


class NumaDoc(Strict):
    """Topology Manager of a node, and its zones in the kubelet's order."""

    policy: Literal["none", "best-effort", "restricted", "single-numa-node"] = "none"
    scope: Literal["container", "pod"] = "container"
    zones: tuple[ZoneDoc, ...] = ()


class ContainerDoc(PartDoc):
    """A container: its own request. ``init`` ends before the others start, ``sidecar`` starts so and stays."""

    role: Literal["app", "sidecar", "init"] = "app"


class ShareDoc(PartDoc):
    """What a running pod holds of one zone."""

    zone: str = Field(min_length=1)


def named_resources(*docs: PartDoc) -> list[str]:
    """Extended resources that the parts name."""
    return [name for doc in docs for name in doc.resources]


def topology(doc: NumaDoc | None, schema: ResourceSchema, field: str) -> NumaTopology | None:
    """Zones of a node.

    Raises
    ------
    InputError
        A name stands twice.
    """
    if doc is None:
        return None
    names = [zone.name for zone in doc.zones]
    if len(set(names)) < len(names):
        raise InputError("a zone's name occurs twice", field=f"{field}.zones", cure="Give every zone its own name")
    counted = {name for zone in doc.zones for name in zone.amounts()}
    zones = tuple(
        NumaZone(
            zone.name,
            schema.vector(zone.amounts()),
            None if zone.available is None else schema.vector(zone.available.amounts()),
        )
        for zone in doc.zones
    )
    return NumaTopology(doc.policy, doc.scope, zones, tuple(i for i, n in enumerate(schema.names) if n in counted))


def containers(docs: tuple[ContainerDoc, ...], schema: ResourceSchema) -> tuple[Container, ...]:
    """Containers of a pod."""
    return tuple(Container(schema.vector(doc.amounts()), doc.role) for doc in docs)


def shares(docs: tuple[ShareDoc, ...]) -> tuple[ZoneShare, ...]:
    """Zones of a running pod."""
    return tuple(ZoneShare(doc.zone, tuple(doc.amounts().items())) for doc in docs)


# -- written -------------------------------------------------------------------------------------------------------


def written_core(amount: int) -> int | str:
    """Thousandths as a quantity: whole units as a number, others in thousandths."""
    return amount // MILLI if amount % MILLI == 0 else f"{amount}m"


def _part(amounts: dict[str, int]) -> dict[str, Any]:
    fixed = {"cpu": "cpu", "memory": "memory", FIXED[GPU]: "gpus"}
    document: dict[str, Any] = {
        fixed[name]: amount if name == "memory" else written_core(amount)
        for name, amount in amounts.items()
        if name in fixed
    }
    extended = {name: amount for name, amount in amounts.items() if name not in FIXED}
    return document | ({"resources": extended} if extended else {})


def written_topology(numa: NumaTopology | None, schema: ResourceSchema) -> dict[str, Any]:
    """Document of a node's zones."""
    if numa is None:
        return {}

    def counted(vector: Vector) -> dict[str, Any]:
        return _part({schema.names[i]: vector[i] for i in numa.resources})

    zones = [
        {"name": zone.name}
        | counted(zone.allocatable)
        | ({} if zone.available is None else {"available": counted(zone.available)})
        for zone in numa.zones
    ]
    return {"policy": numa.policy, "scope": numa.scope, "zones": zones}


def written_containers(found: tuple[Container, ...], schema: ResourceSchema) -> list[dict[str, Any]]:
    """Documents of a pod's containers."""
    parts = [(c.role, {n: a for n, a in schema.mapping(c.request).items() if n != FIXED[PODS]}) for c in found]
    return [({"role": role} if role != "app" else {}) | _part(amounts) for role, amounts in parts]


def written_shares(found: tuple[ZoneShare, ...]) -> list[dict[str, Any]]:
    """Documents of where a pod sits."""
    return [{"zone": share.zone} | _part(dict(share.amounts)) for share in found]
