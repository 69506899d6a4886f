"""For how many swaps ahead an answer stands: rights to take, computed once for many identical takers.

In a swap a pod takes the place of another that asks for the same, so the taker's queues get what the victim's lose.
The rules of reclaim compare amounts, and are the harder to meet the more the taker's queues hold and the less the
victim's. What is allowed if all of the next n swaps go to this taker's queues, at the cost of this victim's, is allowed
before each of them, whichever take part; if none of the taker's queues passes its quota on the way, which changes
rules.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

from kai_solver.actions.allowance import Allowance
from kai_solver.actions.caps import passed_cap
from kai_solver.actions.gang_order import goes_before
from kai_solver.actions.victim_search import VictimSearch
from kai_solver.domain import Action
from kai_solver.fairness import ReclaimLedger, levelled
from kai_solver.planstate.eligibility import Preemptor, refuses_reclaim
from kai_solver.problem import GangShape
from kai_solver.problem.charges import Charge

MOST_AHEAD = 4096
"""Swaps that are looked ahead at most."""


class Standing(NamedTuple):
    """What a taker may take from: leaf queues, those levelled ones of them that have nothing left to give, and whether
    it is within its quota, from the leaf up."""

    queues: tuple[int, ...]
    exhausted: frozenset[int]
    guaranteed: tuple[bool, ...]


ANY_QUEUE = Standing((), frozenset(), ())
"""On actions that do not ask queues."""


@dataclass(slots=True)
class _Known:
    """A standing, good until so many swaps were made in all (``until``) while no queue loses more than ``safe``.

    ``lost``: losses by levelled queue since it was worked out, from the first ``seen`` swaps. No queue can lose too
    much before more than ``sure`` swaps were made in all, as long as only ``leaves`` lose.
    """

    standing: Standing
    until: int
    seen: int
    sure: int = 0
    leaves: set[int] = field(default_factory=set)
    lost: dict[int, int] = field(default_factory=dict)
    safe: dict[int, int] = field(default_factory=dict)


class ReclaimLookahead:
    """Of one action, for swaps at one ``charge``. ``takers``: leaf queues that may gain."""

    def __init__(self, victim_search: VictimSearch, charge: Charge, takers: frozenset[int]) -> None:
        self.victim_search = victim_search
        self.state = victim_search.state
        self.problem = victim_search.state.problem
        self.charge = charge
        self._gaining = frozenset(queue for leaf in takers for queue in self.problem.queues.path[leaf])
        self._losers: list[int] = []
        self._leaves: set[int] = set()
        self._known: dict[tuple[int, bool], _Known] = {}
        self._until: dict[tuple[int, bool, int], int] = {}
        self._payers: dict[tuple[int, int], int] = {}

    def note(self, leaf: int) -> None:
        """A swap was made, and the queue ``leaf`` lost by it."""
        self._losers.append(leaf)
        self._leaves.add(leaf)

    def allowance(self, preemptor: Preemptor, queues: tuple[int, ...]) -> Allowance | None:
        """What ``preemptor`` may take from the leaf ``queues`` now; None where the action does not ask that."""
        if self.victim_search.action is not Action.RECLAIM:
            return None
        return Allowance(self.state, self.victim_search.pool, preemptor.queue, preemptor.charge, queues)

    def standing(self, preemptor: Preemptor) -> Standing | None:
        """Queues that ``preemptor`` may take from now; None if there are none."""
        if self.victim_search.action is not Action.RECLAIM:
            return ANY_QUEUE
        key = (preemptor.queue, preemptor.gang.gang.preemptible)
        known = self._known.get(key)
        if known is not None and len(self._losers) < known.until and self._is_as_before(known, preemptor):
            return known.standing
        now = self._now_standing(preemptor)
        if now is not None:
            ahead = self._most(partial(self._stays, preemptor, now))
            self._known[key] = _Known(now, len(self._losers) + max(1, ahead), len(self._losers))
        return now

    def _is_as_before(self, known: _Known, preemptor: Preemptor) -> bool:
        """Is the standing the same after what others have lost since it was worked out?"""
        now = len(self._losers)
        if now <= known.sure and len(self._leaves) == len(known.leaves):
            return True
        leaves = self._losers[known.seen :]
        losers = [self._payer(preemptor, leaf) for leaf in leaves]
        known.seen = now
        known.leaves.update(leaves)
        for queue in losers:
            known.lost[queue] = known.lost.get(queue, 0) + 1
        for queue in dict.fromkeys(losers):
            if known.lost[queue] > known.safe.get(queue, 0):
                if self._now_standing(preemptor) != known.standing:
                    return False
                ahead = self._most(partial(self._stays, preemptor, known.standing, losers=(queue,)))
                known.safe[queue] = known.lost[queue] + ahead
                known.until = min(known.until, now + ahead)
        known.sure = now + min((known.safe[queue] - lost for queue, lost in known.lost.items()), default=0)
        return True

    def _payer(self, preemptor: Preemptor, leaf: int) -> int:
        found = self._payers.get((preemptor.queue, leaf))
        if found is None:
            found = self._payers[preemptor.queue, leaf] = levelled(self.problem.queues, preemptor.queue, leaf)[1]
        return found

    def covers(self, preemptor: Preemptor, victim: GangShape, unit: int) -> bool:
        """True where it is sure that ``preemptor`` may take ``unit`` of ``victim``, of a queue where it may look."""
        payer = self._payer(preemptor, victim.queue)
        key = (preemptor.queue, preemptor.gang.gang.preemptible, payer)
        if len(self._losers) < self._until.get(key, 0):
            return True
        path = self.problem.queues.path
        if any(queue in self._gaining and queue not in path[preemptor.queue] for queue in path[victim.queue]):
            return False  # What takes and gives in turns is on neither side.
        ahead = self._most(partial(self._may_take, preemptor, victim, unit, payer))
        self._until[key] = len(self._losers) + ahead
        return ahead > 0

    # -- looking ahead -------------------------------------------------------------------------------------------

    def _most(self, holds: Callable[[int], bool]) -> int:
        """For how many swaps ``holds`` was found to be true: it is for all fewer."""
        most, swaps = 0, 1
        while swaps <= MOST_AHEAD and holds(swaps):
            most, swaps = swaps, swaps * 4
        return most

    def _now_standing(self, preemptor: Preemptor) -> Standing | None:
        if refuses_reclaim(self.state, preemptor) is not None:
            return None
        queues = self.victim_search.eligibility.reclaim_queues(preemptor)
        allowance = Allowance(self.state, self.victim_search.pool, preemptor.queue, preemptor.charge, queues)
        right = self.problem.reclaim_right(self.state.allocated, preemptor.queue, preemptor.charge)
        guaranteed = tuple(map(right.is_guaranteed, self.problem.queues.path[preemptor.queue]))
        return Standing(queues, allowance.exhausted({}), guaranteed)

    def _stays(self, preemptor: Preemptor, now: Standing, swaps: int, losers: Collection[int] = ()) -> bool:
        """Is the standing the same if ``losers`` pay for all swaps? With none, if other takers gain by as many."""
        with self._ahead(preemptor, swaps, losers):
            if not losers:
                path = self.problem.queues.path[preemptor.queue]
                self.state.suppose(self._gaining.difference(path), self.charge, swaps)
            return self._now_standing(preemptor) == now

    def _may_take(self, preemptor: Preemptor, victim: GangShape, unit: int, payer: int, swaps: int) -> bool:
        asked = [r for r, amount in enumerate(preemptor.charge) if amount > 0]
        with self._ahead(preemptor, swaps - 1, (payer,)):
            if self.victim_search.action is Action.RECLAIM and not self._may_reclaim(preemptor, victim, unit):
                return False
            self.state.suppose(self.problem.queues.path[preemptor.queue], self.charge, is_fixed=True)
            return passed_cap(self.state, preemptor.gang, asked) is None

    def _may_reclaim(self, preemptor: Preemptor, victim: GangShape, unit: int) -> bool:
        """Asked before the swap, with the numbers of after it."""
        problem, state = self.problem, self.state
        allowance = Allowance(state, self.victim_search.pool, preemptor.queue, preemptor.charge, (victim.queue,))
        if not allowance.allows({}, (unit,)):
            return False
        ledger = ReclaimLedger(problem.reclaim_right(state.allocated, preemptor.queue, preemptor.charge))
        if not ledger.take_all((victim.queue,), [(victim.queue, self.charge)]):
            return False
        state.suppose(problem.queues.path[victim.queue], self.charge, -1)
        state.suppose(problem.queues.path[preemptor.queue], self.charge)
        return goes_before(state, preemptor.gang, preemptor.charge, victim, self.charge)

    @contextmanager
    def _ahead(self, preemptor: Preemptor, swaps: int, losers: Iterable[int]) -> Iterator[None]:
        """The queues' numbers after ``swaps`` by ``preemptor``, and as many from each of ``losers``.

        In preempt a queue takes from itself, and only what may not be preempted grows.
        """
        state, path = self.state, self.problem.queues.path[preemptor.queue]
        with state.supposing():
            if self.victim_search.action is Action.RECLAIM:
                state.suppose(path, self.charge, swaps)
                state.suppose(losers, self.charge, -swaps)
            state.suppose(path, self.charge, swaps, is_fixed=True)
            yield
