"""A way to assign all victims: to the latest reclaims that may take them, or those of some queues to the earliest.

For which leaf queues that is, is searched: one or two queues more or less, or all below one parent, as long as less is
left.

Of 42 sets of victims of little work that do not all find a reclaim at the latest (eight clusters of 300 to 2,000 loaded
nodes), 7,552 GPUs are left so. With tries of single queues until 12 are in vain, 15 sets are shared out in full and
1,610 GPUs are left; with pairs, until 40 or 100 are in vain, 15 and 1,307; until 400 are, 19 and 957, but then other
sets of the same cycle have no time at 2 s, and at 10 s plans are no better. A try takes 0.2 ms; 12 ms on 1,000 nodes
before the sweeps were kernels. To put single victims first that had none helped in none of 21 cases. CP-SAT with a
Boolean for each victim and reclaim took 11 and 40 s for two sets, and ended without an answer after 60 s for two
(2026-11-30).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations

from kai_solver.actions.reclaim_replay import ReclaimReplay
from kai_solver.actions.sharing.sweeps import go_back, go_on
from kai_solver.actions.sharing.tables import (
    OUT,
    SATURATED,
    SHORT,
    WAITS,
    as_list,
    groups_of,
    maker,
    scratch_for,
    turns_of,
    write,
)
from kai_solver.actions.sharing.victims import Shared, VictimGroup, in_order, victims_of
from kai_solver.compiled import uncompiled
from kai_solver.fairness.kernels import Table
from kai_solver.fairness.queue_tables import tree_of
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge, sum_of
from kai_solver.units import CPU, GPU, MEMORY

BY_WEIGHT = (GPU, MEMORY, CPU)
"""Resources of queues, the one first in which most of them are bounded."""
PATIENCE = 40
"""Tries without a better one after which no more are made."""


@dataclass(slots=True)
class Tries:
    """Time to try other queues among the earliest; one serves for all victims of a cycle, which are mostly the same.

    Attributes
    ----------
    left
        How many more tries may be in vain.
    made
        How many were made.
    is_late
        Whether to be content with what is assigned so far.
    first
        Leaf queues to try first, however late it is: those of the newest answer that is of use.
    """

    left: int = 160
    is_late: Callable[[], bool] = lambda: False
    first: frozenset[int] = frozenset()
    made: int = 0

    @property
    def are_over(self) -> bool:
        """Whether there is nothing to try."""
        return not self.first and (self.left <= 0 or self.is_late())


def share_out(outcome: Outcome, groups: Iterable[VictimGroup], tries: Tries | None = None) -> Shared:
    """Assign every victim group to one admission that may take it, whatever the admissions took before."""
    left = list(groups)
    if outcome.pool is None or not outcome.admissions:
        return Shared(outcome.admissions, left)
    if not left:
        return Shared([replace(admission, units=()) for admission in outcome.admissions], left)
    return _Sharing(outcome, outcome.pool, left).run(tries)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What takes each victim, with those of the leaf queues ``early`` at the earliest.

    Attributes
    ----------
    taker
        By victim, the number of an admission, or `WAITS`.
    left, amount
        Victims that none takes, and what is tested of them: GPUs first. Units that move have none.
    short
        By queue, (resource, how much more it would have to hold) for some of what is left to be taken.
    saturated
        Levelled queues of reclaimers that were too saturated for a victim's, as found on the way.
    """

    early: frozenset[int]
    taker: Sequence[int]
    left: tuple[int, ...]
    amount: Charge
    short: Mapping[int, tuple[int, int]]
    saturated: tuple[int, ...]

    def is_better_than(self, other: "_Answer") -> bool:
        """Whether less is left, or as much of fewer."""
        return (self.amount, len(self.left)) < (other.amount, len(other.left))


class _Sharing:
    """The victims of one cycle."""

    def __init__(self, outcome: Outcome, pool: VictimPool, groups: Iterable[VictimGroup]) -> None:
        self.admissions, self.tree = outcome.admissions, outcome.state.problem.queues
        unordered = victims_of(outcome, pool, groups)
        self.victims = in_order(unordered)
        self.leaves = frozenset(one.queue for one in self.victims)
        start = ReclaimReplay(outcome, pool)
        end = start.copy()
        for admission in self.admissions:
            end.receive(admission)
        make, turns = maker(), len(self.admissions)
        rows = groups_of(self.victims, dict.fromkeys((one.queue, one.group.able) for one in unordered), turns, make)
        problem = outcome.state.problem
        multiplier = problem.policy.saturation_multiplier
        queues = tree_of(problem.queues, problem.share, problem.allocatable, multiplier, make)
        self._tables = queues, turns_of(start, self.admissions, make), rows
        self._scratch = scratch_for(self.tree.size, turns, len(self.victims), len(rows.leaf), make)
        self._start, self._end = ((make(one.allocated), make(one.fixed)) for one in (start, end))
        self._back, self._on = (go_back, go_on) if make is not list else (uncompiled(go_back), uncompiled(go_on))
        self._tested = [sum_of(one.parts)[::-1] for one in self.victims]

    def run(self, tries: Tries | None) -> Shared:
        """All at the latest, or the best of the ``tries``."""
        latest = self._latest(frozenset(), [WAITS] * len(self.victims))
        if not latest.left or tries is None or tries.are_over:
            return self._shared(latest)
        before, best = tries.left, self._searched(self._forwards(latest), tries)
        if not best.left:
            tries.first, tries.left = best.early, before
        return replace(self._shared(best), latest=([self.victims[one].group for one in latest.left], latest.short))

    def _searched(self, best: _Answer, tries: Tries) -> _Answer:
        """Each with one queue or parent more or less than the best before, as long as that leaves less."""
        known = {best.early}
        while best.left:
            better = self._better(best, known, tries)
            if better is None:
                break
            best = better
        return best

    def _shared(self, answer: _Answer) -> Shared:
        units: list[list[int]] = [[] for _ in self.admissions]
        for one, taker in zip(self.victims, answer.taker, strict=True):
            if taker != WAITS:
                units[taker] += one.group.units
        admissions = [replace(one, units=tuple(own)) for one, own in zip(self.admissions, units, strict=True)]
        return Shared(admissions, [self.victims[one].group for one in answer.left], answer.short, answer.early)

    def _better(self, best: _Answer, known: set[frozenset[int]], tries: Tries) -> _Answer | None:
        first, before = tries.first & self.leaves, len(known)
        for early in chain((first,), self._near(best)):
            if early in known:
                continue
            is_over = len(known) - before >= PATIENCE or tries.left <= 0 or tries.is_late()
            if early != first and is_over:
                return None
            known.add(early)
            tries.made += 1
            tries.left -= early != first
            answer = self._with_early(early)
            if answer.amount <= best.amount and (answer := self._forwards(answer)).is_better_than(best):
                return answer
        return None

    def _near(self, answer: _Answer) -> Iterator[frozenset[int]]:
        """What else may be early: queues of what is left, those below what is too saturated, siblings, any others."""
        early, left = answer.early, list(dict.fromkeys(self.victims[one].queue for one in answer.left))
        yield from (early ^ {leaf} for leaf in left)
        parents = [path[1] for leaf in left if len(path := self.tree.path[leaf]) > 1]
        yield from (early | (self.tree.leaves[queue] & self.leaves) for queue in (*answer.saturated, *parents))
        yield from (early - self.tree.leaves[queue] for queue in parents)
        yield from (early ^ {leaf} for leaf in sorted(self.leaves))
        yield from (early ^ {one, other} for one, other in combinations(sorted(self.leaves), 2))

    def _latest(self, early: frozenset[int], taker: Sequence[int]) -> _Answer:
        """All that have none in ``taker`` at the latest.

        Where none has one, queues that may lose nothing are not passed over: they are to be noted as short.
        """
        self._begin(self._end, taker)
        self._back(*self._tables, self._scratch, any(one != WAITS for one in taker))
        s = self._scratch
        resource, missing = as_list(s.resource), as_list(s.missing)
        short = {queue: (resource[queue], missing[queue]) for queue in as_list(s.short[: s.numbers[SHORT]])}
        return self._answer(early, short, tuple(as_list(s.saturated[: s.numbers[SATURATED]])))

    def _with_early(self, early: frozenset[int]) -> _Answer:
        """The early ones by themselves, then the others; all is allowed once it has gone `_forwards`."""
        self._begin(self._start, [WAITS if one.queue in early else OUT for one in self.victims])
        self._on(*self._tables, self._scratch)
        taker = [WAITS if one == OUT else one for one in as_list(self._scratch.taker)]
        return self._latest(early, taker)

    def _forwards(self, answer: _Answer) -> _Answer:
        """What is left, and what an admission may not take after all, goes wherever it may.

        The early ones knew nothing of the others, and those at the latest took it that all would leave.
        """
        self._begin(self._start, answer.taker)
        self._on(*self._tables, self._scratch)
        return self._answer(answer.early, answer.short, answer.saturated)

    def _begin(self, held: tuple[Table, Table], taker: Sequence[int]) -> None:
        s = self._scratch
        write(s.held, held[0])
        write(s.fixed, held[1])
        s.taker[:] = taker

    def _answer(
        self, early: frozenset[int], short: Mapping[int, tuple[int, int]], saturated: tuple[int, ...]
    ) -> _Answer:
        taker = as_list(self._scratch.taker)
        left = tuple(number for number, one in enumerate(taker) if one == WAITS)
        return _Answer(early, taker, left, sum_of(self._tested[one] for one in left), short, saturated)
