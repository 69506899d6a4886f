"""Which running work an action may take for a preemptor: the rule, stated here and nowhere else in the solver.

Source: docs/kai-behaviour.md#reclaim-victims, #preempt, #consolidation and #min-runtime (KAI: ``actions/preempt``,
``plugins/minruntime``). Work may be taken only if it is preemptible, and

- consolidation: it is of another gang, and its pods are made again when they are deleted;
- reclaim: it is of a leaf queue from which the preemptor may reclaim (`fairness.reclaim`, rule 2), and not protected;
- preempt: it is of another gang of the same leaf queue, of strictly lower priority, and not protected; the preemptor is
  not one that never preempts.

A gang is protected until its start plus the minimum run time of its queue; its surplus is not. Disruption budgets
(`rules.disruption_budgets`) and tests of the whole set of victims (`fairness.reclaim`, rules 3 and 4) come on top.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kai_solver.domain import Action
from kai_solver.domain.gangs import Gang

Ints = NDArray[np.int64] | int
Floats = NDArray[np.float64] | float
Mask = NDArray[np.bool_] | bool

MINRUNTIME, PREEMPTIBLE, PRIORITY, SHARE = "minruntime", "preemptibility", "priority", "fair-share"
"""Names of the rules that protect running work: minimum run time, preemptibility, priority, right to reclaim."""

NEVER_STARTED_S = float("-inf")


@dataclass(frozen=True, slots=True, eq=False)
class RunningWork:
    """Running work: N items (eviction units, or whole gangs) as arrays (N,), or one item as plain numbers.

    Attributes
    ----------
    gang, queue, priority
        Its gang, leaf queue and priority.
    preemptible
        Whether it may be taken at all.
    may_move
        Whether every pod is made again by its controller.
    started_s
        Last start of its gang, as an epoch second; `NEVER_STARTED_S` before the first.
    surplus
        Whether it may go though its gang is protected; asked only where something may be protected.
    """

    gang: Ints
    queue: Ints
    priority: Ints
    preemptible: Mask
    may_move: Mask
    started_s: Floats
    surplus: Callable[[], Mask]


def eligible(
    action: Action,
    gang: int,
    asking: Gang,
    leaf: int,
    work: RunningWork,
    *,
    reclaimable: Mask,
    min_runtime_s: Floats,
    now_s: float,
    dropped: frozenset[str] = frozenset(),
) -> Mask:
    """Whether ``action`` may take each item of ``work``.

    Parameters
    ----------
    gang, asking, leaf
        The preemptor: its number among the gangs, the gang, and its leaf queue.
    reclaimable
        By item, whether the preemptor may reclaim from its leaf queue; only reclaim reads it.
    min_runtime_s
        By item, the minimum run time that protects it from this preemptor (`min_runtime_s`).
    dropped
        Names of rules that count as if they were not in force.
    """
    if action is Action.ALLOCATE:
        return work.preemptible & False
    may = work.preemptible if PREEMPTIBLE not in dropped else work.preemptible | True
    if action is Action.CONSOLIDATION:
        return may & (work.gang != gang) & work.may_move
    if action is Action.RECLAIM:
        may = may & reclaimable
    else:
        may = may & (work.gang != gang) & (work.queue == leaf)
        if PRIORITY not in dropped:
            may = may & (work.priority < asking.priority) & (not asking.never_preempts)
    if MINRUNTIME in dropped or not np.any(min_runtime_s):
        return may
    return may & (is_unprotected(work.started_s, min_runtime_s, now_s) | work.surplus())


def is_unprotected(started_s: Floats, min_runtime_s: Floats, now_s: float) -> Mask:
    """Whether a gang's minimum may be taken ``now_s``: it never started, or has run for ``min_runtime_s``."""
    unprotected: Mask = (min_runtime_s <= 0) | (started_s + min_runtime_s <= now_s)
    return unprotected
