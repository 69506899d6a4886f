"""Resource claims as Kubernetes objects (``resource.k8s.io/v1``)."""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from kai_solver.domain import Attribute, Claim, ClaimDevice, Claims, DeviceClass, DeviceRequest, Pod, Version
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.settings import KubeSettings
from kai_solver.units.resources import FIXED, GPU

Written = dict[str, Any]


def claim_objects(claims: Claims | None, settings: KubeSettings) -> dict[str, Any]:
    """Members of ``RawObjects``; what our own reading set aside is in an annotation."""
    if claims is None:
        return {}
    return {
        "device_classes": tuple(_class(known, settings) for known in claims.classes),
        "resource_slices": tuple(_slices(claims.devices)),
        "resource_claims": tuple(_claim(claim) for claim in claims.claims),
    }


def pod_claims(pod: Pod) -> list[Written]:
    """``spec.resourceClaims`` of a pod."""
    named = (key.rpartition("/")[2] for key in pod.claims)
    return [{"name": f"claim-{number}", "resourceClaimName": name} for number, name in enumerate(named)]


def _annotated(problem: str) -> Written:
    return {"annotations": {names.OWN_PROBLEM: problem}} if problem else {}


def _selectors(expressions: Iterable[str]) -> list[Written]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def _class(known: DeviceClass, settings: KubeSettings) -> Written:
    resource = known.extended_resource
    resource = settings.policy.gpu_resources[0] if resource == FIXED[GPU] else resource
    spec: Written = {"selectors": _selectors(known.selectors)}
    return {
        "metadata": {"name": known.name, **_annotated(known.problem)},
        "spec": spec | ({"extendedResourceName": resource} if resource else {}),
    }


def _slices(devices: Iterable[ClaimDevice]) -> Iterable[Written]:
    """A slice for each node of a pool, which says how many there are: one that lacks slices is not given out."""
    pools: dict[tuple[str, str, str], list[Written]] = {}
    for device in devices:
        pools.setdefault((device.driver, device.pool, device.node), []).append(_device(device))
    slices = Counter((driver, pool) for driver, pool, _ in pools)
    for number, ((driver, pool, node), offered) in enumerate(pools.items()):
        whole = {"name": pool, "generation": 1, "resourceSliceCount": slices[driver, pool]}
        spec = {"driver": driver, "pool": whole, "nodeName": node, "devices": offered}
        yield {"metadata": {"name": f"slice-{number}"}, "spec": spec}


def _device(device: ClaimDevice) -> Written:
    attributes = {name: _attribute(value) for name, value in device.attributes.items()}
    capacity = {name: {"value": value} for name, value in device.capacity.items()}
    return {"name": device.name, "attributes": attributes, "capacity": capacity}


def _attribute(value: Attribute) -> Written:
    if isinstance(value, Version):
        return {"version": value.text}
    kind = "bool" if isinstance(value, bool) else "int" if isinstance(value, int) else "string"
    return {kind: value}


def _claim(claim: Claim) -> Written:
    metadata: Written = {"name": claim.name, "namespace": claim.namespace, "labels": dict(claim.labels)}
    problem = claim.problem or next((request.problem for request in claim.requests if request.problem), "")
    metadata |= _annotated(problem)
    if claim.is_own:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "name": claim.name, "uid": claim.name}]
    status: Written = {"reservedFor": [{"resource": "pods", "name": name, "uid": name} for name in claim.reserved]}
    if claim.allotted is not None:
        results = [
            {"request": a.request, "driver": a.driver, "pool": a.pool, "device": a.device} for a in claim.allotted
        ]
        status["allocation"] = {"devices": {"results": results}}
    requests = [_request(request) for request in claim.requests]
    return {"metadata": metadata, "spec": {"devices": {"requests": requests}}, "status": status}


def _request(request: DeviceRequest) -> Written:
    exactly: Written = {
        "deviceClassName": request.device_class or "unknown",
        "selectors": _selectors(request.selectors),
        "allocationMode": "All" if request.all_devices else "ExactCount",
    }
    return {"name": request.name, "exactly": exactly if request.all_devices else {**exactly, "count": request.count}}
