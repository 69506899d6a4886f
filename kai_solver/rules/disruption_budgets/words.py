"""Disruption budgets in words, and the cluster without them."""

from collections.abc import Sequence
from dataclasses import replace

from kai_solver.domain import HELD_BY_BUDGETS, Blocker, Snapshot
from kai_solver.rules.disruption_budgets.problem import Budgets
from kai_solver.units import counted

CURE = "all pods let go that {name} holds"

SENTENCE = "Disruption budgets hold pods that could make room: {name} ({have})"

MOST_NAMED = 3
"""Budgets that are called by name."""


def blocker(budgets: Budgets, which: Sequence[int]) -> Blocker:
    """The budgets ``which`` as one element of what blocks."""
    names = [budgets.names[budget] for budget in which]
    told = ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if names[MOST_NAMED:] else "")
    allowed, covered = (int(counts[list(which)].sum()) for counts in (budgets.allowed, budgets.covered))
    have = f"{allowed:,} of {counted(covered, 'pod')} may leave now"
    return Blocker(HELD_BY_BUDGETS, told, "pods that may be evicted or moved", have)


def without(snapshot: Snapshot) -> Snapshot:
    """The cluster in which no budget holds a pod, and no eviction was refused."""
    return replace(snapshot, budgets=(), refused=frozenset())
