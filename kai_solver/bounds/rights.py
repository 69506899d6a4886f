"""What may be disturbed at all, and how much may be taken from which queue: by rules and sums alone.

Everything here errs on the side of "may": a gang that is protected but has surplus counts as a whole. Source of the
rules: docs/kai-behaviour.md#reclaim, #preempt, #consolidation (KAI: ``proportion/reclaimable``, ``actions/preempt``,
``plugins/minruntime``).
"""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.demand import Demand
from kai_solver.bounds.residents import Residents
from kai_solver.domain import Action
from kai_solver.fairness import (
    preempt_min_runtime_s,
    protected_until_s,
    reclaim_min_runtime_s,
)
from kai_solver.problem import GangShape
from kai_solver.problem.budgets import BUDGETS
from kai_solver.units import CPU, GPU, MEMORY

BoolArray = NDArray[np.bool_]
Table = Sequence[Sequence[int]]

NOTHING: frozenset[str] = frozenset()

MINRUNTIME, PREEMPTIBLE, PRIORITY, SHARE = "minruntime", "preemptibility", "priority", "fair-share"
"""Rules that protect running gangs; a bound may be asked as if one of them were dropped."""


PROTECTIONS = frozenset((MINRUNTIME, PREEMPTIBLE, PRIORITY, SHARE, BUDGETS))


class Rights:
    """Gangs that each action may disturb for a demand, as masks (G,)."""

    def __init__(self, residents: Residents) -> None:
        self.residents = residents
        self.problem = residents.problem
        self._safe: dict[tuple[Action, int], BoolArray] = {}
        self._masks: dict[tuple[object, ...], BoolArray] = {}

    def leaving(self, demand: Demand, allocated: Table, dropped: frozenset[str] = NOTHING) -> BoolArray:
        """(G,) gangs that may leave or move for ``demand``, with the rules ``dropped`` not in force."""
        dropped &= PROTECTIONS
        queues = self.victim_queues(demand, allocated, dropped) if demand.action is Action.RECLAIM else ()
        gang = demand.gang
        own = gang.index if demand.action is Action.CONSOLIDATION else -1
        key = (demand.action, gang.queue, gang.gang.priority, gang.gang.never_preempts, queues, dropped, own)
        if key not in self._masks:
            self._masks[key] = self._leaving(demand, queues, dropped)
        return self._masks[key]

    def _leaving(self, demand: Demand, queues: tuple[int, ...], dropped: frozenset[str]) -> BoolArray:
        r, gang = self.residents, demand.gang
        may = r.runs & r.preemptible if PREEMPTIBLE not in dropped else r.runs.copy()
        if demand.action is Action.ALLOCATE:
            return np.zeros_like(may)
        if demand.action is Action.CONSOLIDATION:
            may[gang.index] = False
            return may
        if demand.action is Action.PREEMPT:
            may = may & (r.queue == gang.queue)
            if PRIORITY not in dropped:
                may &= (r.priority < gang.gang.priority) & (not gang.gang.never_preempts)
            may[gang.index] = False
        else:
            may = may & np.isin(r.queue, queues)
        return may if MINRUNTIME in dropped else may & ~self._protected(demand.action, gang.queue)

    def protections(self, demand: Demand) -> Iterator[str]:
        """Rules that keep running gangs from being disturbed for ``demand``."""
        r, action = self.residents, demand.action
        if action in (Action.RECLAIM, Action.PREEMPT):
            yield PRIORITY if action is Action.PREEMPT else SHARE
            if self._protected(action, demand.gang.queue).any():
                yield MINRUNTIME
        if (r.runs & ~r.preemptible).any():
            yield PREEMPTIBLE
        if self.problem.budgets is not None:
            yield BUDGETS

    def victim_queues(self, demand: Demand, allocated: Table, dropped: frozenset[str] = NOTHING) -> tuple[int, ...]:
        """Leaf queues with running work from which ``demand`` may reclaim by the numbers ``allocated``."""
        others = [queue for queue in self._queues if queue != demand.gang.queue]
        right = self.problem.reclaim_right(allocated, demand.gang.queue, demand.charge)
        return tuple(others if SHARE in dropped else filter(right.may_look_at, others))

    @cached_property
    def _queues(self) -> list[int]:
        r = self.residents
        found: list[int] = np.flatnonzero(np.bincount(r.queue[r.runs])).tolist()
        return found

    def _protected(self, action: Action, queue: int) -> BoolArray:
        """(G,) gangs of which not even surplus may go, since they started lately."""
        key = (action, queue)
        if key not in self._safe:
            self._safe[key] = self._look_up(action, queue)
        return self._safe[key]

    def _look_up(self, action: Action, queue: int) -> BoolArray:
        problem = self.problem
        now_s = problem.snapshot.now_s

        @cache
        def least_s(victim_queue: int) -> float:
            if action is Action.PREEMPT:
                return preempt_min_runtime_s(problem.queues, problem.policy, queue)
            return reclaim_min_runtime_s(problem.queues, problem.policy, queue, victim_queue)

        if all(least_s(victim) <= 0 for victim in self._queues):
            return np.zeros(len(problem.gangs), dtype=np.bool_)
        return np.array(
            [
                protected_until_s(g.gang.last_start_s, least_s(g.queue)) > now_s and not has_surplus(g)
                for g in problem.gangs
            ],
            dtype=np.bool_,
        )

    # -- what reclaim may take in all ------------------------------------------------------------------------------

    def entitled_milli(self, demand: Demand, leaving: BoolArray, allocated: Table) -> int | None:
        """Most thousandths of devices that reclaim may free for ``demand``; None where this says nothing.

        Of each levelled queue: its surplus, less one, and one last allocation unit, which is at most a whole gang.
        """
        r, total = self.residents, 0
        right = self.problem.reclaim_right(allocated, demand.gang.queue, demand.charge)
        by_queue = {found.queue: found for found in map(right.surplus, self.victim_queues(demand, allocated))}
        for surplus in by_queue.values():
            if surplus.amounts[CPU] > 0 or surplus.amounts[MEMORY] > 0:
                return None
            charged = r.charge[leaving & np.isin(r.queue, list(surplus.leaves)), GPU]
            total += min(int(charged.sum()), surplus.most(GPU, int(charged.max(initial=0))) or 0)
        return total


def has_surplus(gang: GangShape) -> bool:
    """May some of its pods leave without the others? Where that is not known: yes."""
    return len(gang.active) > sum(leaf.min_member for leaf in gang.leaves) or len(gang.leaves) > 1
