"""Which gangs an action may disturb at all, and how much reclaim may take from which queue, by sums alone.

The rules are those of `fairness.eligibility` and `fairness.reclaim`, asked for whole gangs. Where a part of a gang may
go, the whole gang counts as one that may, so a "no" from here is a proof.
"""

from collections.abc import Iterator, Sequence
from functools import cache, cached_property

import numpy as np
from numpy.typing import NDArray

from kai_solver.bounds.demand import Demand
from kai_solver.bounds.residents import Residents
from kai_solver.domain import Action
from kai_solver.fairness import (
    MINRUNTIME,
    NEVER_STARTED_S,
    PREEMPTIBLE,
    PRIORITY,
    SHARE,
    RunningWork,
    eligible,
    is_unprotected,
    min_runtime_s,
)
from kai_solver.problem import GangShape
from kai_solver.units import CPU, GPU, MEMORY

BoolArray = NDArray[np.bool_]
FloatArray = NDArray[np.float64]
Table = Sequence[Sequence[int]]

NOTHING: frozenset[str] = frozenset()

PROTECTIONS = frozenset((MINRUNTIME, PREEMPTIBLE, PRIORITY, SHARE))
"""Rules of the core that protect running work; a bound may be asked as if one of them were dropped."""


class Rights:
    """Gangs that each action may disturb for a demand, as masks (G,)."""

    def __init__(self, residents: Residents) -> None:
        self.residents = residents
        self.problem = residents.problem
        self._least_s: dict[tuple[Action, int], FloatArray] = {}
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
        found = eligible(
            demand.action,
            gang.index,
            gang.gang,
            gang.queue,
            self._work,
            reclaimable=np.isin(r.queue, queues),
            min_runtime_s=self._min_runtime_s(demand.action, gang.queue)[r.queue],
            now_s=self.problem.snapshot.now_s,
            dropped=dropped,
        )
        return np.asarray(r.runs & found)

    @cached_property
    def _work(self) -> RunningWork:
        """Whole gangs; one that is protected but may have surplus counts as one that may leave."""
        r, gangs = self.residents, self.problem.gangs

        @cache
        def may_have_surplus() -> BoolArray:
            return np.array([has_surplus(g) for g in gangs], dtype=np.bool_)

        started_s = self.problem.gang_columns.started_s
        return RunningWork(
            gang=np.arange(len(gangs)),
            queue=r.queue,
            priority=r.priority,
            preemptible=r.preemptible,
            may_move=np.ones(len(gangs), dtype=np.bool_),
            started_s=np.where(np.isnan(started_s), NEVER_STARTED_S, started_s),
            surplus=may_have_surplus,
        )

    def protections(self, demand: Demand) -> Iterator[str]:
        """Rules that keep running work from being disturbed for ``demand``."""
        r, action = self.residents, demand.action
        if action in (Action.RECLAIM, Action.PREEMPT):
            yield PRIORITY if action is Action.PREEMPT else SHARE
            least_s = self._min_runtime_s(action, demand.gang.queue)[r.queue]
            free = is_unprotected(self._work.started_s, least_s, self.problem.snapshot.now_s)
            if not (np.all(free) or np.all(free | self._work.surplus())):
                yield MINRUNTIME
        if (r.runs & ~r.preemptible).any():
            yield PREEMPTIBLE
        yield from (rule.kind for rule in self.problem.rules if rule.is_protective)

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

    def _min_runtime_s(self, action: Action, queue: int) -> FloatArray:
        """(Q,) seconds for which running work of each leaf queue is safe from ``action`` by a gang of ``queue``."""
        key = action, queue
        if key not in self._least_s:
            problem = self.problem
            self._least_s[key] = np.zeros(problem.queues.size)
            for victims in self._queues:
                least_s = min_runtime_s(problem.queues, problem.policy, action, queue, victims)
                self._least_s[key][victims] = least_s
        return self._least_s[key]

    # -- what reclaim may take in all ------------------------------------------------------------------------------

    def entitled_milli(self, demand: Demand, leaving: BoolArray, allocated: Table) -> int | None:
        """Most thousandths of devices that reclaim may free for ``demand``; None where this says nothing.

        By each levelled queue what `QueueSurplus.most` allows; the last part is at most a whole gang.
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
