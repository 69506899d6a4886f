"""BindRequests: pods that the binder is about to bind (docs/kai-behaviour.md#binding, #bindrequest)."""

from dataclasses import dataclass

from kai_solver.domain import ZoneShare
from kai_solver.kubeobjects.notices import Notices, read_each
from kai_solver.kubeobjects.objects import Object
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.zones import placement


@dataclass(frozen=True, slots=True)
class Binding:
    """Where a pod is going: its uid (empty where unknown), node, shared devices and NUMA zones."""

    pod_uid: str
    node: str
    gpu_groups: tuple[str, ...]
    zones: tuple[ZoneShare, ...] = ()


def read_bindings(objects: tuple[Object, ...], notices: Notices, gpu_resources: tuple[str, ...]) -> dict[str, Binding]:
    """Live requests by ``namespace/pod``; failed ones are over, for KAI never retries them."""
    return read_each("BindRequest", objects, notices, lambda raw: _live(raw, gpu_resources), _pod_key)


def binding_of(bindings: dict[str, Binding], key: str, uid: str) -> Binding | None:
    """The request of this very pod, not of an earlier one of that name."""
    binding = bindings.get(key)
    if binding is None or (binding.pod_uid and uid and binding.pod_uid != uid):
        return None
    return binding


def _pod_key(raw: Raw) -> str:
    return f"{raw.text('metadata.namespace') or 'default'}/{raw.required('spec.podName')}"


def _live(raw: Raw, gpu_resources: tuple[str, ...]) -> Binding | None:
    if is_given_up(raw):
        return None
    owners = [owner.text("uid") for owner in raw.items("metadata.ownerReferences") if owner.text("kind") == "Pod"]
    groups = tuple(group.text() for group in raw.items("spec.selectedGPUGroups"))
    zones = placement(raw.get("spec.predictedNUMAZones"), gpu_resources)
    return Binding(owners[0] if owners else "", raw.required("spec.selectedNode"), groups, zones)


def is_given_up(raw: Raw) -> bool:
    """Whether a request failed, and will not be tried again."""
    limit = raw.get("spec.backoffLimit")
    has_failed = raw.text("status.phase") == "Failed"
    return has_failed and (not limit or raw.count("status.failedAttempts") >= limit.integer())
