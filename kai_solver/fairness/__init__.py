"""Fair share and what follows from it: who is served first, who is capped, who may take from whom."""

from kai_solver.fairness.division import allocatable_share, fair_share
from kai_solver.fairness.limits import (
    capping_queue,
    exceeded,
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
    exceeds,
    levelled,
    saturation_bound,
    surplus_above,
)
from kai_solver.fairness.runtime import preempt_min_runtime_s, protected_until_s, reclaim_min_runtime_s
from kai_solver.fairness.tree import QueueTree, roll_up
from kai_solver.fairness.usage import UsageHistory, UsageParams, past_usage, usage_warnings

__all__ = [
    "QueueAllowance",
    "QueueKey",
    "QueueOrder",
    "QueueSurplus",
    "QueueTree",
    "ReclaimLedger",
    "ReclaimRight",
    "UsageHistory",
    "UsageParams",
    "allocatable_share",
    "capping_queue",
    "compare_queues",
    "dominant_share",
    "exceeded",
    "exceeds",
    "fair_share",
    "gang_order_key",
    "levelled",
    "over_limit",
    "over_limit_message",
    "over_quota",
    "over_quota_message",
    "past_usage",
    "preempt_min_runtime_s",
    "protected_until_s",
    "queue_key",
    "reclaim_min_runtime_s",
    "roll_up",
    "saturation_bound",
    "surplus_above",
    "usage_warnings",
]
