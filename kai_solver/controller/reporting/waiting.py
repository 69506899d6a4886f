"""Which gangs wait, and why: conditions and events of pods and PodGroups (docs/kai-behaviour.md#conditions)."""

from dataclasses import dataclass, field

from kai_solver.cluster.api import Object
from kai_solver.cluster.resources import POD_GROUPS, PODS
from kai_solver.cluster.statuses import Change, condition_of
from kai_solver.controller.loop import Cycle
from kai_solver.controller.reporting import changes
from kai_solver.controller.reporting.context import ReportContext
from kai_solver.domain import Gang, Pending, Plan, Pod, PodStatus, Reason, Snapshot
from kai_solver.errors.barrier import barrier, caught
from kai_solver.reasons.events import Event, plan_events
from kai_solver.reasons.pending import pending_text, scheduling_condition
from kai_solver.units import ResourceSchema

OTHER_WORDS_S = 30.0
"""The least seconds between two conditions that differ in their words only."""


@dataclass(slots=True)
class Waiting:
    """Reports what changed since the last cycle; a gang with the same report costs nothing."""

    context: ReportContext
    _said: dict[str, tuple[Pending, tuple[Pod, ...]]] = field(default_factory=dict)
    _groupless: set[str] = field(default_factory=set)
    """Of these, gangs that had no PodGroup: ours are written later, and get their report then."""
    _has_looked: bool = False

    def cycle(self, cycle: Cycle) -> None:
        """Gangs that wait now, and those that wait no longer."""
        gangs = {gang.key: gang for gang in cycle.snapshot.gangs}
        waiting = {entry.gang: entry for entry in cycle.plan.pending if entry.gang in gangs}
        placed = {bind.pod for bind in cycle.plan.binds}
        for key, pending in waiting.items():
            gang, said = gangs[key], (pending, gangs[key].pods)
            if key in cycle.busy:
                continue
            try:
                if self._said.get(key) != said:
                    self._said[key] = said
                    self._report(cycle.snapshot, gang, pending, placed)
                elif key in self._groupless:
                    self._report_group(cycle.snapshot, gang, pending, self._events(gang, pending))
            except Exception as error:
                caught("reporting", key, error)
                self._said.pop(key, None)  # reported again in the next cycle
        over = [key for key in self._said if key not in waiting and key not in cycle.busy]
        for key in over:
            del self._said[key]
        self._groupless &= self._said.keys()
        if not self._has_looked:
            over += self._left_by_others(waiting.keys() | cycle.busy)
            self._has_looked = True
        for key in over:
            with barrier("reporting", key):
                change = changes.scheduling(None, self.context.pool, self.context.clock())
                self.context.statuses.patch(POD_GROUPS, key, change, topic="waiting")

    def _left_by_others(self, waiting: set[str]) -> list[str]:
        """PodGroups with a condition that an earlier process wrote and that holds no longer."""
        found = (f"{item['metadata'].get('namespace')}/{item['metadata'].get('name')}" for item in self._conditioned())
        return [key for key in found if key not in waiting]

    def _conditioned(self) -> list[Object]:
        items = self.context.store.all(POD_GROUPS)
        return [item for item in items if changes.has_scheduling(item, self.context.pool)]

    def _report(self, snapshot: Snapshot, gang: Gang, pending: Pending, placed: set[str]) -> None:
        events = self._events(gang, pending)
        for event in events:
            if event.kind == "Pod" and event.object not in placed:
                self.context.event(event, state=True)
        self._report_group(snapshot, gang, pending, events)
        group = self.context.pod_group(gang.key)
        if pending.reason is Reason.NOT_READY or (group is not None and _is_unmarked(group)):
            return
        change = changes.waits("Unschedulable", pending_text(pending), self.context.clock())
        for pod in gang.pods:
            if pod.status is PodStatus.PENDING and pod.key not in placed:
                self._mark(pod, change)

    def _events(self, gang: Gang, pending: Pending) -> list[Event]:
        """Of the gang and its pods."""
        alone = Snapshot(0.0, ResourceSchema(), (), (), (gang,))
        events = plan_events(alone, Plan(pending=(pending,)), self.context.pool)
        return [event for event in events if event.reason != "StaleJob"]

    def _report_group(self, snapshot: Snapshot, gang: Gang, pending: Pending, events: list[Event]) -> None:
        """Report on the PodGroup, where it is there by now."""
        if self.context.pod_group(gang.key) is None:
            self._groupless.add(gang.key)
            return
        self._groupless.discard(gang.key)
        for event in events:
            if event.kind == "PodGroup":
                self.context.event(event, state=True)
        self._mark_gang(snapshot, gang, pending)

    def _mark(self, pod: Pod, change: Change) -> None:
        stands = condition_of(self.context.statuses.known(PODS, pod.key) or {}, "PodScheduled") or {}
        every_s = OTHER_WORDS_S if stands.get("reason") == "Unschedulable" else 0.0
        self.context.statuses.patch(
            PODS, pod.key, change, topic="scheduled", uid=pod.order[2], kind="strategic", every_s=every_s
        )

    def _mark_gang(self, snapshot: Snapshot, gang: Gang, pending: Pending) -> None:
        condition = scheduling_condition(gang, pending, snapshot.policy.gpu_resources[0], self.context.pool)
        if condition is not None:
            change = changes.scheduling(condition, self.context.pool, self.context.clock())
            says_so = changes.has_scheduling(self.context.pod_group(gang.key) or {}, self.context.pool)
            every_s = OTHER_WORDS_S if says_so else 0.0
            self.context.statuses.patch(POD_GROUPS, gang.key, change, topic="waiting", every_s=every_s)


def _is_unmarked(group: Object) -> bool:
    """Whether its owner wants no conditions on pods, so that no autoscaler heeds them.

    Source: docs/kai-behaviour.md#podgroup.
    """
    spec = group.get("spec")
    return isinstance(spec, dict) and spec.get("markUnschedulable") is False
