"""Resource claims (``resource.k8s.io``, v1 and the betas): classes, slices of nodes, claims, and which pod uses which.

Unsupported parts are reported where they stand: a device or a pool is left out with a notice, a request or a class gets
a ``problem``, and the pods that need it wait with that reason.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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
from kai_solver.domain.claims import PART
from kai_solver.errors import InputError, printable
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.notices import Notices, namespaced_key, object_name, read_each
from kai_solver.kubeobjects.objects import Object, RawObjects, group_of, kind_of
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.kubeobjects.trust import Trust
from kai_solver.units.resources import FIXED, GPU

GROUP = "resource.k8s.io"
TEMPLATE = "ResourceClaimTemplate"
_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
_KEEPS_OUT = ("NoSchedule", "NoExecute")


@dataclass(slots=True)
class ClaimBook:
    """Everything about claims among the objects; ``of_pod`` says what one pod uses.

    Attributes
    ----------
    templates
        Requests by ``namespace/name`` of the template.
    """

    classes: tuple[DeviceClass, ...] = ()
    devices: tuple[ClaimDevice, ...] = ()
    claims: dict[str, Claim] = field(default_factory=dict)
    generated: Mapping[tuple[str, str, str], str] = field(default_factory=dict)
    templates: Mapping[str, tuple[DeviceRequest, ...]] = field(default_factory=dict)
    gpu_resources: tuple[str, ...] = ()
    queue_label: str = Claims().queue_label

    def of_pod(self, pod: Raw) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Keys of the pod's claims, and in words what keeps it from having them."""
        namespace = pod.text("metadata.namespace") or "default"
        stated = {s.required("name"): s for s in pod.items("status.resourceClaimStatuses")}
        keys, blocked = [], []
        for entry in pod.items("spec.resourceClaims"):
            name = entry.required("name")
            if entry.get("resourceClaimName"):
                keys.append(f"{namespace}/{entry.required('resourceClaimName')}")
            elif name in stated:
                if stated[name].get("resourceClaimName"):  # None: the pod needs none after all.
                    keys.append(f"{namespace}/{stated[name].required('resourceClaimName')}")
            elif key := self._of_template(pod, entry, namespace, name):
                keys.append(key)
            else:
                made = f"{pod.required('metadata.name')}-{name}"
                text = "waiting for dynamic resource controller to create the resourceclaim"
                blocked.append(f'{text} "{made}" (or give its ResourceClaimTemplate too)')
        keys += self._extended(pod, namespace)
        return tuple(dict.fromkeys(keys)), tuple(blocked)

    def _of_template(self, pod: Raw, entry: Raw, namespace: str, name: str) -> str:
        """The claim made from a template: the one that its controller made, else one that it is going to make."""
        uid = pod.text("metadata.uid")
        if uid and (namespace, uid, name) in self.generated:
            return self.generated[namespace, uid, name]
        requests = self.templates.get(f"{namespace}/{entry.text('resourceClaimTemplateName')}")
        if requests is None:
            return ""
        claim = Claim(namespace, f"{pod.required('metadata.name')}-{name}", requests, is_own=True)
        self.claims.setdefault(claim.key, claim)
        return claim.key

    def _extended(self, pod: Raw, namespace: str) -> Iterator[str]:
        """The claim that the scheduler made for extended resources (KEP-5004), a part for each: they stand for them."""
        status = pod.get("status.extendedResourceClaimStatus")
        asked: dict[str, set[str]] = {}
        for mapping in status.items("requestMappings"):
            resource = schema_name(mapping.text("resourceName"), self.gpu_resources)
            asked.setdefault(resource, set()).add(mapping.text("requestName"))
        claim = self.claims.get(f"{namespace}/{status.text('resourceClaimName')}")
        if claim is None or not asked:
            return
        for number, (resource, requests) in enumerate(asked.items()):
            part = claim if len(asked) == 1 else _part(claim, number, requests)
            self.claims[part.key] = replace(part, extended=resource, is_own=True)
            yield part.key

    def finish(self) -> Claims | None:
        """The snapshot's part; call it when all pods have been read."""
        if not (self.classes or self.devices or self.claims):
            return None
        return Claims(self.classes, self.devices, tuple(self.claims.values()), self.queue_label)


def _part(claim: Claim, number: int, names: set[str]) -> Claim:
    """What some requests of a claim ask for, and have; the first part bears the claim's name."""
    return replace(
        claim,
        name=f"{claim.name}{PART}{number}" if number else claim.name,
        requests=tuple(request for request in claim.requests if request.name in names),
        allotted=None if claim.allotted is None else tuple(a for a in claim.allotted if a.request in names),
    )


def schema_name(resource: str, gpu_resources: tuple[str, ...]) -> str:
    """Name of a resource in the schema: whole GPUs of all vendors are one."""
    return FIXED[GPU] if resource in gpu_resources else resource


def read_claim_book(objects: RawObjects, settings: KubeSettings, notices: Notices) -> ClaimBook:
    """Read classes, slices, claims and templates; broken objects are set aside with a notice."""
    gpus = settings.policy.gpu_resources
    classes = read_each("DeviceClass", objects.device_classes, notices, lambda raw: _class(raw, settings))
    claims = read_each(
        "ResourceClaim", objects.resource_claims, notices, lambda raw: _claim(raw, settings.trust), namespaced_key
    )
    templates = [value for value in objects.other if _is_template(value)]
    return ClaimBook(
        classes=tuple(classes.values()),
        devices=tuple(_devices(objects.resource_slices, notices)),
        claims=claims,
        generated=dict(_generated(objects.resource_claims)),
        templates=read_each(
            TEMPLATE, tuple(templates), notices, lambda raw: _requests(raw.get("spec.spec")), namespaced_key
        ),
        gpu_resources=gpus,
        queue_label=settings.queue_label_key,
    )


def _is_template(value: Object) -> bool:
    return kind_of(value) == TEMPLATE and group_of(value.get("apiVersion")) == GROUP


# -- classes and claims ----------------------------------------------------------------------------------------------


def _class(raw: Raw, settings: KubeSettings) -> DeviceClass:
    gpus = settings.policy.gpu_resources
    selectors, problem = _selectors(raw.get("spec"))
    resource = raw.text("spec.extendedResourceName")
    name = raw.required("metadata.name")
    problem = _stated_problem(raw, settings.trust) or problem
    return DeviceClass(name, selectors, schema_name(resource, gpus) if resource else "", problem)


def _selectors(raw: Raw) -> tuple[tuple[str, ...], str]:
    found = []
    for selector in raw.items("selectors"):
        if not selector.get("cel"):
            return (), "a selector that is not a CEL expression is not supported"
        found.append(selector.required("cel.expression", lines=True))
    return tuple(found), ""


def _requests(spec: Raw) -> tuple[DeviceRequest, ...]:
    """Requests of a claim's or template's spec, each with what is not supported about it."""
    found = tuple(_request(raw) for raw in spec.items("devices.requests"))
    constrained = [raw for raw in spec.items("devices.constraints") if raw.value]
    if constrained and (sum(request.count for request in found) > 1 or any(request.all_devices for request in found)):
        found = tuple(replace(r, problem=r.problem or "constraints between devices are not supported") for r in found)
    return found


def _request(raw: Raw) -> DeviceRequest:
    """v1 has the request in ``exactly``, the betas have it here."""
    name = raw.required("name")
    exact = raw.get("exactly") or raw
    if raw.items("firstAvailable"):
        return DeviceRequest(name, "", problem="firstAvailable is not supported (neither is it by KAI)")
    selectors, problem = _selectors(exact)
    mode = exact.text("allocationMode", "ExactCount")
    if mode not in ("ExactCount", "All"):
        problem = problem or f"allocationMode {mode} is not supported"
    if exact.flag("adminAccess"):
        problem = problem or "adminAccess is not supported"
    if exact.get("capacity"):
        problem = problem or "requests of a part of a device's capacity are not supported"
    count = exact.count("count", 1, 100_000)
    return DeviceRequest(name, exact.required("deviceClassName"), count, mode == "All", selectors, problem)


def _claim(raw: Raw, trust: Trust) -> Claim:
    allocation = raw.get("status.allocation")
    results = [result for result in allocation.items("devices.results") if not result.flag("adminAccess")]
    allotted = tuple(
        Allotted(r.required("request"), r.required("driver"), r.required("pool"), r.required("device")) for r in results
    )
    owners = raw.items("metadata.ownerReferences")
    consumers = [consumer for consumer in raw.items("status.reservedFor") if consumer.text("resource") == "pods"]
    return Claim(
        namespace=raw.text("metadata.namespace") or "default",
        name=raw.required("metadata.name"),
        requests=_requests(raw.get("spec")),
        allotted=allotted if allocation else None,
        reserved=tuple(consumer.required("name") for consumer in consumers),
        labels=raw.strings("metadata.labels"),
        is_own=any(owner.text("kind") == "Pod" for owner in owners),
        problem=_stated_problem(raw, trust),
    )


def _stated_problem(raw: Raw, trust: Trust) -> str:
    """What an export of ours says that is not supported."""
    return printable(trust.stated(raw.strings("metadata.annotations"), names.OWN_PROBLEM))


def _generated(objects: Iterable[Object]) -> Iterator[tuple[tuple[str, str, str], str]]:
    """By namespace and uid of the pod and name of its entry: the claim that was made for it.

    A reference to an owner does not cross namespaces: a claim of another namespace may name any uid.
    """
    for value in objects:
        raw = Raw(value)
        try:
            entry = raw.strings("metadata.annotations").get(_POD_CLAIM_NAME, "")
            for owner in raw.items("metadata.ownerReferences"):
                if entry and owner.text("kind") == "Pod":
                    namespace = raw.text("metadata.namespace") or "default"
                    yield (namespace, owner.required("uid"), entry), namespaced_key(raw)
        except InputError:
            continue  # said where claims are read


# -- slices ----------------------------------------------------------------------------------------------------------


def _devices(objects: Iterable[Object], notices: Notices) -> Iterator[ClaimDevice]:
    """Devices of complete pools that are each on one node; of a pool the newest generation counts."""
    pools: dict[tuple[str, str], list[Raw]] = {}
    for value in objects:
        raw = Raw(value)
        try:
            key = raw.required("spec.driver"), raw.required("spec.pool.name")
            raw.integer("spec.pool.generation")
        except Exception as error:
            notices.set_aside(object_name("ResourceSlice", raw), error)
            continue
        pools.setdefault(key, []).append(raw)
    for (driver, pool), slices in pools.items():
        newest = max(raw.integer("spec.pool.generation") for raw in slices)
        current = [raw for raw in slices if raw.integer("spec.pool.generation") == newest]
        try:
            wanted = current[0].count("spec.pool.resourceSliceCount", len(current))
        except Exception as error:
            notices.set_aside(object_name("ResourceSlice", current[0]), error)
            continue
        if wanted != len(current):
            text = f"has {len(current)} of {wanted} ResourceSlices: its devices are not given yet"
            notices.set_aside(f"pool {pool} of {driver}", text)
            continue
        for raw in current:
            yield from _of_slice(raw, driver, pool, notices)


def _of_slice(raw: Raw, driver: str, pool: str, notices: Notices) -> Iterator[ClaimDevice]:
    name = object_name("ResourceSlice", raw)
    try:
        node = raw.text("spec.nodeName")
        devices = raw.items("spec.devices")
        if not node and devices and not raw.flag("spec.perDeviceNodeSelection"):
            notices.set_aside(name, "its devices are not of one node (nodeSelector, allNodes): not supported")
            return
    except Exception as error:
        notices.set_aside(name, error)
        return
    for device in devices:
        try:
            problem = _device_problem(device)
            if problem:
                notices.set_aside(f"{name}, device {device.text('name')}", problem)
                continue
            yield _device(device, node or device.required("nodeName"), driver, pool)
        except Exception as error:
            notices.set_aside(name, error)


def _device_problem(raw: Raw) -> str:
    """Why the device is given to no pod."""
    here = raw.get("basic") or raw
    if here.items("consumesCounters"):
        return "partitions of devices (consumesCounters) are not supported"
    if here.flag("allowMultipleAllocations"):
        return "devices that several claims may hold (allowMultipleAllocations) are not supported"
    taints = [taint for taint in here.items("taints") if taint.text("effect") in _KEEPS_OUT]
    return f"is tainted: {taints[0].text('key')}" if taints else ""


def _device(raw: Raw, node: str, driver: str, pool: str) -> ClaimDevice:
    """v1beta1 has attributes and capacity in ``basic``."""
    here = raw.get("basic") or raw
    attributes = {qualified(name, driver): _attribute(value) for name, value in here.fields("attributes")}
    capacity = {qualified(name, driver): _capacity(value) for name, value in here.fields("capacity")}
    return ClaimDevice(node, driver, pool, raw.required("name"), attributes, capacity)


def qualified(name: str, driver: str) -> str:
    """A name of an attribute or capacity with its domain, which is the driver where it has none."""
    return name if "/" in name else f"{driver}/{name}"


def _attribute(raw: Raw) -> Attribute:
    if raw.get("bool"):
        return raw.flag("bool")
    if raw.get("int"):
        return raw.integer("int")
    return Version(raw.required("version")) if raw.get("version") else raw.text("string")


def _capacity(raw: Raw) -> str:
    amount = raw.get("value") if isinstance(raw.value, dict) else raw
    amount.quantity()
    return str(amount.value)
