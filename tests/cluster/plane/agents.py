"""What runs on nodes or beside us in a real cluster: small, and wanting where a test wants it so."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from kai_solver.cluster.api import ApiError, Object, meta
from kai_solver.cluster.resources import (
    BIND_REQUESTS,
    PERSISTENT_VOLUME_CLAIMS,
    PERSISTENT_VOLUMES,
    PODS,
    RESOURCE_CLAIMS,
)
from tests.cluster.plane.cluster import SPACE
from tests.cluster.plane.plane import Plane

LOOK_S = 0.1
RESERVED = "kai-resource-reservation"
GROUP = "runai-gpu-group"
INDEX = "run.ai/reserve_for_gpu_index"
SELECTED = "volume.kubernetes.io/selected-node"


@contextmanager
def working(look: Callable[[], object], every_s: float = LOOK_S) -> Iterator[None]:
    """Somebody who looks again and again; what comes in between (an object is gone, or changed) he meets next time."""
    over = threading.Event()

    def work() -> None:
        while not over.wait(every_s):
            try:
                look()
            except ApiError:
                continue

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(10)


def reservations(plane: Plane) -> list[Object]:
    """Reservation pods that are not leaving."""
    found = plane.api.page(PODS, namespace=RESERVED).items
    return [pod for pod in found if not meta(pod).get("deletionTimestamp")]


@dataclass(slots=True)
class DeviceAgent:
    """In each reservation pod: writes which device of its node it got, once the pod runs; ``silent``: nothing."""

    plane: Plane
    silent: bool = False

    def look(self) -> None:
        """Tell those that do not know yet, the lowest free index of their node."""
        if self.silent:
            return
        found = [pod for pod in reservations(self.plane) if pod.get("status", {}).get("phase") == "Running"]
        known = [(pod, (pod["metadata"].get("annotations") or {}).get(INDEX)) for pod in found]
        taken = {(pod["spec"]["nodeName"], index) for pod, index in known}
        for pod, told in known:
            if told is None:
                node = pod["spec"]["nodeName"]
                index = next(str(one) for one in range(16) if (node, str(one)) not in taken)
                body = {"metadata": {"annotations": {INDEX: index}}}
                self.plane.api.patch(PODS, RESERVED, pod["metadata"]["name"], body)
                taken.add((node, index))


@dataclass(slots=True)
class Provisioner:
    """Makes volumes for claims that name a node; on nodes of ``refused`` it gives up, and takes the name off again."""

    plane: Plane
    refused: frozenset[str] = frozenset()
    asked: list[str] = field(default_factory=list)
    """Nodes that it was asked for, in order."""

    def look(self) -> None:
        """Serve the claims that wait."""
        for claim in self.plane.api.page(PERSISTENT_VOLUME_CLAIMS).items:
            node = (meta(claim).get("annotations") or {}).get(SELECTED)
            if node and not claim["spec"].get("volumeName"):
                self.asked += [node] if self.asked[-1:] != [node] else []
                if node in self.refused:
                    self._give_up(claim)
                else:
                    self._make(claim, node)

    def _give_up(self, claim: Object) -> None:
        metadata = claim["metadata"]
        body = {"metadata": {"annotations": {SELECTED: None}}}
        self.plane.api.patch(PERSISTENT_VOLUME_CLAIMS, metadata["namespace"], metadata["name"], body)

    def _make(self, claim: Object, node: str) -> None:
        metadata = claim["metadata"]
        holder = {name: metadata[name] for name in ("namespace", "name", "uid")}
        spec = volume_spec(claim["spec"]["storageClassName"], node) | {
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **holder}
        }
        self.plane.api.create(PERSISTENT_VOLUMES, "", {"metadata": {"name": f"made-{metadata['uid']}"}, "spec": spec})


def volume_spec(kind: str, node: str, size: str = "10Gi") -> dict[str, Any]:
    """A volume on the disk of one node."""
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    return {
        "capacity": {"storage": size},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": kind,
        "persistentVolumeReclaimPolicy": "Retain",
        "local": {"path": "/disk"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
    }


@dataclass(slots=True)
class KaiBinder:
    """KAI's binder, as far as whole devices and claims go: does what BindRequests say (docs/kai-behaviour.md#binding).

    ``refused``: fails for pods of these names, once each; ``silent``: does nothing.
    """

    plane: Plane
    refused: set[str] = field(default_factory=set)
    silent: bool = False
    seen: dict[str, Object] = field(default_factory=dict)
    """Requests by pod, as they were asked."""

    def look(self) -> None:
        """Serve all requests that wait."""
        if self.silent:
            return
        for request in self.plane.api.page(BIND_REQUESTS, limit=10_000).items:
            if not request.get("status"):
                self._serve(request)

    def _serve(self, request: Object) -> None:
        name = request["spec"]["podName"]
        self.seen[name] = request
        if name in self.refused:
            self.refused.discard(name)
            self._say(request, {"phase": "Failed", "reason": "the disk is full"})
            return
        pod = self.plane.api.get(PODS, SPACE, name)
        for given in request["spec"].get("resourceClaimAllocations", ()):
            self._allocate(pod, given)
        if not pod["spec"].get("nodeName"):
            target = {"kind": "Node", "name": request["spec"]["selectedNode"]}
            self.plane.api.create(PODS, SPACE, {"metadata": {"name": name}, "target": target}, subresource="binding")
        self._say(request, {"phase": "Succeeded"})

    def _allocate(self, pod: Object, given: Object) -> None:
        stated = {one["name"]: one["resourceClaimName"] for one in pod["status"].get("resourceClaimStatuses", ())}
        (entry,) = [one for one in pod["spec"]["resourceClaims"] if one["name"] == given["name"]]
        claim = entry.get("resourceClaimName") or stated[given["name"]]
        user = {"resource": "pods", "name": pod["metadata"]["name"], "uid": pod["metadata"]["uid"]}
        status = {"allocation": given["allocation"], "reservedFor": [user]}
        finalizers = {"metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}}
        self.plane.api.patch(RESOURCE_CLAIMS, SPACE, claim, finalizers)
        self.plane.api.patch(RESOURCE_CLAIMS, SPACE, claim, {"status": status}, subresource="status")

    def _say(self, request: Object, status: Mapping[str, Any]) -> None:
        name = request["metadata"]["name"]
        self.plane.api.patch(BIND_REQUESTS, SPACE, name, {"status": dict(status)}, subresource="status")
