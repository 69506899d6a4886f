"""Minimum run times: how long a victim is protected after its start.

Source: docs/kai-behaviour.md#min-runtime; KAI: ``plugins/minruntime``.
"""

from kai_solver.domain import Policy
from kai_solver.fairness.reclaim import levelled
from kai_solver.fairness.tree import QueueTree

UNPROTECTED_S = float("-inf")


def reclaim_min_runtime_s(tree: QueueTree, policy: Policy, leaf_r: int, leaf_v: int) -> float:
    """Seconds that work of ``leaf_v`` is safe from reclaim by ``leaf_r``.

    ``lca``: looked up from the victim's side just below the queues' lowest common ancestor, toward the root;
    ``queue``: from the victim's leaf. The policy's default where nothing is set.
    """
    start = leaf_v if policy.reclaim_resolve == "queue" else levelled(tree, leaf_r, leaf_v)[1]
    for queue in tree.path[start]:
        own = tree.queues[queue].reclaim_min_runtime_s
        if own is not None:
            return own
    return policy.reclaim_min_runtime_s


def preempt_min_runtime_s(tree: QueueTree, policy: Policy, leaf: int) -> float:
    """Seconds that work of ``leaf`` is safe from preemption by its own queue: the nearest setting upward."""
    for queue in tree.path[leaf]:
        own = tree.queues[queue].preempt_min_runtime_s
        if own is not None:
            return own
    return policy.preempt_min_runtime_s


def protected_until_s(last_start_s: float | None, min_runtime_s: float) -> float:
    """Epoch second from which a gang's minimum may be taken; before, only its surplus. -inf where never protected.

    A gang that never started has nothing to protect.
    """
    if last_start_s is None or min_runtime_s <= 0:
        return UNPROTECTED_S
    return last_start_s + min_runtime_s
