"""Resource claims of a pod (``resource.k8s.io/v1``): allocated as planned and reserved for the pod before it is bound.

As kube-scheduler's plugin DynamicResources does, in the claim's status, with optimistic locking. Until the watch shows
an allocation the next cycles count it all the same, or they would give its devices away a second time.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kai_solver.cluster.api import Api, Object, key_of, meta, version_of
from kai_solver.cluster.assumed import LONGEST_S
from kai_solver.cluster.binding import BindError, Placement
from kai_solver.cluster.locking import if_there, locking
from kai_solver.cluster.resources import DEVICE_CLASSES, RESOURCE_CLAIMS
from kai_solver.cluster.store import Store
from kai_solver.domain import MOST_CONSUMERS, Allotted
from kai_solver.kubeobjects.raw import Raw

FINALIZER = "resource.kubernetes.io/delete-protection"
"""A claim that holds devices is not deleted before they are given back."""

_STRIPES = 64
_REMEMBERED = 4096


@dataclass(slots=True)
class Devices:
    """`Preparation` of resource claims."""

    api: Api
    store: Store
    monotonic: Callable[[], float] = time.monotonic
    _wanted: dict[str, dict[str, Object]] = field(default_factory=dict)
    """Allocations by claim that no watch has shown, each by the pods that wait for it."""
    _doubted: dict[str, tuple[Placement, float]] = field(default_factory=dict)
    """Pods whose allocations could not be taken back, and until when they count: what was written, watches show."""
    _wrote: dict[str, None] = field(default_factory=dict)
    """Claims (their uid) that were allocated here, the last ones: unused, they are given back."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _stripes: Sequence[threading.Lock] = field(default_factory=lambda: [threading.Lock() for _ in range(_STRIPES)])

    def concerns(self, placement: Placement) -> bool:
        """Whether the pod has claims."""
        return bool(placement.claims)

    def assume(self, placement: Placement) -> None:
        """Count the devices as given."""
        with self._lock:
            self._doubted.pop(placement.key, None)
            for key, devices in placement.claims:
                if devices and not is_allocated(self.store.get(RESOURCE_CLAIMS, key)):
                    self._wanted.setdefault(key, {})[placement.key] = allocation_of(
                        self.store, self.store.get(RESOURCE_CLAIMS, key), devices, placement.node
                    )

    def overlay(self, claims: tuple[Object, ...], _now_s: float) -> tuple[Object, ...]:
        """The claims as they will be; those that nothing is assumed of are the very same objects."""
        with self._lock:
            now_s = self.monotonic()
            for placement in [found for found, until_s in self._doubted.values() if until_s <= now_s]:
                self._drop(placement)
            if not self._wanted:
                return claims
            known = {key_of(claim): claim for claim in claims}
            for key in [key for key in self._wanted if key not in known or is_allocated(known[key])]:
                del self._wanted[key]
            if not self._wanted:
                return claims
            wanted = {key: next(iter(found.values())) for key, found in self._wanted.items() if found}
        return tuple(with_allocation(claim, wanted.get(key_of(claim))) for claim in claims)

    def prepare(self, placement: Placement) -> None:
        """Allocate every claim that is not, and reserve all of them for the pod.

        Raises
        ------
        BindError
            A claim was allocated by another client meanwhile, or has too many users.
        """
        for key, devices in placement.claims:
            namespace, _, name = key.partition("/")
            with self.turn(key):
                locking(
                    lambda: self._protected(namespace, name),  # noqa: B023 - runs at once
                    lambda claim: self._write(claim, placement, key, devices),  # noqa: B023
                )

    def undo(self, placement: Placement) -> None:
        """Release the pod's reservations, and devices that this attempt gave to claims that no other pod uses.

        Until that is done they count as given: no watch may have shown yet that they are. If it cannot be done, they
        do so for a while only.
        """
        with self._lock:
            self._doubted[placement.key] = placement, self.monotonic() + LONGEST_S
        for key, _ in placement.claims:
            namespace, _, name = key.partition("/")
            with if_there(), self.turn(key):
                locking(
                    lambda: self.api.get(RESOURCE_CLAIMS, namespace, name),  # noqa: B023 - runs at once
                    lambda claim: self._release(claim, placement),
                )
        self.forget(placement)

    def forget(self, placement: Placement) -> None:
        """Count the devices as given no longer."""
        with self._lock:
            self._drop(placement)

    def _drop(self, placement: Placement) -> None:
        self._doubted.pop(placement.key, None)
        for key, _ in placement.claims:
            self._wanted.get(key, {}).pop(placement.key, None)
            if not self._wanted.get(key):
                self._wanted.pop(key, None)

    def clear(self) -> None:
        """Count nothing as given that the server does not show."""
        with self._lock:
            self._wanted.clear()
            self._doubted.clear()

    def turn(self, key: str) -> threading.Lock:
        """Pods of a gang that share a claim take turns: each changes it."""
        return self._stripes[hash(key) % _STRIPES]

    def _protected(self, namespace: str, name: str) -> Object:
        """The claim as it is, with the finalizer of allocated ones."""
        claim = self.api.get(RESOURCE_CLAIMS, namespace, name)
        finalizers = list(meta(claim).get("finalizers") or ())
        if FINALIZER in finalizers or is_allocated(claim):
            return claim
        metadata = {"resourceVersion": version_of(claim), "finalizers": [*finalizers, FINALIZER]}
        return self.api.patch(RESOURCE_CLAIMS, namespace, name, {"metadata": metadata})

    def _write(self, claim: Object, placement: Placement, key: str, devices: tuple[Allotted, ...]) -> None:
        raw = Raw(claim)
        status: dict[str, Any] = {}
        if raw.get("metadata.deletionTimestamp"):
            raise BindError(f'resource claim "{key}" is being deleted')
        if not is_allocated(claim):
            status["allocation"] = allocation_of(self.store, claim, devices, placement.node)
        elif _given(raw) != {(found.request, *found.id) for found in devices}:
            raise BindError(f'resource claim "{key}" was allocated by another client meanwhile')
        users = [user.value for user in raw.items("status.reservedFor")]
        if all(Raw(user).text("uid") != placement.uid for user in users):
            if len(users) >= MOST_CONSUMERS:
                raise BindError(f'resource claim "{key}" has {len(users)} users, and may not have more')
            status["reservedFor"] = [*users, {"resource": "pods", "name": placement.name, "uid": placement.uid}]
        if status:
            body = {"metadata": {"resourceVersion": version_of(claim)}, "status": status}
            self.api.patch(
                RESOURCE_CLAIMS, raw.text("metadata.namespace"), raw.text("metadata.name"), body, subresource="status"
            )
        if not status or "allocation" in status:  # now, or in an earlier try: its answer got lost
            self._remember(raw.text("metadata.uid"))

    def _remember(self, uid: str) -> None:
        with self._lock:
            self._wrote[uid] = None
            while len(self._wrote) > _REMEMBERED:
                del self._wrote[next(iter(self._wrote))]

    def _release(self, claim: Object, placement: Placement) -> None:
        raw = Raw(claim)
        users = [user.value for user in raw.items("status.reservedFor")]
        left = [user for user in users if Raw(user).text("uid") != placement.uid]
        with self._lock:
            is_ours = raw.text("metadata.uid") in self._wrote
        if len(left) == len(users) and (left or not is_ours):
            return
        status: dict[str, Any] = {"reservedFor": left or None}
        if is_ours and not left:
            status["allocation"] = None
        body = {"metadata": {"resourceVersion": version_of(claim)}, "status": status}
        self.api.patch(
            RESOURCE_CLAIMS, raw.text("metadata.namespace"), raw.text("metadata.name"), body, subresource="status"
        )
        if not left:
            self._forget_write(claim)

    def give_back(self, claim: Object) -> None:
        """Take the devices from a claim as it was read, and from its only user; `ApiError` where it changed since."""
        namespace, _, name = key_of(claim).partition("/")
        status = {"allocation": None, "reservedFor": None}
        body = {"metadata": {"resourceVersion": version_of(claim)}, "status": status}
        self.api.patch(RESOURCE_CLAIMS, namespace, name, body, subresource="status")
        self._forget_write(claim)

    def _forget_write(self, claim: Object) -> None:
        with self._lock:
            self._wrote.pop(str(meta(claim).get("uid")), None)


def allocation_of(store: Store, claim: Object | None, devices: tuple[Allotted, ...], node: str) -> Object:
    """``status.allocation`` of a claim: its devices, for one node, and the configuration for their driver."""
    results = [{"request": d.request, "driver": d.driver, "pool": d.pool, "device": d.device} for d in devices]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
    found: Object = {"results": results}
    config = _config(store, Raw(claim or {}))
    if config:
        found["config"] = config
    return {"devices": found, "nodeSelector": {"nodeSelectorTerms": [term]}}


def node_of(claim: Object) -> str:
    """The node of an allocation that `allocation_of` made; empty where another client made it otherwise."""
    terms = Raw(claim).items("status.allocation.nodeSelector.nodeSelectorTerms")
    fields = [found for term in terms for found in term.items("matchFields")]
    values = fields[0].items("values") if len(fields) == 1 else ()
    return values[0].text() if len(terms) == 1 and len(values) == 1 else ""


def _config(store: Store, claim: Raw) -> list[Object]:
    """Of the classes first, then of the claim itself: drivers let the later one win."""
    config: list[Object] = []
    for request in claim.items("spec.devices.requests"):
        name = (request.get("exactly") or request).text("deviceClassName")
        stated = Raw(store.get(DEVICE_CLASSES, name) or {}).items("spec.config")
        config += [{"source": "FromClass", "requests": [request.text("name")], **_fields(entry)} for entry in stated]
    own = claim.items("spec.devices.config")
    return config + [{"source": "FromClaim", **_fields(entry)} for entry in own]


def _fields(entry: Raw) -> Object:
    return dict(entry.value) if isinstance(entry.value, dict) else {}


def is_allocated(claim: Object | None) -> bool:
    """Whether the claim has its devices."""
    return bool(Raw(claim or {}).get("status.allocation"))


def _given(claim: Raw) -> set[tuple[str, str, str, str]]:
    """Request, driver, pool and device of all that the claim holds, those for administration excepted."""
    results = (found for found in claim.items("status.allocation.devices.results") if not found.flag("adminAccess"))
    return {(r.text("request"), r.text("driver"), r.text("pool"), r.text("device")) for r in results}


def with_allocation(claim: Object, allocation: Object | None) -> Object:
    """The claim as it would be, or the very same where there is nothing to add."""
    if allocation is None:
        return claim
    status = claim.get("status")
    return {**claim, "status": {**(status if isinstance(status, dict) else {}), "allocation": allocation}}
