"""What the scheduler at work did between two looks at the cluster."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kai_solver.domain import Gang, Pod, PodStatus, Snapshot
from kai_solver.errors import InputError
from kai_solver.kubeobjects.raw import Raw
from kai_solver.shadow.deciding import created_s, gpus_of
from kai_solver.shadow.lines import Bound, Gone, Left, Line, Marked

_HOLDS = frozenset({PodStatus.BOUND, PodStatus.RUNNING})
_LEAVES = frozenset({PodStatus.RELEASING, PodStatus.STUCK_IN_RELEASING})

LATE_S = 60.0
"""Times of evictions that are older than the look before by more are not news: the PodGroup was made from a copy."""

RawPod = Callable[[str], Mapping[str, Any] | None]
"""The Kubernetes object of a pod, by ``namespace/name``; None where there is none."""


def bound_s(pod: Mapping[str, Any] | None) -> float | None:
    """When a pod was bound, by its condition PodScheduled; None where that does not say."""
    try:
        for condition in Raw(pod).items("status.conditions"):
            if condition.text("type") == "PodScheduled" and condition.text("status") == "True":
                return condition.time_s("lastTransitionTime")
    except InputError:
        return None
    return None


def is_disrupted(pod: Mapping[str, Any] | None) -> bool:
    """Whether the condition DisruptionTarget says that a scheduler wanted the room of the pod."""
    try:
        found = [one for one in Raw(pod).items("status.conditions") if one.text("type") == "DisruptionTarget"]
        return any(one.text("status") == "True" and one.text("reason") == "PreemptionByScheduler" for one in found)
    except InputError:
        return False


@dataclass(frozen=True, slots=True)
class _Look:
    """Gangs by key, and pods with their gangs by uid, at one time."""

    gangs: Mapping[str, Gang]
    pods: Mapping[str, tuple[Gang, Pod]]
    at_s: float


@dataclass(slots=True)
class Observer:
    """Compares each look with the one before; the first one is only remembered.

    A look that comes late sees the same, as conditions keep their times. A pod that was bound and had ended between
    two looks is not seen.
    """

    raw: RawPod
    _before: _Look | None = None

    def see(self, snapshot: Snapshot, at_s: float) -> list[Line]:
        """What changed since the look before."""
        gangs = {gang.key: gang for gang in snapshot.gangs}
        pods = {pod.order[2] or pod.key: (gang, pod) for gang in snapshot.gangs for pod in gang.pods}
        now, before = _Look(gangs, pods, at_s), self._before
        self._before = now
        if before is None:
            return []
        return [*self._left(before, now), *_marked(before, now), *self._bound(before, now), *_gone(before, now)]

    def _bound(self, before: _Look, now: _Look) -> Iterator[Line]:
        for uid, (gang, pod) in now.pods.items():
            was = before.pods.get(uid)
            if pod.status not in _HOLDS or (was is not None and was[1].status in _HOLDS):
                continue
            since_s = bound_s(self.raw(pod.key))
            yield Bound(
                at=now.at_s,
                since=now.at_s if since_s is None else min(since_s, now.at_s),
                gang=gang.key,
                queue=gang.queue,
                pod=pod.key,
                node=pod.node,
                created=created_s(gang),
                gpus=gpus_of(gang.pods),
            )

    def _left(self, before: _Look, now: _Look) -> Iterator[Line]:
        for uid, (gang, pod) in before.pods.items():
            found = now.pods.get(uid)
            if pod.status not in _HOLDS or (found is not None and found[1].status in _HOLDS):
                continue
            is_over = found is not None and found[1].status not in _LEAVES
            is_wanted = found is not None and is_disrupted(self.raw(pod.key))
            yield Left(
                at=now.at_s,
                after=before.at_s,
                gang=gang.key,
                queue=gang.queue,
                pod=pod.key,
                node=pod.node,
                how="ended" if is_over else "disrupted" if is_wanted else "deleted",
            )


def _marked(before: _Look, now: _Look) -> Iterator[Line]:
    for key, gang in now.gangs.items():
        was, since_s = before.gangs.get(key), gang.last_eviction_s
        is_new = since_s is not None and (was is None or was.last_eviction_s != since_s)
        if since_s is not None and is_new and since_s >= before.at_s - LATE_S:
            yield Marked(at=now.at_s, since=since_s, gang=key)


def _gone(before: _Look, now: _Look) -> Iterator[Line]:
    for key, gang in before.gangs.items():
        waited = any(pod.status.is_alive for pod in gang.pods) and not any(p.status.holds_resources for p in gang.pods)
        if waited and not (key in now.gangs and any(pod.status.is_alive for pod in now.gangs[key].pods)):
            yield Gone(at=now.at_s, gang=key)
