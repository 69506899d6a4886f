"""Minimum run times: how long victims are protected after their start (docs/kai-behaviour.md#min-runtime)."""

from collections.abc import Iterable

from kai_solver.domain import Action, Policy
from kai_solver.fairness.reclaim import levelled, levelled_above
from kai_solver.fairness.tree import QueueTree


def min_runtime_s(tree: QueueTree, policy: Policy, action: Action, leaf: int, leaf_v: int) -> float:
    """Seconds for which work of ``leaf_v`` is safe from ``action`` by a gang of ``leaf``; 0 where it never is.

    Preempt: the nearest setting from the leaf queue upward. Reclaim: from the victim's leaf queue where the policy
    says ``queue``, from its levelled queue where it says ``lca``. The policy's default where no queue sets one.
    """
    if action is Action.PREEMPT:
        own = (tree.queues[queue].preempt_min_runtime_s for queue in tree.path[leaf])
        return next((seconds for seconds in own if seconds is not None), policy.preempt_min_runtime_s)
    if action is not Action.RECLAIM:
        return 0.0
    start = leaf_v if policy.reclaim_resolve == "queue" else levelled(tree, leaf, leaf_v)[1]
    own = (tree.queues[queue].reclaim_min_runtime_s for queue in tree.path[start])
    return next((seconds for seconds in own if seconds is not None), policy.reclaim_min_runtime_s)


def min_runtimes_s(
    tree: QueueTree, policy: Policy, action: Action, leaf: int, leaves: Iterable[int]
) -> dict[int, float]:
    """`min_runtime_s` for each of the ``leaves``; asked once for all below one levelled queue where that decides."""
    leaves = frozenset(leaves)
    if action is not Action.RECLAIM or policy.reclaim_resolve == "queue":
        return {victim: min_runtime_s(tree, policy, action, leaf, victim) for victim in leaves}
    found: dict[int, float] = {}
    for queue, victim in levelled_above(tree, leaf, leaves).items():
        seconds = min_runtime_s(tree, policy, action, leaf, victim)
        found.update(dict.fromkeys(tree.leaves[queue] & leaves, seconds))
    return found
