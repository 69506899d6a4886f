"""Who may disturb whom, as far as the gangs alone say (reference 1.2, 3.5 to 3.7)."""

from kai_solver.domain import Gang


def is_takeable(victim: Gang) -> bool:
    """Preemptible, in play, and with an active pod: what every disruptive rung asks of a victim."""
    return victim.preemptible and not victim.set_aside and any(pod.status.is_active for pod in victim.pods)


def preempt_victim(preemptor: Gang, victim: Gang) -> bool:
    """Same queue, strictly lower priority, takeable (``actions/preempt``)."""
    return victim.queue == preemptor.queue and victim.priority < preemptor.priority and is_takeable(victim)


def reclaim_victim(reclaimer: Gang, victim: Gang) -> bool:
    """Another queue, takeable; priorities do not matter across queues (``actions/reclaim``)."""
    return victim.queue != reclaimer.queue and is_takeable(victim)


def consolidation_victim(pending: Gang, victim: Gang) -> bool:
    """Any other takeable gang of any queue; run times and priorities do not matter (``actions/consolidation``)."""
    return victim.key != pending.key and is_takeable(victim)


def may_consolidate(pending: Gang) -> bool:
    """Moves are made for preemptible gangs only."""
    return pending.preemptible


def may_disturb(pending: Gang, now_s: float) -> bool:
    """Whether the gang's preemption delay has passed since it was made or last evicted."""
    since = pending.created_s if pending.last_eviction_s is None else max(pending.created_s, pending.last_eviction_s)
    return now_s >= since + pending.preemption_delay_s


def may_preempt(preemptor: Gang, now_s: float) -> bool:
    """Whether the gang may cause victims in its own queue."""
    return not preemptor.never_preempts and may_disturb(preemptor, now_s)
