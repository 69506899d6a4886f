"""The Kubernetes events of a plan, as data: object, type, reason, message, annotations (docs/kai-behaviour.md#events).

Reasons and texts are KAI's (``status_updater/default_status_updater.go``, ``framework/statement.go``); what we know
beyond them follows them in the same message.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from kai_solver.domain import (
    Bind,
    Eviction,
    Gang,
    Move,
    Pending,
    Plan,
    PodSet,
    PodStatus,
    Reason,
    Snapshot,
    SubGroup,
    ZoneShare,
    flat_gang,
)
from kai_solver.reasons.pending import pending_text

NODE_POOL = "default"
_OF_ONE = flat_gang(1)
"""Of a gang that one pod suffices, none can run in part; most are such."""

EventReason = Literal["Scheduled", "Pipelined", "Evict", "StaleJob", "NotReady", "Unschedulable", "NotMoved"]
"""Published; KAI's binder and pod grouper have further ones (``Bound``, ``BindingError``, ``PodGrouperWarning``)."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event. ``object``: namespace/name of a Pod or PodGroup; ``annotations`` as KAI sets them on evictions."""

    kind: Literal["Pod", "PodGroup"]
    object: str
    type: Literal["Normal", "Warning"]
    reason: EventReason
    message: str
    annotations: dict[str, str] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """JSON form."""
        return asdict(self)

    def __str__(self) -> str:
        return f"{self.reason}: {self.message}"


def plan_events(snapshot: Snapshot, plan: Plan, node_pool: str = NODE_POOL) -> Iterator[Event]:
    """All events of ``plan``: evictions first, as they have to happen first, then places, then waiting gangs.

    ``node_pool`` is the name that the text of a bind holds.
    """
    gangs = {gang.key: gang for gang in snapshot.gangs}
    leaving: tuple[Eviction | Move, ...] = (*plan.evictions, *plan.moves)
    lost = Counter((entry.gang, _action(entry)) for entry in leaving)
    for entry in leaving:
        yield _evicted(entry, lost[entry.gang, _action(entry)])
    for gang in snapshot.gangs:
        if is_stale(gang):
            yield Event("PodGroup", gang.key, "Normal", "StaleJob", stale_message(gang))
    for bind in plan.binds:
        yield _bound(bind, node_pool)
    for move in plan.moves:
        yield _pipelined(move.pod, move.target, move.zones)
    for stays in plan.unmoved:
        yield Event("Pod", stays.pod, "Warning", "NotMoved", f"Pod {stays.pod} stays: {stays.message}")
    for pending in plan.pending:
        if pending.gang in gangs:
            yield from _unschedulable(gangs[pending.gang], pending, plan)


def events_of(snapshot: Snapshot, plan: Plan, gang: Gang) -> Iterator[Event]:
    """The events about one gang and its pods."""
    own = Plan(
        binds=tuple(b for b in plan.binds if b.gang == gang.key),
        moves=tuple(m for m in plan.moves if m.gang == gang.key),
        evictions=tuple(e for e in plan.evictions if e.gang == gang.key),
        pending=tuple(p for p in plan.pending if p.gang == gang.key),
        unmoved=tuple(u for u in plan.unmoved if u.gang == gang.key),
    )
    return plan_events(Snapshot(snapshot.now_s, snapshot.schema, (), (), (gang,)), own)


def _action(entry: Eviction | Move) -> str:
    """The action that KAI would name as the evictor's."""
    if isinstance(entry, Move):
        return entry.by
    return "stalegangeviction" if entry.reason == "stale" else entry.reason


def _evicted(entry: Eviction | Move, size: int) -> Event:
    annotations = {"num-evicted-pods": str(size), "evictor-action-type": _action(entry)}
    if entry.helps:
        namespace, _, name = entry.helps[0].partition("/")
        annotations |= {"evictor-pod-group-name": name, "evictor-pod-group-namespace": namespace}
    text = entry.message or f"Pod {entry.pod} was evicted by {_action(entry)}"
    if isinstance(entry, Move):
        gangs = f" for {', '.join(entry.helps) or 'no gang'}" if entry.cause == "room" else ""
        text += f"; it goes from {entry.source} to {entry.target}{gangs}"
    return Event("PodGroup", entry.gang, "Normal", "Evict", text, annotations)


def _bound(bind: Bind, node_pool: str) -> Event:
    if bind.nominated:
        return _pipelined(bind.pod, bind.node, bind.zones)
    text = f"Successfully assigned pod {bind.pod} to node {bind.node} at node-pool {node_pool}{zone_words(bind.zones)}"
    return Event("Pod", bind.pod, "Normal", "Scheduled", text)


def _pipelined(pod: str, node: str, zones: tuple[ZoneShare, ...]) -> Event:
    return Event("Pod", pod, "Normal", "Pipelined", f"Pod {pod} was pipelined to node {node}{zone_words(zones)}")


def zone_words(zones: tuple[ZoneShare, ...]) -> str:
    """``, NUMA zone node-0`` where zones count."""
    if not zones:
        return ""
    return f", NUMA zone{'s' if len(zones) > 1 else ''} {' and '.join(share.zone for share in zones)}"


def _unschedulable(gang: Gang, pending: Pending, plan: Plan) -> Iterator[Event]:
    """A gang that is not ready says so once; else every pod that waits says why, and the gang does."""
    if pending.reason is Reason.NOT_READY:
        yield Event("PodGroup", gang.key, "Normal", "NotReady", pending.message)
        return
    text = pending_text(pending)
    placed = {bind.pod for bind in plan.binds}
    for pod in gang.pods:
        if pod.status is PodStatus.PENDING and pod.key not in placed:
            yield Event("Pod", pod.key, "Warning", "Unschedulable", text)
    yield Event("PodGroup", gang.key, "Normal", "Unschedulable", text)


# -- stale gangs -------------------------------------------------------------------------------------------------------


def is_stale(gang: Gang) -> bool:
    """True where pods of the gang run and are fewer than its minimum; K of N subgroups suffice.

    Source: docs/kai-behaviour.md#stale-gangs.
    """
    if gang.root is _OF_ONE or any(pod.status is PodStatus.SUCCEEDED for pod in gang.pods):
        return False
    active = _active(gang)
    return bool(active) and not _is_satisfied(gang.root, active)


def stale_message(gang: Gang) -> str:
    """KAI's event ``StaleJob``."""
    active = _active(gang)
    podsets = tuple(gang.root.podsets())
    total = sum(active.values())
    if gang.root.min_subgroups is None:
        text = f"Job is stale. {total} pods are active, minMember is {sum(p.min_member for p in podsets)}"
    else:
        satisfied = sum(_is_satisfied(child, active) for child in gang.root.children)
        text = (
            f"Job is stale. {total} pods are active, {satisfied} of {gang.root.needed} required subGroups are satisfied"
        )
    for podset in podsets:
        if active[podset.name] < podset.min_member and podset.name != "default":
            text += (
                f", subGroup {podset.name} minMember is {podset.min_member} and {active[podset.name]} pods are active"
            )
    return text


def _active(gang: Gang) -> Counter[str]:
    return Counter(pod.podset for pod in gang.pods if pod.status.holds_resources)


def _is_satisfied(node: SubGroup | PodSet, active: Counter[str]) -> bool:
    if isinstance(node, PodSet):
        return active[node.name] >= node.min_member
    return sum(_is_satisfied(child, active) for child in node.children) >= node.needed
