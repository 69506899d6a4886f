"""From one cycle to the next: what the cluster looks like when a plan has been carried out."""

from collections import Counter
from dataclasses import replace

from kai_solver.claims import carried
from kai_solver.domain import Gang, Plan, Pod, PodStatus, Snapshot

STARTED_AGO_S = 60.0
"""KAI's harness says of every running job that it started a minute ago (reference, section 5)."""


def settle(snapshot: Snapshot, plan: Plan, *, lasting: frozenset[str] = frozenset(), delay_s: float = 0.0) -> Snapshot:
    """Snapshot of the next round.

    Bound pods run. Nominated pods wait again: nothing is kept of a nomination, as in KAI. Evicted and moved pods wait
    again too, unless their gang is in ``lasting`` (by name): those stay ``Releasing`` where they were. A gang seen
    below its minimum is stale from this round on, as KAI's annotation keeps it.
    """
    now_s = snapshot.now_s + delay_s
    bound = {bind.pod: bind for bind in plan.binds if not bind.nominated}
    gone = {eviction.pod for eviction in plan.evictions} | {move.pod for move in plan.moves}

    def next_pod(pod: Pod, lasts: bool) -> Pod:
        if pod.key in bound:
            bind = bound[pod.key]
            devices = tuple(device.index for device in bind.devices)
            running = replace(pod, status=PodStatus.RUNNING, node=bind.node, devices=devices, zones=bind.zones)
            return replace(running, gpu_groups=(), nominated_node="")
        if pod.key in gone or pod.status is PodStatus.RELEASING:
            return replace(pod, status=PodStatus.RELEASING) if lasts else _waiting(pod)
        return pod

    def next_gang(gang: Gang) -> Gang:
        pods = tuple(next_pod(pod, gang.name in lasting) for pod in gang.pods)
        starts = not any(pod.status.is_active for pod in gang.pods) and any(pod.status.is_active for pod in pods)
        last_start_s = now_s - STARTED_AGO_S if starts else gang.last_start_s
        settled = replace(gang, pods=pods, last_start_s=last_start_s)
        if not is_short(settled):
            return replace(settled, stale_since_s=None)
        return replace(settled, stale_since_s=snapshot.now_s) if gang.stale_since_s is None else settled

    after = replace(snapshot, now_s=now_s, gangs=tuple(next_gang(gang) for gang in snapshot.gangs))
    return carried(after, plan)


def is_short(gang: Gang) -> bool:
    """True where the gang runs below its minimum: KAI's ``IsStale`` (docs/kai-behaviour.md#stale-gangs)."""
    if any(pod.status is PodStatus.SUCCEEDED for pod in gang.pods):
        return False
    holding = Counter(pod.podset for pod in gang.pods if pod.status.holds_resources)
    return bool(holding) and any(holding[podset.name] < podset.min_member for podset in gang.root.podsets())


def _waiting(pod: Pod) -> Pod:
    return replace(pod, status=PodStatus.PENDING, node="", devices=(), gpu_groups=(), nominated_node="", zones=())
