"""A way to assign all victims: to the latest reclaims that may take them, or those of some queues to the earliest.

For which leaf queues that is, is searched: one queue more or less, or all below one parent, as long as less is left.

Of 44 sets of victims of little work that did not all find a reclaim at the latest (seven clusters of 500 and 1,000
loaded nodes, 110 to 271 victims), the search found one for all victims of 21. A try takes 12 ms. To put single victims
first that had none helped in none of 21 cases. CP-SAT with a Boolean for each victim and reclaim took 11 and 40 s for
two sets, and ended without an answer after 60 s for two (2026-11-30).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from kai_solver.actions.reclaim_replay import ReclaimReplay
from kai_solver.actions.sharing.earliest import earliest
from kai_solver.actions.sharing.latest import Latest
from kai_solver.actions.sharing.levels import Levels
from kai_solver.actions.sharing.victims import NOTHING, Shared, Taken, VictimGroup, Victims, victims_of
from kai_solver.planstate.outcome import Outcome
from kai_solver.planstate.victims import VictimPool
from kai_solver.problem.charges import Charge, sum_of

PATIENCE = 12
"""Tries without a better one after which no more are made: on eight loaded clusters one came after nine at most."""


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
        Leaf queues to try first, however late it is: those of the newest answer that left nothing.
    """

    left: int = 40
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
    if outcome.pool is None:
        return Shared(outcome.admissions, left)
    return _Sharing(outcome, outcome.pool, left).run(tries)


@dataclass(frozen=True, slots=True)
class _Answer:
    """What each admission takes, and what is left, with the victims of the leaf queues ``early`` at the earliest.

    ``short``, ``saturated``: as of `Latest`.
    """

    early: frozenset[int]
    taken: Taken
    left: tuple[Victims, ...]
    short: dict[int, tuple[int, int]]
    saturated: tuple[int, ...]

    @property
    def amount(self) -> Charge:
        """What is left: GPUs first. Units that move have none."""
        cpu, memory, gpu = sum_of(part for one in self.left for part in one.parts)
        return gpu, memory, cpu

    def is_better_than(self, other: "_Answer") -> bool:
        """Whether less is left, or as much of fewer."""
        return (self.amount, len(self.left)) < (other.amount, len(other.left))


class _Sharing:
    """The victims of one cycle."""

    def __init__(self, outcome: Outcome, pool: VictimPool, groups: Iterable[VictimGroup]) -> None:
        self.admissions, self.tree = outcome.admissions, outcome.state.problem.queues
        self.start = ReclaimReplay(outcome, pool)
        self.end = self.start.copy()
        for admission in self.admissions:
            self.end.receive(admission)
        self.levels = Levels(outcome.state.problem)
        self.victims = victims_of(outcome, pool, groups)
        self.leaves = frozenset(one.queue for one in self.victims)

    def run(self, tries: Tries | None) -> Shared:
        """All at the latest, or the best of the ``tries``."""
        latest = self._latest(frozenset(), NOTHING)
        if not latest.left or tries is None or tries.are_over:
            return self._shared(latest)
        before, best = tries.left, self._searched(self._forwards(latest), tries)
        if not best.left:
            tries.first, tries.left = best.early, before
        return replace(self._shared(best), latest=([one.group for one in latest.left], latest.short))

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
        units = {number: tuple(unit for one in own for unit in one.group.units) for number, own in answer.taken.items()}
        admissions = [replace(one, units=units.get(number, ())) for number, one in enumerate(self.admissions)]
        return Shared(admissions, [one.group for one in answer.left], answer.short, answer.early)

    def _better(self, best: _Answer, known: set[frozenset[int]], tries: Tries) -> _Answer | None:
        first, before = tries.first & self.leaves, len(known)
        for early in (first, *self._near(best)):
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
        """What else may be early: the queues of what is left, those below what is too saturated, siblings, any one."""
        early, left = answer.early, list(dict.fromkeys(one.queue for one in answer.left))
        yield from (early ^ {leaf} for leaf in left)
        parents = [path[1] for leaf in left if len(path := self.tree.path[leaf]) > 1]
        yield from (early | (self.tree.leaves[queue] & self.leaves) for queue in (*answer.saturated, *parents))
        yield from (early - self.tree.leaves[queue] for queue in parents)
        yield from (early ^ {leaf} for leaf in sorted(self.leaves))

    def _latest(self, early: frozenset[int], taken: Taken) -> _Answer:
        """All but what is ``taken`` at the latest.

        Where nothing is taken before, queues that may lose nothing are not passed over: they are to be noted as short.
        """
        levels = self.levels if taken else None
        latest = Latest(self.end, self.admissions, self.victims, taken, levels)
        latest.run()
        return _Answer(early, latest.taken, tuple(latest.left), latest.short, tuple(latest.saturated))

    def _with_early(self, early: frozenset[int]) -> _Answer:
        """The early ones by themselves, then the others; all is allowed once it has gone `_forwards`."""
        taken, _ = earliest(
            self.start, self.admissions, self.levels, [one for one in self.victims if one.queue in early]
        )
        return self._latest(early, taken)

    def _forwards(self, answer: _Answer) -> _Answer:
        """What is left, and what an admission may not take after all, goes wherever it may.

        The early ones knew nothing of the others, and those at the latest took it that all would leave.
        """
        taken, left = earliest(self.start, self.admissions, self.levels, answer.left, answer.taken)
        return replace(answer, taken=taken, left=tuple(left))
