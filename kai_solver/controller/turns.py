"""When time alone changes what is decided: a delay ends, a protection, a grace."""

from collections.abc import Iterator, Mapping
from itertools import chain

from kai_solver.domain import Gang, PodStatus, Policy, Snapshot
from kai_solver.problem.maintenance import lead_s
from kai_solver.reasons.events import is_stale

NEVER_S = float("inf")


def next_turn_s(snapshot: Snapshot) -> float:
    """Epoch seconds of the next such moment; infinite where none is known.

    Of minimum run times any that a queue states may be the one that protects a gang, so that some of these moments
    change nothing (docs/kai-behaviour.md#min-runtime).
    """
    waits = any(pod.status is PodStatus.PENDING for gang in snapshot.gangs for pod in gang.pods)
    minimums = _minimums(snapshot) if waits else frozenset()
    drained = {node.name: node.drain_at_s for node in snapshot.nodes if node.drain_at_s is not None}
    moments = _drains(snapshot, drained) if drained else ()
    turns = (moment for gang in snapshot.gangs for moment in _turns(gang, snapshot.policy, minimums, snapshot.now_s))
    return min((moment for moment in chain(turns, moments) if moment > snapshot.now_s), default=NEVER_S)


def _drains(snapshot: Snapshot, drained: Mapping[str, float]) -> Iterator[float]:
    """When pods have to leave nodes, by name with the time of their drain."""
    for gang in snapshot.gangs:
        for pod in gang.pods:
            if pod.node in drained and pod.status.is_active:
                yield drained[pod.node] - lead_s(snapshot.policy, pod)


def _minimums(snapshot: Snapshot) -> frozenset[float]:
    policy = snapshot.policy
    stated = {policy.reclaim_min_runtime_s, policy.preempt_min_runtime_s}
    for queue in snapshot.queues:
        stated |= {queue.reclaim_min_runtime_s or 0.0, queue.preempt_min_runtime_s or 0.0}
    return frozenset(seconds for seconds in stated if seconds > 0)


def _turns(gang: Gang, policy: Policy, minimums: frozenset[float], now_s: float) -> Iterator[float]:
    if gang.preemption_delay_s > 0 and any(pod.status is PodStatus.PENDING for pod in gang.pods):
        yield max(gang.created_s, gang.last_eviction_s or 0.0) + gang.preemption_delay_s
    if gang.preemptible and gang.last_start_s is not None:
        yield from (gang.last_start_s + seconds for seconds in minimums)
    grace_s = policy.staleness_grace_of(gang)
    if grace_s >= 0 and is_stale(gang):
        yield (now_s if gang.stale_since_s is None else gang.stale_since_s) + grace_s
