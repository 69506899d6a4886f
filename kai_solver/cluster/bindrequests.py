"""BindRequests (``scheduling.run.ai/v1alpha2``): KAI's binder binds, we say what and where.

Source: docs/kai-behaviour.md#binding, #bindrequest.

A pod has its place once the watch shows its node; until then its request counts, ours by what is assumed, that of an
earlier leader because it is read. KAI's scheduler sets no ``backoffLimit``, and neither do we: the first failure ends a
request. It is deleted then, and the engine decides again.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, ApiError, FenceError, Object, key_of, meta
from kai_solver.cluster.binding import Placement
from kai_solver.cluster.devices import Devices, allocation_of, is_allocated, with_allocation
from kai_solver.cluster.patience import Patience, after_news
from kai_solver.cluster.resources import BIND_REQUESTS, NODES, PODS, RESOURCE_CLAIMS, Resource
from kai_solver.cluster.store import Store
from kai_solver.errors import InputError
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.bindings import is_given_up
from kai_solver.kubeobjects.raw import Raw
from kai_solver.units import MILLI

NODE = "selected-node"
LONGEST_LABEL = 63
LOOK_S = 10.0
UNSEEN_S = 2.0
"""A request that no watch has shown for so long is asked for: it may be gone, and would be waited for till the end."""


@dataclass(slots=True)
class BindRequests:
    """A `Way` to bind pods; listens to ``store`` from the beginning.

    Attributes
    ----------
    patience
        How long KAI's binder may take for a pod: it makes volumes, and reserves devices.
    devices
        Reckons with devices that are given by request, until their claims say so.
    pool
        Label of our node pool, and its value; requests without it are another scheduler's.
    scheduler
        ``schedulerName`` of our pods.
    """

    api: Api
    store: Store
    patience: Patience
    devices: Devices
    pool: tuple[str, str] = (names.NODE_POOL, "")
    scheduler: str = "kai-scheduler"
    clock: Callable[[], float] = time.time
    _made: dict[str, str] = field(default_factory=dict)
    """Uids of the requests that a thread here waits for, by pod."""
    _withdrawn: dict[str, str] = field(default_factory=dict)
    """Likewise of those that no thread waits for any more and that could not be deleted yet."""
    _news: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        """Hear of every request."""
        self.store.listen(self._hear)

    # -- one gang ------------------------------------------------------------------------------------------------------

    def bind(self, placement: Placement) -> None:
        """Ask for one pod; a request of an earlier pod of that name, or for another place, makes way."""
        self._annotate(placement)
        body = self._request(placement)
        try:
            made = self.api.create(BIND_REQUESTS, placement.namespace, body)
        except ApiError as error:
            if not error.is_conflict:
                raise
            made = self.api.get(BIND_REQUESTS, placement.namespace, placement.name)
            if not _is_same(made, body):
                self.api.delete(BIND_REQUESTS, placement.namespace, placement.name, uid=_uid(made))
                made = self.api.create(BIND_REQUESTS, placement.namespace, body)
        self._wait_for(placement, made)

    def _wait_for(self, placement: Placement, made: Object) -> None:
        with self._lock:
            self._made[placement.key] = _uid(made)
            self._withdrawn.pop(placement.key, None)

    def stands(self, placement: Placement) -> bool:
        """Whether the request is there."""
        try:
            made = self.api.get(BIND_REQUESTS, placement.namespace, placement.name)
        except ApiError as error:
            if error.is_missing:
                return False
            raise
        if not _is_same(made, self._request(placement)):
            return False
        self._wait_for(placement, made)
        return True

    def outcome(self, placements: Sequence[Placement], needed: int) -> dict[str, str]:
        """Wait until all are bound, or fewer than ``needed`` can be; why those are not that are not, by pod."""
        open_ = {placement.key: placement for placement in placements}
        failed: dict[str, str] = {}
        unseen = dict.fromkeys(open_, self.patience.monotonic() + UNSEEN_S)

        def is_over() -> bool:
            for key, placement in list(open_.items()):
                said = self._look(placement, unseen)
                if said is not None:
                    del open_[key]
                    failed.update({key: said} if said else {})
            return not open_ or len(placements) - len(failed) < needed

        late = "the rest of its gang could not be bound"
        try:
            if not self.patience.until(is_over):
                late = f"KAI's binder has not bound it within {self.patience.limit_s:.0f} s"
        except FenceError as error:
            late = str(error)
        with self._lock:
            for placement in placements:
                if placement.key not in open_ and placement.key not in failed:
                    self._made.pop(placement.key, None)
        return failed | dict.fromkeys(open_, late)

    def take_back(self, placement: Placement) -> None:
        """Ask no more; a pod that is bound all the same counts where it is."""
        with self._lock:
            if placement.key in self._made:
                self._withdrawn[placement.key] = self._made.pop(placement.key)
            uid = self._withdrawn.get(placement.key, "")
        if uid:
            self._delete(placement.namespace, placement.name, uid)
        with self._lock:
            self._withdrawn.pop(placement.key, None)

    def clear(self) -> None:
        """Stop waiting: requests of an earlier lead are read again, like those of another leader."""
        with self._lock:
            self._made.clear()
            self._withdrawn.clear()

    def _look(self, placement: Placement, unseen: dict[str, float]) -> str | None:
        """Why the pod was not bound, empty where it was; None where that is not known yet.

        ``unseen``: when requests that no watch has shown are asked for.
        """
        pod = self.store.get(PODS, placement.key)
        if pod is None or _uid(pod) != placement.uid or meta(pod).get("deletionTimestamp"):
            return "the pod is gone"
        node = Raw(pod).text("spec.nodeName")
        if node:
            return "" if node == placement.node else f"the pod is on node {node!r} already"
        with self._lock:
            uid = self._made.get(placement.key, "")
        request = self.store.get(BIND_REQUESTS, placement.key)
        if request is None or _uid(request) != uid:
            return "its BindRequest was deleted" if self._is_gone(placement, uid, unseen) else None
        unseen.pop(placement.key, None)
        if is_given_up(Raw(request)):
            return f"KAI's binder failed: {Raw(request).text('status.reason') or 'no reason given'}"
        return None

    def _is_gone(self, placement: Placement, uid: str, unseen: dict[str, float]) -> bool:
        """Whether a request that the store does not have is gone, and not only to be shown yet."""
        now_s = self.patience.monotonic()
        if now_s < unseen.get(placement.key, 0.0):
            return False
        unseen[placement.key] = now_s + UNSEEN_S
        try:
            return _uid(self.api.get(BIND_REQUESTS, placement.namespace, placement.name)) != uid
        except ApiError as error:
            return error.is_missing

    # -- what is asked -------------------------------------------------------------------------------------------------

    def _request(self, placement: Placement) -> Object:
        """As KAI's scheduler writes it (``cache.createBindRequest``)."""
        key, value = self.pool
        labels = {NODE: placement.node} if len(placement.node) <= LONGEST_LABEL else {}
        portion = placement.devices[0][1] / MILLI if placement.devices else 0.0
        spec: Object = {
            "podName": placement.name,
            "selectedNode": placement.node,
            "receivedResourceType": dict(placement.annotations).get(names.RECEIVED_TYPE, "Regular"),
            "receivedGPU": {"count": len(placement.devices), "portion": f"{portion:.2f}"},
        }
        if placement.groups:
            spec["selectedGPUGroups"] = list(placement.groups)
        if placement.claims:
            spec["resourceClaimAllocations"] = self._allocations(placement)
        zones = dict(placement.annotations).get(names.NUMA_PREDICTED)
        if zones:
            spec["predictedNUMAZones"] = json.loads(zones)
        owner = {"apiVersion": "v1", "kind": "Pod", "name": placement.name, "uid": placement.uid}
        metadata: Object = {"name": placement.name, "namespace": placement.namespace, "ownerReferences": [owner]}
        metadata |= {"labels": labels | ({key: value} if value else {})}
        kind = {"apiVersion": BIND_REQUESTS.api_version, "kind": BIND_REQUESTS.kind}
        return {**kind, "metadata": metadata, "spec": spec}

    def _allocations(self, placement: Placement) -> list[Object]:
        """Of all claims of the pod, by what the pod calls them; of those that are allocated what they have."""
        called = {key: name for name, key in claim_names(self.store.get(PODS, placement.key) or {}).items()}
        found = []
        for key, devices in placement.claims:
            claim = self.store.get(RESOURCE_CLAIMS, key)
            given = Raw(claim or {}).get("status.allocation").value
            allocation = given or allocation_of(self.store, claim, devices, placement.node)
            if key in called:
                found.append({"name": called[key], "allocation": allocation})
        return found

    def _annotate(self, placement: Placement) -> None:
        """KAI's other parts know a pod's group by its annotation, we the GPUs chosen for it; its binder writes none."""
        stands = Raw(self.store.get(PODS, placement.key) or {}).strings("metadata.annotations")
        kept = (names.POD_GROUP, names.OWN_WISHED, names.OWN_SHARE, names.OWN_SIGNED_GPUS, names.OWN_SIGNED_SHARE)
        wanted = {key: value for key, value in placement.annotations if key in kept and stands.get(key) != value}
        if wanted:
            self.api.patch(PODS, placement.namespace, placement.name, {"metadata": {"annotations": wanted}})

    # -- what others asked ---------------------------------------------------------------------------------------------

    def overlay(self, claims: tuple[Object, ...], now_s: float) -> tuple[Object, ...]:
        """The claims as they will be when what is asked for was done; others are the very same objects."""
        claims = self.devices.overlay(claims, now_s)
        asked = dict(self._asked())
        return tuple(
            with_allocation(claim, asked[key]) if (key := key_of(claim)) in asked and not is_allocated(claim) else claim
            for claim in claims
        )

    def _asked(self) -> list[tuple[str, Object]]:
        """Allocations in live requests, by claim."""
        found: list[tuple[str, Object]] = []
        for request in self.store.all(BIND_REQUESTS):
            with suppress(InputError):
                raw = Raw(request)
                if not raw.get("spec.resourceClaimAllocations") or is_given_up(raw):
                    continue
                pod = self.store.get(PODS, f"{raw.text('metadata.namespace')}/{raw.text('spec.podName')}")
                called = claim_names(pod or {})
                for entry in raw.items("spec.resourceClaimAllocations"):
                    allocation = entry.get("allocation").value
                    if entry.text("name") in called and isinstance(allocation, dict):
                        found.append((called[entry.text("name")], allocation))
        return found

    def run(self, stop: threading.Event) -> None:
        """Delete stale requests, until ``stop`` is set; only while this process leads."""
        after_news(self._news, stop, self._collect_as_leader, LOOK_S)

    def _collect_as_leader(self) -> None:
        if self.store.is_synced((PODS, NODES, BIND_REQUESTS)) and self.patience.fence():
            self.collect()

    def collect(self) -> int:
        """Delete requests for our pods that no thread here waits for and that lead nowhere; how many."""
        stale = [request for request in self.store.all(BIND_REQUESTS) if self._is_stale(request)]
        with self._lock:  # of others the pod has its node, or the watch shows that they are deleted
            uids = {_uid(request) for request in stale}
            self._withdrawn = {key: uid for key, uid in self._withdrawn.items() if uid in uids}
        for request in stale:
            with suppress(ApiError):  # it is looked at again
                self._delete(str(meta(request).get("namespace")), str(meta(request).get("name")), _uid(request))
        return len(stale)

    def _is_stale(self, request: Object) -> bool:
        """Withdrawn, failed, for a node that is gone, or older than KAI's binder may take; of our pods that wait."""
        raw = Raw(request)
        key, value = self.pool
        with suppress(InputError):
            pod = self.store.get(PODS, f"{raw.text('metadata.namespace')}/{raw.text('spec.podName')}")
            if pod is None or Raw(pod).text("spec.schedulerName") != self.scheduler or Raw(pod).text("spec.nodeName"):
                return False
            if raw.strings("metadata.labels").get(key, "") != value:
                return False
            with self._lock:
                if _uid(request) in self._made.values():
                    return False
                if _uid(request) in self._withdrawn.values():
                    return True
            age_s = self.clock() - (raw.time_s("metadata.creationTimestamp") or 0.0)
            is_gone = self.store.get(NODES, raw.text("spec.selectedNode")) is None
            return is_given_up(raw) or is_gone or age_s > self.patience.limit_s
        return False

    def _delete(self, namespace: str, name: str, uid: str) -> None:
        try:
            self.api.delete(BIND_REQUESTS, namespace, name, uid=uid)
        except ApiError as error:
            if not (error.is_missing or error.is_conflict):
                raise

    def _hear(self, resource: Resource, _key: str, _before: Object | None, _after: Object | None) -> None:
        if resource == BIND_REQUESTS:
            self._news.set()


@dataclass(frozen=True, slots=True)
class Reckoned:
    """`Preparation` of claims that KAI's binder allocates: their devices count as given, and nothing is written."""

    devices: Devices

    def concerns(self, placement: Placement) -> bool:
        """Whether the pod has claims."""
        return self.devices.concerns(placement)

    def assume(self, placement: Placement) -> None:
        """Count the devices as given."""
        self.devices.assume(placement)

    def prepare(self, placement: Placement) -> None:
        """Nothing: the request says it."""

    def undo(self, placement: Placement) -> None:
        """Count them no longer."""
        self.devices.forget(placement)

    def clear(self) -> None:
        """Count none."""
        self.devices.clear()


def claim_names(pod: Object) -> Mapping[str, str]:
    """Claims of a pod (``namespace/name``) by what the pod calls them; those made from templates as its status says."""
    raw = Raw(pod)
    stated = {s.text("name"): s.text("resourceClaimName") for s in raw.items("status.resourceClaimStatuses")}
    found = {
        entry.text("name"): entry.text("resourceClaimName") or stated.get(entry.text("name"), "")
        for entry in raw.items("spec.resourceClaims")
    }
    return {name: f"{raw.text('metadata.namespace')}/{claim}" for name, claim in found.items() if claim}


def unfinished(requests: tuple[Object, ...], store: Store) -> tuple[Object, ...]:
    """Requests that still say something: KAI leaves those of bound pods where they are until the pods go."""
    return tuple(request for request in requests if not _is_finished(request, store))


def _is_finished(request: Object, store: Store) -> bool:
    status = request.get("status")
    if not isinstance(status, dict) or status.get("phase") != "Succeeded":
        return False
    pod = store.get(PODS, key_of(request))
    spec, asked = pod.get("spec") if pod is not None else None, request.get("spec")
    if isinstance(asked, dict) and (asked.get("selectedGPUGroups") or asked.get("predictedNUMAZones")):
        return False  # it is the proof of what the pod holds, which its users cannot write
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def _is_same(request: Object, body: Object) -> bool:
    """Whether a request that is there asks for the same, for the same pod, and has not failed."""
    owners = [owner.get("uid") for owner in meta(request).get("ownerReferences") or ()]
    wanted = meta(body)["ownerReferences"][0]["uid"]
    return owners == [wanted] and request.get("spec") == body["spec"] and not is_given_up(Raw(request))


def _uid(value: Object) -> str:
    return str(meta(value).get("uid", ""))
