"""Resource claims that hold devices for no pod: a leader died half-way, or the API server was away for too long.

A claim for extended resources that its pod does not name is deleted: no kubelet looks at it. Devices of a claim that
is reserved for one pod alone are given back if that pod goes on waiting: it may not be able to run on their node any
more, and no other pod can have them. kube-scheduler does the same (``PostFilter`` of its plugin DynamicResources).
"""

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from kai_solver.cluster.api import Api, Object, key_of, meta
from kai_solver.cluster.devices import Devices, is_allocated, node_of
from kai_solver.cluster.extended import MARK, STATUS, remove, untell
from kai_solver.cluster.resources import PODS, RESOURCE_CLAIMS
from kai_solver.cluster.store import Store
from kai_solver.errors import InputError, KaiSolverError
from kai_solver.kubeobjects.raw import Raw

LOOK_S = 10.0
UNUSED_S = 60.0
"""A claim that has been so for this time is no work in progress, also not that of another node pool."""


@dataclass(slots=True)
class UnusedClaims:
    """Takes care of them, for pods of one scheduler.

    Attributes
    ----------
    is_ours
        Whether a node is one of this scheduler's.
    expected
        A pod as it will be; the very same where nothing is under way.
    """

    api: Api
    store: Store
    devices: Devices
    fence: Callable[[], bool]
    scheduler: str = "kai-scheduler"
    is_ours: Callable[[str], bool] = lambda _: True
    expected: Callable[[Object], Object] = lambda pod: pod
    monotonic: Callable[[], float] = time.monotonic
    _since_s: dict[str, float] = field(default_factory=dict)
    """Since when claims (their uid) are seen to be so."""

    def run(self, stop: threading.Event) -> None:
        """Look again and again, until ``stop`` is set; only while this process leads."""
        while not stop.wait(LOOK_S):
            if self.store.is_synced((PODS, RESOURCE_CLAIMS)) and self.fence():
                self.collect()
            else:
                self._since_s.clear()

    def collect(self) -> None:
        """Free those that have been unused for long enough."""
        now_s = self.monotonic()
        found = {str(meta(claim).get("uid")): claim for claim in self.store.all(RESOURCE_CLAIMS) if self._seems(claim)}
        self._since_s = {uid: self._since_s.get(uid, now_s) for uid in found}
        for uid, claim in found.items():
            if now_s - self._since_s[uid] >= UNUSED_S:
                with suppress(KaiSolverError):  # it is looked at again
                    self._free(claim)

    def _seems(self, claim: Object) -> bool:
        """Whether the claim is unused, as far as the watches show it."""
        with suppress(InputError):
            pod = self._pod(claim)
            return pod is not None and self.expected(pod) is pod and _is_unused(claim, pod)
        return False

    def _pod(self, claim: Object) -> Object | None:
        """The only pod that may use it, if it is one of ours."""
        raw = Raw(claim)
        owners = raw.items("metadata.ownerReferences") if _is_made(claim) else ()
        users = raw.items("status.reservedFor") or owners
        if len(users) != 1 or (is_allocated(claim) and not self._is_near(claim)):
            return None
        if users[0].text("resource", "pods") != "pods" or users[0].text("kind", "Pod") != "Pod":
            return None
        pod = self.store.get(PODS, f"{raw.text('metadata.namespace')}/{users[0].text('name')}")
        if pod is None or meta(pod).get("uid") != users[0].text("uid") or meta(pod).get("deletionTimestamp"):
            return None
        return pod if Raw(pod).text("spec.schedulerName") == self.scheduler else None

    def _is_near(self, claim: Object) -> bool:
        """Whether its devices are on a node of ours, as `allocation_of` has it."""
        node = node_of(claim)
        return bool(node) and self.is_ours(node)

    def _free(self, claim: Object) -> None:
        """Free it, if the server says the same. No pod is bound meanwhile: it takes its turn for the claim first."""
        namespace, _, name = key_of(claim).partition("/")
        with self.devices.turn(key_of(claim)):
            pod = self._pod(claim)
            if pod is None or self.expected(pod) is not pod:
                return
            now = self.api.get(RESOURCE_CLAIMS, namespace, name)
            user = self.api.get(PODS, namespace, str(meta(pod).get("name")))
            same = meta(now).get("uid") == meta(claim).get("uid") and meta(user).get("uid") == meta(pod).get("uid")
            if not same or self._pod(now) is None or not _is_unused(now, user):
                return
            if not _is_made(now):
                self.devices.give_back(now)
                return
            if _names(user, now):
                untell(self.api, namespace, str(meta(user).get("name")), str(meta(user).get("uid")))
            remove(self.api, namespace, name)


def _is_made(claim: Object) -> bool:
    """Whether a scheduler made it, for extended resources."""
    return MARK in Raw(claim).strings("metadata.annotations")


def _names(pod: Object, claim: Object) -> bool:
    """Whether the pod has the claim for its extended resources."""
    return Raw(pod).text(f"status.{STATUS}.resourceClaimName") == meta(claim).get("name")


def _is_unused(claim: Object, pod: Object) -> bool:
    """Whether it is not the pod's, or the pod has no node to use it on."""
    is_strange = _is_made(claim) and not _names(pod, claim)
    return is_strange or (is_allocated(claim) and not Raw(pod).text("spec.nodeName"))
