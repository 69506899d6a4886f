"""PodGroups: those that we write ourselves, and what the others say of their pods.

Source: docs/kai-behaviour.md#kinds, #status-and-metrics, #stale-gangs.
"""

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kai_solver.cluster.api import Object, meta
from kai_solver.cluster.resources import POD_GROUPS, PODS
from kai_solver.cluster.writer import Order
from kai_solver.controller.loop import Cycle
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.claimed import ClaimedGpus, amounts_beside
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.controller.reporting.placing import Placing
from kai_solver.domain import Gang, Plan, Pod, PodStatus, Snapshot
from kai_solver.errors.barrier import barrier
from kai_solver.kubeobjects import names
from kai_solver.kubeobjects.grouping import OwnGroup, followed
from kai_solver.kubeobjects.raw import format_time
from kai_solver.reasons.events import is_stale, plan_events
from kai_solver.units import CPU, MEMORY

SUMS_S = 30.0
"""The least seconds between two writes of the sums of a PodGroup's pods."""

FIRST_REST_S = 1.0
LONGEST_REST_S = 300.0
"""After so many seconds a PodGroup that is not there is written again; each time they double."""


@dataclass(slots=True)
class Groups:
    """Reports what changed of gangs that have PodGroups.

    Attributes
    ----------
    write, write_plain
        Whether PodGroups that our groupers found are written; those of plain pods, too.
    sums
        Whether the sums of their pods are written; else KAI's pod-group controller does so.
    wake
        Asks for a cycle, which reports on a PodGroup that is new.
    """

    context: ReportContext
    placing: Placing
    write: bool = False
    write_plain: bool = False
    sums: bool = True
    wake: Callable[[], None] = lambda: None
    monotonic: Callable[[], float] = time.monotonic
    _pods: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    _named: dict[str, tuple[Pod, ...]] = field(default_factory=dict)
    """Pods of gangs that wait or have subgroups, and whose PodGroups are ours: their names were looked at."""
    _own: dict[str, OwnGroup] = field(default_factory=dict)
    _lacking: dict[str, tuple[float, float]] = field(default_factory=dict)
    """PodGroups of ours that are not there: how long they are left alone, and until when."""
    _newest: tuple[Snapshot, dict[str, Gang]] | None = None
    """What the newest cycle saw, and its gangs."""

    def writes(self, own: OwnGroup) -> bool:
        """Whether a PodGroup that our groupers found is to be written."""
        return self.write and (self.write_plain or not own.is_plain)

    def cycle(self, cycle: Cycle, own: Mapping[str, OwnGroup]) -> None:
        """PodGroups to write, and gangs whose pods changed."""
        waiting = {entry.gang for entry in cycle.plan.pending}
        gangs = {gang.key: gang for gang in cycle.snapshot.gangs}
        written = {key: group for key, group in own.items() if self.writes(group)}
        again = self._due_again(written, gangs)
        for key, group in written.items():
            if key in again or self._own.get(key) is not group:
                with barrier("reporting", key):
                    if key in again or self._is_news(key, group, gangs.get(key)):
                        self._keep(key, group, Order.NOW if key in waiting and key not in again else Order.LATE)
        self._own = dict(own)
        self._newest = cycle.snapshot, gangs
        before, self._pods = self._pods, {gang.key: gang.pods for gang in cycle.snapshot.gangs}
        for gang in cycle.snapshot.gangs:
            if gang.key not in cycle.busy and before.get(gang.key) != gang.pods:
                found = own.get(gang.key)
                with barrier("reporting", gang.key):
                    self._report(cycle.snapshot, gang, may_come=found is None or self.writes(found))
        before, self._named = self._named, {}
        for gang in cycle.snapshot.gangs:
            is_waiting = gang.key in waiting
            if gang.key in own and self.writes(own[gang.key]) and (is_waiting or _has_subgroups(gang)):
                self._named[gang.key] = gang.pods
                if before.get(gang.key) != gang.pods:
                    with barrier("reporting", gang.key):
                        self._name(gang, is_waiting)

    def _is_news(self, key: str, group: OwnGroup, gang: Gang | None) -> bool:
        """Whether a PodGroup that was made of other objects than before may have to be written."""
        if self.context.pod_group(key) is not None:
            return True
        return _is_alive(gang) and self._own.get(key) != group

    def _due_again(self, written: Mapping[str, OwnGroup], gangs: Mapping[str, Gang]) -> set[str]:
        """PodGroups that were refused or deleted, and are to be written once more; after that they rest for longer."""
        now_s, before, due = self.monotonic(), self._lacking, set()
        self._lacking = {}
        for key in written:
            if self.context.pod_group(key) is None and _is_alive(gangs.get(key)):
                rest_s, until_s = before.get(key, (FIRST_REST_S, now_s + FIRST_REST_S))
                if until_s <= now_s:
                    due.add(key)
                    rest_s = min(2 * rest_s, LONGEST_REST_S)
                    until_s = now_s + rest_s
                self._lacking[key] = rest_s, until_s
        return due

    def _name(self, gang: Gang, is_waiting: bool) -> None:
        """Pods have the name of their PodGroup while they wait, and the label of their subgroup where they have one.

        Pods that are bound at once get the name with their binding, which takes no labels: pods of subgroups get both
        here. All is written by way of the status, which keeps annotations and labels of pods, too: no right to change
        pods is needed.
        """
        for pod in gang.pods:
            is_complete = pod.podset in ("default", pod.labels.get(names.SUBGROUP))
            if (pod.status is PodStatus.PENDING and is_waiting) or (pod.status.is_active and not is_complete):
                label = {} if is_complete else {names.SUBGROUP: pod.podset}
                change = changes.noted({names.POD_GROUP: gang.name}, label)
                self.context.statuses.patch(PODS, pod.key, change, topic="group", uid=pod.order[2])

    def _keep(self, key: str, group: OwnGroup, order: Order) -> None:
        """Write it once, and after that only what its workload changed."""
        if self.context.pod_group(key) is None:
            body, then = self._started(key, group.document), functools.partial(self._made, key)
            self.context.statuses.create(POD_GROUPS, body, order=order, then=then)
            return

        def follow(stands: Object) -> Mapping[str, Any] | None:
            differing = followed(stands, group.document) if _is_ours(stands) else {}
            return {"spec": differing} if differing else None

        self.context.statuses.patch(POD_GROUPS, key, follow, topic="spec", subresource="")

    def _started(self, key: str, document: Mapping[str, Any]) -> Object:
        """With the time at which the gang began, where it has begun already."""
        since = self.placing.started.get(key)
        metadata = document["metadata"]
        more = {names.LAST_START: since} if since else {}
        return {**document, "metadata": {**metadata, "annotations": {**metadata["annotations"], **more}}}

    def _report(self, snapshot: Snapshot, gang: Gang, *, may_come: bool) -> None:
        if self.context.pod_group(gang.key) is None:
            if may_come:
                self._pods.pop(gang.key, None)  # reported once it is there
            return
        self._stale(snapshot, gang)
        self._write_sums(snapshot, gang)

    def _made(self, key: str) -> None:
        """The sums of a gang that is bound follow at once: no cycle has to see its PodGroup before."""
        if self._newest is None:
            return
        snapshot, gangs = self._newest
        gang = gangs.get(key)
        if gang is None or any(pod.status is PodStatus.PENDING for pod in gang.pods):
            self.wake()
        else:
            self._write_sums(snapshot, gang)

    def _write_sums(self, snapshot: Snapshot, gang: Gang) -> None:
        """Nothing where the PodGroup goes with its pod: a reclaim of many plain pods would wait for such sums."""
        if self.sums and self._goes(gang):
            self.context.statuses.cancel(POD_GROUPS, gang.key, "sums")
        elif self.sums:
            change = changes.status({"resourcesStatus": sums(gang, snapshot)})
            self.context.statuses.patch(POD_GROUPS, gang.key, change, topic="sums", order=Order.LAST, every_s=SUMS_S)

    def _goes(self, gang: Gang) -> bool:
        """Whether all there is of a gang is one pod that is being deleted, and the PodGroup is that pod's."""
        if len(gang.pods) != 1 or gang.pods[0].status.is_alive:
            return False
        (pod,) = gang.pods
        stands = self.context.store.get(PODS, pod.key)
        is_deleted = pod.status is PodStatus.RELEASING or stands is None or bool(meta(stands).get("deletionTimestamp"))
        return is_deleted and self.context.goes_with(gang.key, pod.order[2])

    def _stale(self, snapshot: Snapshot, gang: Gang) -> None:
        """Since when the gang runs below its minimum; no word of it where it does not."""
        stale = is_stale(gang)
        if stale and gang.stale_since_s is not None:
            return
        since = format_time(int(self.context.clock())) if stale else None
        change = changes.annotated(names.STALE_SINCE, since)
        self.context.statuses.patch(POD_GROUPS, gang.key, change, topic="stale", subresource="", order=Order.NOW)
        alone = Snapshot(snapshot.now_s, snapshot.schema, (), (), (gang,))
        for event in plan_events(alone, Plan(), self.context.pool):
            self.context.event(event, state=True)


def _is_alive(gang: Gang | None) -> bool:
    """Whether some pod is there that has not ended and is not being deleted.

    Of others the PodGroup may be gone with its owner, and would go again.
    """
    return gang is None or any(pod.status.is_alive for pod in gang.pods)


def _has_subgroups(gang: Gang) -> bool:
    return any(pod.podset != "default" for pod in gang.pods)


def sums(gang: Gang, snapshot: Snapshot) -> dict[str, dict[str, str]]:
    """``status.resourcesStatus``: what its pods hold and ask for."""
    gpu_name, names_of_rows = snapshot.policy.gpu_resources[0], _named(snapshot)
    claimed = ClaimedGpus(snapshot.claims)
    active = [pod for pod in gang.pods if pod.status.is_active]
    asking = [pod for pod in gang.pods if pod.status.is_alive or pod.status is PodStatus.BINDING]
    allocated = _sum(active, gpu_name, names_of_rows, claimed)
    return {
        "allocated": allocated,
        "allocatedNonPreemptible": {} if gang.preemptible else allocated,
        "requested": _sum(asking, gpu_name, names_of_rows, claimed),
    }


def _named(snapshot: Snapshot) -> tuple[str, ...]:
    """Names of the resources that pods ask for; rows that claims add are ours alone."""
    lowered = snapshot.claims.lowered if snapshot.claims is not None else None
    return (lowered.schema if lowered is not None else snapshot.schema).names


def _sum(pods: list[Pod], gpu_name: str, resource_names: tuple[str, ...], claimed: ClaimedGpus) -> dict[str, str]:
    if not pods:
        return {}
    total = [sum(column) for column in zip(*(pod.request for pod in pods), strict=True)]
    gpu = sum(pod.gpu.devices * pod.gpu.milli + pod.quota_gpu_milli for pod in pods)
    extended = {name: str(total[at]) for at, name in enumerate(resource_names) if at > 3 and total[at]}
    return amounts_beside((total[CPU], total[MEMORY], gpu), gpu_name, claimed.of(pods)) | extended


def _is_ours(stands: Object) -> bool:
    return names.OWN_CREATED in (stands.get("metadata", {}).get("annotations") or {})
