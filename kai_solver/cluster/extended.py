"""Extended resources that DRA serves (KEP-5004): we make the claim, and name it in the pod's status for the kubelet.

As kube-scheduler's plugin DynamicResources does. A server whose feature gate ``DRAExtendedResource`` is off keeps no
``status.extendedResourceClaimStatus``: that is how it is known, and then nothing of this is tried for a while.
"""

import enum
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from kai_solver.claims.extended import PREFIX
from kai_solver.cluster.api import Api, Object, key_of, meta
from kai_solver.cluster.assumed import LONGEST_S
from kai_solver.cluster.binding import BindError, Placement
from kai_solver.cluster.devices import FINALIZER, allocation_of, is_allocated
from kai_solver.cluster.locking import if_there
from kai_solver.cluster.resources import DEVICE_CLASSES, PODS, RESOURCE_CLAIMS
from kai_solver.cluster.store import Store
from kai_solver.domain import Allotted
from kai_solver.kubeobjects.raw import Raw
from kai_solver.kubeobjects.resources import pod_request
from kai_solver.units import GPU_RESOURCES

MARK = "resource.kubernetes.io/extended-resource-claim"
STATUS = "extendedResourceClaimStatus"
AGAIN_S = 600.0
"""A server without the feature gate is asked again only then."""

OFF = "the API server's feature gate DRAExtendedResource is off: ask for the device by a resource claim"


@dataclass(frozen=True, slots=True)
class _Given:
    """What a pod gets: the claim, as it will be until it is made, and what the pod's status says of it."""

    uid: str
    claim: Object
    status: Object


class _Role(enum.Enum):
    """When a container runs: with all others, from before them on, or before them alone."""

    LASTING = enum.auto()
    SIDECAR = enum.auto()
    SHORT = enum.auto()


@dataclass(frozen=True, slots=True)
class _Asked:
    """So many devices of a class for a resource of a container, by the request of this name."""

    request: str
    container: str
    resource: str
    device_class: str
    count: int
    role: _Role


def _settled(asking: list[_Asked], total: int) -> list[_Asked]:
    """What containers ask for one resource, short ones by requests of others; ``total``: what the pod has of it."""
    by_count = {asked.count: asked for asked in reversed(asking) if asked.role is _Role.LASTING}
    if all(asked.role is not _Role.SHORT or asked.count in by_count for asked in asking):
        return [
            replace(asked, request=by_count[asked.count].request) if asked.role is _Role.SHORT else asked
            for asked in asking
        ]
    return [replace(asked, request=asking[0].request, count=total) for asked in asking]


@dataclass(slots=True)
class Extended:
    """`Preparation` of such claims; what no watch has shown is laid over pods and claims."""

    api: Api
    store: Store
    clock: Callable[[], float] = time.monotonic
    _given: dict[str, _Given] = field(default_factory=dict)
    """By pod."""
    _doubted: dict[str, tuple[_Given, float]] = field(default_factory=dict)
    """By pod what could not be taken away, and until when its devices count as given; then see `UnusedClaims`."""
    _off_until_s: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def concerns(self, placement: Placement) -> bool:
        """Whether the plan gives the pod devices for an extended resource."""
        return bool(placement.extended)

    def assume(self, placement: Placement) -> None:
        """Count the devices as the pod's."""
        with suppress(BindError):
            given = self._wanted(placement)
            with self._lock:
                self._given[placement.key] = given

    def prepare(self, placement: Placement) -> None:
        """Make the claim, allocate it, and name it in the pod's status.

        Raises
        ------
        BindError
            The server does not know such claims, or the plan does not fit the pod.
        """
        if self.clock() < self._off_until_s:
            raise BindError(OFF)
        given = self._made(placement) or self._make(placement)
        name = str(meta(given.claim)["name"])
        status = {"status": given.claim["status"]}
        self.api.patch(RESOURCE_CLAIMS, placement.namespace, name, status, subresource="status")
        body = {"metadata": {"uid": placement.uid}, "status": {STATUS: given.status}}
        pod = self.api.patch(PODS, placement.namespace, placement.name, body, subresource="status")
        if not Raw(pod).get(f"status.{STATUS}"):
            self._off_until_s = self.clock() + AGAIN_S
            raise BindError(OFF)

    def undo(self, placement: Placement) -> None:
        """Take both away."""
        made = self._made(placement)
        with self._lock:  # whatever becomes of it, no later plan may take the pod for told: it would never start
            self._given.pop(placement.key, None)
            if made is not None:
                self._doubted[placement.key] = made, self.clock() + LONGEST_S
            given, _ = self._doubted.get(placement.key, (None, 0.0))
        if given is not None and given.uid == placement.uid:
            untell(self.api, placement.namespace, placement.name, placement.uid)
            remove(self.api, placement.namespace, str(meta(given.claim)["name"]))
            with self._lock:
                self._doubted.pop(placement.key, None)

    def clear(self) -> None:
        """Lay nothing over what the server shows."""
        with self._lock:
            self._given.clear()
            self._doubted.clear()

    def _made(self, placement: Placement) -> _Given | None:
        """The claim that an earlier try made for this pod: one answer got lost, and that is no reason for another."""
        with self._lock:
            given = self._given.get(placement.key)
        return given if given is not None and given.uid == placement.uid and meta(given.claim).get("uid") else None

    def _make(self, placement: Placement) -> _Given:
        given = self._wanted(placement)
        if Raw(self.store.get(PODS, placement.key) or {}).get(f"status.{STATUS}"):
            raise BindError("the pod has a claim for its extended resources already")
        body = {key: given.claim[key] for key in ("metadata", "spec")}
        body["metadata"] = {name: part for name, part in body["metadata"].items() if name not in ("name", "uid")}
        body["metadata"]["generateName"] = f"{placement.name}-extended-resources-"
        made = self.api.create(RESOURCE_CLAIMS, placement.namespace, body)
        status = given.status | {"resourceClaimName": str(meta(made)["name"])}
        given = _Given(placement.uid, {**given.claim, "metadata": meta(made)}, status)
        with self._lock:
            self._given[placement.key] = given
        return given

    # -- what is wanted ------------------------------------------------------------------------------------------------

    def _wanted(self, placement: Placement) -> _Given:
        """The claim that `_asking` describes, with the devices of the plan."""
        pod = self.store.get(PODS, placement.key)
        if pod is None or meta(pod).get("uid") != placement.uid:
            raise BindError("the pod is gone")
        left: dict[str, list[Allotted]] = defaultdict(list)
        for device_class, devices in placement.extended:
            left[device_class] += devices
        requests: dict[str, Object] = {}
        mappings: list[Object] = []
        results: list[Allotted] = []
        for asked in self._asking(Raw(pod), left):
            name, device_class, count = asked.request, asked.device_class, asked.count
            mappings.append({"containerName": asked.container, "resourceName": asked.resource, "requestName": name})
            if name in requests:
                continue
            exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
            requests[name] = {"name": name, "exactly": exactly}
            given, left[device_class] = left[device_class][:count], left[device_class][count:]
            results += [Allotted(name, found.driver, found.pool, found.device) for found in given]
        if any(left.values()) or len(results) != sum(one["exactly"]["count"] for one in requests.values()):
            classes = ", ".join(f"{len(devices)} of class {name}" for name, devices in placement.extended)
            raise BindError(f"the planned devices ({classes}) are not what its containers ask for")
        name = f"{placement.name}-extended-resources"
        owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.uid, "controller": True}
        metadata: Object = {"name": name, "namespace": placement.namespace, "ownerReferences": [owner]}
        metadata |= {"annotations": {MARK: "true"}, "finalizers": [FINALIZER]}
        user = {"resource": "pods", "name": placement.name, "uid": placement.uid}
        claim: Object = {"metadata": metadata, "spec": {"devices": {"requests": list(requests.values())}}}
        allocation = allocation_of(self.store, claim, tuple(results), placement.node)
        claim["status"] = {"allocation": allocation, "reservedFor": [user]}
        return _Given(placement.uid, claim, {"resourceClaimName": name, "requestMappings": mappings})

    def _asking(self, pod: Raw, classes: Iterable[str]) -> Iterator["_Asked"]:
        """What all containers ask of the classes: one request for each, as kube-scheduler writes it, if none is short.

        A short container ends before others begin (an init container, no sidecar), and its devices are theirs then: the
        pod has as many as it needs at one time. It gets those of a container that asks for as many. Where there is
        none, one request is for all: the API maps a container to one request, and a device is in one.
        """
        backing = {resource: name for name in sorted(classes) for resource in self._names(name)}
        before = pod.items("spec.initContainers")
        found: dict[str, list[_Asked]] = defaultdict(list)
        for index, container in enumerate((*before, *pod.items("spec.containers"))):
            stated = container.strings("resources.limits") | container.strings("resources.requests")
            is_sidecar = index < len(before) and container.text("restartPolicy") == "Always"
            for number, resource in enumerate(sorted(backing.keys() & stated.keys())):
                request, name = f"container-{index}-request-{number}", container.text("name")
                role = _Role.SIDECAR if is_sidecar else _Role.SHORT if index < len(before) else _Role.LASTING
                asked = _Asked(request, name, resource, backing[resource], int(stated[resource]), role)
                found[resource].append(asked)
        total = pod_request(pod.get("spec"), GPU_RESOURCES)
        settled = (each for resource, asking in found.items() for each in _settled(asking, total[resource]))
        yield from sorted(settled, key=lambda asked: asked.role is _Role.SHORT)

    def _names(self, device_class: str) -> set[str]:
        """Resources by which the class is asked for."""
        found = Raw(self.store.get(DEVICE_CLASSES, device_class) or {})
        return {PREFIX + device_class, found.text("spec.extendedResourceName")} - {""}

    # -- what no watch has shown ---------------------------------------------------------------------------------------

    def pods(self, pods: tuple[Object, ...], _now_s: float) -> tuple[Object, ...]:
        """The pods with the claims that they are being given; all others are the very same."""
        with self._lock:
            if not self._given:
                return pods
            here = {key_of(pod): pod for pod in pods}
            for key, given in list(self._given.items()):
                if key not in here or meta(here[key]).get("uid") != given.uid or self._is_over(key, given):
                    del self._given[key]
            stated = {key: given.status for key, given in self._given.items()}
        if not stated:
            return pods
        return tuple(_with_status(pod, stated.get(key_of(pod))) for pod in pods)

    def claims(self, claims: tuple[Object, ...], _now_s: float) -> tuple[Object, ...]:
        """The claims, and those that are being made; to be asked after `pods`."""
        with self._lock:
            now_s = self.clock()
            self._doubted = {key: found for key, found in self._doubted.items() if found[1] > now_s}
            found = (*(given for given, _ in self._doubted.values()), *self._given.values())
            given = {key_of(each.claim): each.claim for each in found}
        if not given:
            return claims
        return (*(claim for claim in claims if key_of(claim) not in given), *given.values())

    def _is_over(self, key: str, given: _Given) -> bool:
        """Whether the watch shows all of it, the pod's node too: until then it may have to be taken away."""
        pod, claim = Raw(self.store.get(PODS, key) or {}), self.store.get(RESOURCE_CLAIMS, key_of(given.claim))
        is_stated = pod.text(f"status.{STATUS}.resourceClaimName") == given.status["resourceClaimName"]
        return bool(pod.text("spec.nodeName")) and is_stated and is_allocated(claim)


def untell(api: Api, namespace: str, name: str, uid: str) -> None:
    """Have the pod name no claim."""
    with if_there():
        none = {"metadata": {"uid": uid}, "status": {STATUS: None}}
        api.patch(PODS, namespace, name, none, subresource="status")


def remove(api: Api, namespace: str, name: str) -> None:
    """Delete the claim of a pod that does not name it."""
    with if_there():
        free = {"status": {"allocation": None, "reservedFor": None}}
        api.patch(RESOURCE_CLAIMS, namespace, name, free, subresource="status")
        api.patch(RESOURCE_CLAIMS, namespace, name, {"metadata": {"finalizers": None}})
        api.delete(RESOURCE_CLAIMS, namespace, name)


def _with_status(pod: Object, status: Object | None) -> Object:
    if status is None:
        return pod
    stands = pod.get("status")
    return {**pod, "status": {**(stands if isinstance(stands, dict) else {}), STATUS: status}}
