"""Resource claims of the native format, both ways."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kai_solver.domain import (
    Allotted,
    Attribute,
    Claim,
    ClaimDevice,
    Claims,
    DeviceClass,
    DeviceRequest,
    Version,
)
from kai_solver.instances_io.native_claims_schema import (
    AllottedDoc,
    ClaimDoc,
    DeviceClassDoc,
    DeviceRequestDoc,
    OfferedDeviceDoc,
    SliceDoc,
    TemplateDoc,
    VersionDoc,
)
from kai_solver.kubeobjects.claims import qualified

Fill = Callable[[int], Callable[[str], str]]
QUEUE_LABEL = Claims().queue_label


@dataclass(slots=True)
class ClaimReader:
    """Makes the claims of pods; templates become a claim per pod."""

    templates: dict[str, TemplateDoc] = field(default_factory=dict)
    made: dict[str, Claim] = field(default_factory=dict)

    @classmethod
    def of(cls, templates: Iterable[TemplateDoc]) -> "ClaimReader":
        """Reader for these templates."""
        return cls({f"{doc.namespace}/{doc.name}": doc for doc in templates})

    def keys(self, claims: tuple[str, ...], templates: tuple[str, ...], namespace: str, pod: str) -> tuple[str, ...]:
        """Keys of a pod's claims; those of templates are made."""
        found = [name if "/" in name else f"{namespace}/{name}" for name in claims]
        for name in templates:
            template = self.templates.get(f"{namespace}/{name}")
            if template is not None:
                requests = tuple(_request(doc) for doc in template.requests)
                claim = Claim(namespace, f"{pod}-{name}", requests, is_own=True)
                self.made[claim.key] = claim
                found.append(claim.key)
        return tuple(dict.fromkeys(found))

    def missing(self, templates: tuple[str, ...], namespace: str) -> tuple[str, ...]:
        """Why a pod must wait: templates that do not exist."""
        names = [name for name in templates if f"{namespace}/{name}" not in self.templates]
        return tuple(f'resourceclaimtemplate.resource.k8s.io "{name}" not found' for name in names)


def read_claims(
    classes: tuple[DeviceClassDoc, ...],
    slices: tuple[SliceDoc, ...],
    claims: tuple[ClaimDoc, ...],
    made: Iterable[Claim],
    queue_label: str,
    fill: Fill,
) -> Claims | None:
    """The snapshot's claims; None where the document has nothing of the kind."""
    everything = (*(_claim(doc) for doc in claims), *made)
    if not (classes or slices or everything):
        return None
    return Claims(
        classes=tuple(DeviceClass(doc.name, doc.selectors, doc.extended_resource, doc.problem) for doc in classes),
        devices=tuple(device for doc in slices for device in _devices(doc, fill)),
        claims=everything,
        queue_label=queue_label,
    )


def _devices(doc: SliceDoc, fill: Fill) -> Iterator[ClaimDevice]:
    for index in range(doc.count):
        node = fill(index)(doc.node)
        pool = fill(index)(doc.pool) if doc.pool else node
        for device in doc.devices:
            yield from _identical(device, node, doc.driver, pool, fill)


def _identical(doc: OfferedDeviceDoc, node: str, driver: str, pool: str, fill: Fill) -> Iterator[ClaimDevice]:
    attributes = {qualified(name, driver): _attribute(value) for name, value in doc.attributes.items()}
    capacity = {qualified(name, driver): str(value) for name, value in doc.capacity.items()}
    for number in range(doc.count):
        name = fill(number)(doc.name)
        name = f"{name}-{number}" if name == doc.name and doc.count > 1 else name
        yield ClaimDevice(node, driver, pool, name, attributes, capacity)


def _attribute(value: bool | int | str | VersionDoc) -> Attribute:
    return Version(value.version) if isinstance(value, VersionDoc) else value


def _request(doc: DeviceRequestDoc) -> DeviceRequest:
    return DeviceRequest(doc.name, doc.device_class, doc.count, doc.all, doc.selectors, doc.problem)


def _claim(doc: ClaimDoc) -> Claim:
    allotted = None if doc.allocation is None else tuple(_allotted(device) for device in doc.allocation)
    return Claim(
        namespace=doc.namespace,
        name=doc.name,
        requests=tuple(_request(request) for request in doc.requests),
        allotted=allotted,
        reserved=doc.reserved_for,
        labels=doc.labels,
        is_own=doc.own,
        extended=doc.extended,
        problem=doc.problem,
    )


def _allotted(doc: AllottedDoc) -> Allotted:
    return Allotted(doc.request, doc.driver, doc.pool, doc.device)


# -- and back --------------------------------------------------------------------------------------------------------


def claims_to_native(claims: Claims | None) -> dict[str, Any]:
    """Sections of a native document, from claims that are not lowered."""
    if claims is None:
        return {}
    sections = {
        "deviceClasses": [_class_document(known) for known in claims.classes],
        "resourceSlices": _slices(claims.devices),
        "resourceClaims": [_claim_document(claim) for claim in claims.claims],
    }
    if claims.queue_label != QUEUE_LABEL:
        sections["claimQueueLabel"] = claims.queue_label  # type: ignore[assignment]
    return {name: section for name, section in sections.items() if section}


def _given(**values: Any) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value not in (None, "", False, [], {}, ())}


def _class_document(known: DeviceClass) -> dict[str, Any]:
    rest = _given(selectors=list(known.selectors), extendedResource=known.extended_resource, problem=known.problem)
    return {"name": known.name} | rest


def _slices(devices: tuple[ClaimDevice, ...]) -> list[dict[str, Any]]:
    """One slice for neighbours of one node, driver and pool: the order of devices stays as it is."""
    found: list[dict[str, Any]] = []
    for device in devices:
        head = {"driver": device.driver, "node": device.node, "pool": device.pool}
        if not found or {key: found[-1][key] for key in head} != head:
            found.append({**head, "devices": []})
        attributes = {n: {"version": v.text} if isinstance(v, Version) else v for n, v in device.attributes.items()}
        offered = {"name": device.name} | _given(attributes=attributes, capacity=dict(device.capacity))
        found[-1]["devices"].append(offered)
    return found


def _claim_document(claim: Claim) -> dict[str, Any]:
    requests = [
        {"name": r.name, "deviceClass": r.device_class, "count": r.count}
        | _given(all=r.all_devices, selectors=list(r.selectors), problem=r.problem)
        for r in claim.requests
    ]
    document = {"name": claim.name, "namespace": claim.namespace, "requests": requests}
    if claim.allotted is not None:
        document["allocation"] = [
            {"request": a.request, "driver": a.driver, "pool": a.pool, "device": a.device} for a in claim.allotted
        ]
    return document | _given(
        labels=dict(claim.labels),
        reservedFor=list(claim.reserved),
        own=claim.is_own,
        extended=claim.extended,
        problem=claim.problem,
    )


def pod_claims(keys: tuple[str, ...], namespace: str) -> list[str]:
    """Names of a pod's claims; with their namespace where that is not the pod's."""
    return [key.removeprefix(f"{namespace}/") for key in keys]
