"""Extended resources that devices by claim back (KEP-5004): the pod's request becomes a claim of its own."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from kai_solver.domain import NO_GPU, Claim, Claims, DeviceRequest, Gang, Pod, Snapshot
from kai_solver.units import ResourceSchema
from kai_solver.units.resources import FIXED, GPU

PREFIX = "deviceclass.resource.kubernetes.io/"
"""A resource of this name asks for devices of the class whose name follows."""

_GPU_NAME = FIXED[GPU]


def backed_resources(claims: Claims, schema: ResourceSchema) -> dict[str, str]:
    """Device class by the resource of the schema that it backs. Of several classes the first by name."""
    found: dict[str, str] = {}
    for known in sorted(claims.classes, key=lambda c: c.name):
        for resource in (known.extended_resource, PREFIX + known.name):
            if resource and resource in schema.names:
                found.setdefault(resource, known.name)
    return found


@dataclass(frozen=True, slots=True)
class _Backing:
    """What turns requests of ``backed`` resources into claims."""

    backed: Mapping[str, str]
    schema: ResourceSchema
    existing: Mapping[str, Claim]
    made: dict[str, Claim]

    def pod(self, pod: Pod) -> Pod:
        """``pod`` without the backed resources, with claims in their place."""
        told = {self.existing[key].extended for key in pod.claims if key in self.existing}
        for resource, device_class in self.backed.items():
            count, rest = self._taken_off(pod, resource)
            if not count:
                continue
            pod = rest
            if resource not in told:
                name = f"{pod.name}-extended-{len(pod.claims)}"
                request = DeviceRequest(resource.rpartition("/")[2], device_class, count)
                claim = Claim(pod.namespace, name, (request,), is_own=True, extended=resource)
                self.made[claim.key] = claim
                pod = replace(pod, claims=(*pod.claims, claim.key))
        return pod

    def _taken_off(self, pod: Pod, resource: str) -> tuple[int, Pod]:
        if resource == _GPU_NAME:
            if not pod.gpu.is_whole:
                return 0, pod
            return pod.gpu.devices, replace(pod, gpu=NO_GPU, devices=())
        place = self.schema.index(resource)
        count = pod.request[place]
        return count, replace(pod, request=(*pod.request[:place], 0, *pod.request[place + 1 :]))


def with_extended_claims(snapshot: Snapshot, claims: Claims) -> tuple[Snapshot, dict[str, Claim]]:
    """Snapshot in which no pod requests backed resources, and the claims that were made instead."""
    backed = backed_resources(claims, snapshot.schema)
    made: dict[str, Claim] = {}
    if not backed:
        return snapshot, made
    backing = _Backing(backed, snapshot.schema, {claim.key: claim for claim in claims.claims}, made)

    def gang_of(gang: Gang) -> Gang:
        return replace(gang, pods=tuple(backing.pod(pod) for pod in gang.pods))

    gangs = tuple(gang_of(gang) for gang in snapshot.gangs)
    return replace(snapshot, gangs=gangs, foreign=tuple(backing.pod(pod) for pod in snapshot.foreign)), made
