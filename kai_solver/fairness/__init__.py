"""Fair share and what follows from it: the order of queues and gangs, limits, what may be reclaimed or preempted."""

from kai_solver.fairness.division import allocatable_share, fair_share
from kai_solver.fairness.eligibility import (
    MINRUNTIME,
    NEVER_STARTED_S,
    PREEMPTIBLE,
    PRIORITY,
    SHARE,
    RunningWork,
    eligible,
    is_unprotected,
)
from kai_solver.fairness.limits import (
    capping_queue,
    exceeded,
    first_over,
    over_limit,
    over_limit_message,
    over_quota,
    over_quota_message,
)
from kai_solver.fairness.order import QueueKey, QueueOrder, compare_queues, dominant_share, gang_order_key, queue_key
from kai_solver.fairness.reclaim import (
    QueueAllowance,
    QueueSurplus,
    ReclaimLedger,
    ReclaimRight,
    SaturationBound,
    exceeds,
    levelled,
    levelled_above,
    saturation_bound,
    surplus_above,
)
from kai_solver.fairness.runtime import min_runtime_s, min_runtimes_s
from kai_solver.fairness.tree import QueueTree, roll_up
from kai_solver.fairness.usage import UsageHistory, UsageParams, past_usage, usage_warnings

__all__ = [
    "MINRUNTIME",
    "NEVER_STARTED_S",
    "PREEMPTIBLE",
    "PRIORITY",
    "SHARE",
    "QueueAllowance",
    "QueueKey",
    "QueueOrder",
    "QueueSurplus",
    "QueueTree",
    "ReclaimLedger",
    "ReclaimRight",
    "RunningWork",
    "SaturationBound",
    "UsageHistory",
    "UsageParams",
    "allocatable_share",
    "capping_queue",
    "compare_queues",
    "dominant_share",
    "eligible",
    "exceeded",
    "exceeds",
    "fair_share",
    "first_over",
    "gang_order_key",
    "is_unprotected",
    "levelled",
    "levelled_above",
    "min_runtime_s",
    "min_runtimes_s",
    "over_limit",
    "over_limit_message",
    "over_quota",
    "over_quota_message",
    "past_usage",
    "queue_key",
    "roll_up",
    "saturation_bound",
    "surplus_above",
    "usage_warnings",
]
