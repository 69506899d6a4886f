"""A snapshot as a running KAI shows it: shared devices have names and reservation pods, pods and gangs have uids."""

import uuid
from collections import defaultdict
from dataclasses import replace
from typing import Any

from kai_solver.claims import raised
from kai_solver.domain import Gang, Pod, PodStatus, Snapshot
from kai_solver.kubeobjects import KubeSettings, export_kai_snapshot, names, objects_from_snapshot
from kai_solver.kubeobjects.raw import format_time
from kai_solver.problem.devices import assign_running

_NAMES = uuid.UUID("6f1b9a52-6f0e-4c5d-9d53-3c1f7c1b6a0e")
"""Of names that are made here: the same snapshot gets the same ones."""


def seated(snapshot: Snapshot) -> Snapshot:
    """The snapshot with a group for each part of a device that a pod holds, and a uid for each pod and gang.

    KAI's tools count a part of a GPU as free where no label names its group. Devices that a snapshot does not name are
    given out as for a plan.

    Source: docs/kai-behaviour.md#reservation-pods.
    """
    snapshot = raised(snapshot)
    groups = _groups(snapshot)

    def pod_of(pod: Pod) -> Pod:
        priority, created_s, uid = pod.order
        named = pod.gpu_groups or groups.get(pod.key, ())
        return replace(pod, gpu_groups=named, order=(priority, created_s, uid or _made("pod", pod.key)))

    def gang_of(gang: Gang) -> Gang:
        uid = gang.uid or _made("gang", gang.key)
        return replace(gang, uid=uid, pods=tuple(map(pod_of, gang.pods)))

    return replace(snapshot, gangs=tuple(map(gang_of, snapshot.gangs)), foreign=tuple(map(pod_of, snapshot.foreign)))


def kai_archive(snapshot: Snapshot) -> bytes:
    """The zip that KAI's ``/get-snapshot`` would answer for the cluster: `seated`, with its reservation pods."""
    snapshot, settings = seated(snapshot), KubeSettings(policy=snapshot.policy)
    objects = objects_from_snapshot(snapshot, settings)
    return export_kai_snapshot(replace(objects, pods=objects.pods + reservation_pods(snapshot)), settings)


def reservation_pods(snapshot: Snapshot) -> tuple[dict[str, Any], ...]:
    """A reservation pod for each shared device of a `seated` snapshot: it holds the whole device for KAI."""
    reserved = sorted({(pod.node, group) for pod in _holders(snapshot) for group in pod.gpu_groups})
    amounts = {snapshot.policy.gpu_resources[0]: "1"}
    return tuple(
        {
            "metadata": {
                "name": f"gpu-reservation-{_made(node, group)[:16].replace('-', '')}",
                "namespace": names.RESERVATION_NAMESPACE,
                "uid": _made(node, group),
                "creationTimestamp": format_time(snapshot.now_s),
                "labels": {"app": names.RESERVATION_NAMESPACE, names.GPU_GROUP: group},
                "annotations": {"karpenter.sh/do-not-disrupt": "true"},
            },
            "spec": {
                "schedulerName": "default-scheduler",
                "nodeName": node,
                "containers": [{"name": "resource-reservation", "resources": {"limits": amounts, "requests": amounts}}],
            },
            "status": {"phase": "Running"},
        }
        for node, group in reserved
    )


def _groups(snapshot: Snapshot) -> dict[str, tuple[str, ...]]:
    """Names of the devices, by pod, of those that hold parts and have none; pods on one device share its name."""
    pods_of: dict[str, list[Pod]] = defaultdict(list)
    for pod in _on_devices(snapshot):
        pods_of[pod.node].append(pod)
    nodes = {node.name: node for node in snapshot.nodes}
    found: dict[str, tuple[str, ...]] = {}
    for name, pods in pods_of.items():
        if name not in nodes or not any(pod.gpu.is_shared for pod in pods):
            continue
        given, _ = assign_running(nodes[name], list(enumerate(pods)))
        known = {
            device: group
            for at, pod in enumerate(pods)
            if len(given[at]) == len(pod.gpu_groups)
            for device, group in zip(given[at], pod.gpu_groups, strict=True)
        }
        for at, pod in enumerate(pods):
            if pod.gpu.is_shared:
                found[pod.key] = tuple(known.setdefault(device, _made(name, str(device))) for device in given[at])
    return found


def _on_devices(snapshot: Snapshot) -> list[Pod]:
    pods = [pod for gang in snapshot.gangs for pod in gang.pods] + list(snapshot.foreign)
    return [pod for pod in pods if pod.gpu.devices and pod.node and pod.status.holds_resources]


def _holders(snapshot: Snapshot) -> list[Pod]:
    """Pods with parts of devices that are bound; those that are being bound may have no reservation yet."""
    return [pod for pod in _on_devices(snapshot) if pod.gpu.is_shared and pod.status is not PodStatus.BINDING]


def _made(*parts: str) -> str:
    return str(uuid.uuid5(_NAMES, "\0".join(parts)))
