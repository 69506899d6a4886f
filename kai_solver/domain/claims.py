"""Devices that pods ask for by resource claim (``resource.k8s.io``): classes, devices of nodes, claims.

``claims.lower`` turns them into amounts that the rest of the engine understands; what it put on top of a pod and of a
node is told here, so that it can be taken off again.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from kai_solver.domain.cluster import Node
from kai_solver.domain.pods import Pod
from kai_solver.units import ResourceSchema

MOST_CONSUMERS = 256
"""At most so many pods may have a claim reserved (Kubernetes: ``ResourceClaimReservedForMaxSize``)."""

MOST_DEVICES = 32
"""At most so many devices may be allocated to one claim (Kubernetes: ``AllocationResultsMaxSize``)."""

_GPUS = re.compile(r"gpu|(?<![a-z])mig(?![a-z])", re.IGNORECASE)


def names_gpus(text: str) -> bool:
    """Whether a device class or a driver is of GPUs, or of MIG slices of them, by its name."""
    return _GPUS.search(text) is not None


@dataclass(frozen=True, slots=True)
class Version:
    """A semantic version, an attribute of a device."""

    text: str


Attribute = bool | int | str | Version
DeviceId = tuple[str, str, str]
"""Driver, pool, name: unique in a cluster."""


@dataclass(frozen=True, slots=True)
class ClaimDevice:
    """A device that a node publishes in a ResourceSlice.

    ``attributes`` and ``capacity`` (quantities as written) by qualified name ``domain/name``.
    """

    node: str
    driver: str
    pool: str
    name: str
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> DeviceId:
        """Driver, pool, name."""
        return self.driver, self.pool, self.name

    @property
    def is_gpu(self) -> bool:
        """True for a GPU or a slice of one, whatever class it is asked for by."""
        kinds = (kind for name, kind in self.attributes.items() if name.rpartition("/")[2] == "type")
        return names_gpus(self.driver) or any(kind in ("gpu", "mig") for kind in kinds)


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A DeviceClass: CEL selectors that must all hold.

    ``extended_resource``: the resource that asks for this class (KEP-5004), by its name in the schema (``gpu``).
    ``problem``: why no request of it can be met; empty for most.
    """

    name: str
    selectors: tuple[str, ...] = ()
    extended_resource: str = ""
    problem: str = ""

    @property
    def is_gpu(self) -> bool:
        """True where its devices count as GPUs of queues: KAI goes by the name, and so do we.

        Source: docs/kai-behaviour.md#accounting.
        """
        return "gpu" in self.name.lower()


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """Devices of one class that also match ``selectors``: ``count`` of them, or all that the node has.

    ``problem``: what about it is not supported; empty for most.
    """

    name: str
    device_class: str
    count: int = 1
    all_devices: bool = False
    selectors: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Allotted:
    """A device given to a request of a claim."""

    request: str
    driver: str
    pool: str
    device: str

    @property
    def id(self) -> DeviceId:
        """Driver, pool, name."""
        return self.driver, self.pool, self.device


PART = "#"
"""Stands in the name of a claim that is a part of an object, before the part's number; no object's name has one."""


def object_of(key: str) -> str:
    """``namespace/name`` of the object that a claim is, or is a part of."""
    return key.partition(PART)[0]


@dataclass(frozen=True, slots=True)
class Claim:
    """A ResourceClaim, or what of it stands for one of the extended resources that a pod asks for.

    Attributes
    ----------
    allotted
        Devices that it holds; None where it is not allocated.
    reserved
        Names of the pods that it is reserved for.
    is_own
        Made for one pod (from a template, or for an extended resource): its queue needs no label.
    extended
        Resource of the schema that the pod asked for instead (KEP-5004): devices of a device plugin will do as well.
    problem
        Why it cannot be allocated; empty for most.
    """

    namespace: str
    name: str
    requests: tuple[DeviceRequest, ...] = ()
    allotted: tuple[Allotted, ...] | None = None
    reserved: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    is_own: bool = False
    extended: str = ""
    problem: str = ""

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class Lowered:
    """What ``claims.lower`` changed, to take it off again.

    Attributes
    ----------
    schema, nodes
        As they were.
    pods
        By key, the pods that were changed by more than zeros at the end of their vector, as they were.
    holders
        Keys of the foreign pods that were added: each stands for a claim that outlives its pods.
    claims
        Claims as they were, where devices were worked out for pods that run without an allocation.
    is_rough
        What was left out could make room: then a "no" is no proof.
    gpus
        GPUs by claim of each node that has some, in the order of their indices there.
    """

    schema: ResourceSchema
    nodes: tuple[Node, ...]
    pods: Mapping[str, Pod] = field(default_factory=dict)
    holders: frozenset[str] = frozenset()
    claims: tuple[Claim, ...] = ()
    is_rough: bool = False
    gpus: Mapping[str, tuple[ClaimDevice, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Claims:
    """The part of a snapshot that is about resource claims.

    Attributes
    ----------
    devices
        Of the nodes, each on one node (network-attached devices are set aside on import).
    queue_label
        Label of a shared GPU claim that must name the queue of the pods that use it (docs/kai-behaviour.md#claims).
    lowered
        None until ``claims.lower`` has turned the claims into amounts.
    """

    classes: tuple[DeviceClass, ...] = ()
    devices: tuple[ClaimDevice, ...] = ()
    claims: tuple[Claim, ...] = ()
    queue_label: str = "kai.scheduler/queue"
    lowered: Lowered | None = None

    @property
    def is_rough(self) -> bool:
        """True where a "no" is no proof, because of what was left out."""
        return self.lowered is not None and self.lowered.is_rough
